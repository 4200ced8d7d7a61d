"""What stands in a pipeline's way outside its file: streams, places, and somebody else's checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from headgate.errors import PipelineError
from headgate.spark.pipeline.check import check, claim_checkpoint, notes_on
from headgate.spark.pipeline.definition import Pipeline
from headgate.spark.pipeline.file import read_pipeline
from headgate.streams.stream import Stream

TEXT = """
    [source]
    stream = "events"
    [exchange]
    type = "topic"
    [[binding]]
    queue = "all"
    key = "#"
    [[sink]]
    queue = "all"
    to = "stream:out"
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    file = tmp_path / "p.toml"
    file.write_text(dedent(TEXT))
    return read_pipeline(file)


def test_a_stream_that_is_missing_and_a_place_that_is_taken_are_both_said(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("not yours")
    with pytest.raises(PipelineError) as refused:
        check(pipeline)
    source, sink = refused.value.problems
    assert source.startswith("[source]: stream: there is no stream in")
    assert sink.startswith("sink of 'all': ")
    assert "not empty" in sink


def test_looking_changes_nothing(pipeline: Pipeline, tmp_path: Path) -> None:
    Stream.create(tmp_path / "events").close()
    check(pipeline)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events", "p.toml"]


def test_a_pipeline_into_its_own_source_would_never_end(pipeline: Pipeline, tmp_path: Path) -> None:
    Stream.create(tmp_path / "events").close()
    into_itself = replace(pipeline, dead_letter=f"stream:{tmp_path}/events")
    with pytest.raises(PipelineError, match="round for ever"):
        check(into_itself)


def test_a_checkpoint_of_another_source_is_refused_and_other_changes_are_not(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    for name in ("events", "others"):
        Stream.create(tmp_path / name).close()
    claim_checkpoint(pipeline)
    check(pipeline)
    check(replace(pipeline, source=replace(pipeline.source, filter="a = 1"), dead_letter="none:"))
    elsewhere = replace(pipeline.source, streams=(str(tmp_path / "others"),))  # type: ignore[call-arg]
    with pytest.raises(PipelineError, match="another version of this file, with streams"):
        check(replace(pipeline, source=elsewhere))


def test_a_checkpoint_of_some_other_query_is_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    Stream.create(tmp_path / "events").close()
    pipeline.checkpoint.mkdir(parents=True)
    (pipeline.checkpoint / "metadata").write_text('{"id": "x"}')
    with pytest.raises(PipelineError, match="a query that is no pipeline"):
        check(pipeline)


def test_a_binding_that_never_matches_is_worth_a_note(pipeline: Pipeline) -> None:
    assert not list(notes_on(pipeline))
    pipeline.topology.bind("pipeline", queue="all", key="a", filter="1 = 2")
    assert list(notes_on(pipeline))

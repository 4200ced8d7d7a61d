"""Problems of a pipeline outside its file: streams, places, and the checkpoint of another query."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from headgate.errors import PipelineError
from headgate.pipelines.definition import Pipeline, Sink
from headgate.pipelines.file import read_pipeline
from headgate.queues.database import connect
from headgate.spark.pipeline.checks import (
    check,
    claim_checkpoint,
    delete_unfinished_offsets,
    notes_on,
    use_recorded_path,
)
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


def test_a_missing_stream_and_an_occupied_place_are_both_reported(
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


def test_checking_changes_nothing(pipeline: Pipeline, tmp_path: Path) -> None:
    Stream.create(tmp_path / "events").close()
    check(pipeline)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events", "p.toml"]


def test_a_pipeline_into_its_own_source_would_never_end(pipeline: Pipeline, tmp_path: Path) -> None:
    Stream.create(tmp_path / "events").close()
    into_itself = replace(pipeline, dead_letter=f"stream:{tmp_path}/events")
    with pytest.raises(PipelineError, match="circulate for ever"):
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


@pytest.mark.parametrize(
    "spelled", ["link/events", "events/", "x/../events", "file://{}/events", "file:{}/events"]
)
def test_a_checkpoint_knows_its_streams_however_they_are_spelled(
    spelled: str, pipeline: Pipeline, tmp_path: Path
) -> None:
    Stream.create(tmp_path / "events").close()
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    again = TEXT.replace('"events"', f'"{spelled.format(tmp_path)}"')
    (tmp_path / "again.toml").write_text(dedent(again))
    other = replace(read_pipeline(tmp_path / "again.toml"), name=pipeline.name)
    for first, second in ((pipeline, other), (other, pipeline)):
        claim_checkpoint(first)
        check(replace(second, checkpoint=first.checkpoint))


def test_a_checkpoint_knows_its_pipeline_from_wherever_that_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Stream.create(tmp_path / "events").close()
    (tmp_path / "p.toml").write_text(dedent(TEXT))
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    claim_checkpoint(read_pipeline("../p.toml"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").rmdir()
    check(read_pipeline("p.toml"))


def test_a_file_source_keeps_the_spelling_that_spark_remembers_its_files_by(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    source = 'format = "json"\nschema = "a string"\npath = "{}"'
    for name, path in (("p", "in"), ("again", "link/in/"), ("other", "elsewhere")):
        text = dedent(TEXT).replace('stream = "events"', source.format(path))
        (tmp_path / f"{name}.toml").write_text(f'[pipeline]\nname = "p"\n{text}')
    first, again, other = (read_pipeline(tmp_path / f"{n}.toml") for n in ("p", "again", "other"))
    assert use_recorded_path(again) == again
    claim_checkpoint(first)
    check(again)
    assert use_recorded_path(again).source == first.source != again.source
    with pytest.raises(PipelineError, match="another version of this file, with path"):
        check(other)


def test_a_pipeline_into_its_own_source_by_another_name_would_never_end(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    Stream.create(tmp_path / "events").close()
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(PipelineError, match="circulate for ever"):
        check(replace(pipeline, dead_letter=f"stream:{tmp_path}/link/events"))


def test_a_checkpoint_of_some_other_query_is_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    Stream.create(tmp_path / "events").close()
    pipeline.checkpoint.mkdir(parents=True)
    (pipeline.checkpoint / "metadata").write_text('{"id": "x"}')
    with pytest.raises(PipelineError, match="a query that is no pipeline"):
        check(pipeline)


# ---- a queue as the source ---------------------------------------------------------------------------


def from_queue(tmp_path: Path, url: str, more: str = "") -> Pipeline:
    file = tmp_path / "p.toml"
    named = f'queue = "queue:{url}#orders"\n    {more}'
    file.write_text(dedent(TEXT.replace('stream = "events"', named)))
    return read_pipeline(file)


def only_problem(pipeline: Pipeline) -> str:
    with pytest.raises(PipelineError) as refused:
        check(pipeline)
    (found,) = refused.value.problems
    return found


def test_a_queue_must_exist_and_keep_an_archive(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    pipeline = from_queue(tmp_path, url)
    assert "[source]: queue: there is no database" in only_problem(pipeline)
    with connect(url) as database:
        assert "there is no queue or subscription 'orders'" in only_problem(pipeline)
        queue = database.queue("orders")
        assert "'orders' keeps no archive" in only_problem(pipeline)
        check(from_queue(tmp_path, url, 'states = "ready"'))
        database.queue("orders", archive=True)
        check(pipeline)
        queue.publish(b"x")
        database.find("orders").claim()[0].ack()
        database.queue("orders", archive=False)
        check(pipeline)  # what was kept before can still be read


def test_a_queue_that_is_read_once_needs_the_trigger_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    with connect(url) as database:
        database.queue("orders")
    looking = from_queue(tmp_path, url, 'states = "ready"')
    check(looking)
    assert "read once" in only_problem(replace(looking, trigger="continuous"))
    assert "--once" in only_problem(replace(looking, trigger=timedelta(seconds=1)))


def test_a_queue_into_itself_would_never_end(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    with connect(url) as database:
        database.queue("orders", archive=True)
    pipeline = from_queue(tmp_path, url)
    check(replace(pipeline, dead_letter=f"queue:{url}#others"))
    into_itself = replace(pipeline, dead_letter=f"queue:{url}?synchronous=NORMAL#orders")
    assert "circulate for ever" in only_problem(into_itself)


def test_a_checkpoint_knows_its_queue_and_no_password(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    pipeline = from_queue(tmp_path, url)
    claim_checkpoint(pipeline)
    with connect(url) as database:
        database.queue("orders", archive=True)
        database.queue("others", archive=True)
    check(pipeline)
    check(from_queue(tmp_path, f"{url}?synchronous=NORMAL", 'filter = "a = 1"'))
    other = replace(pipeline.source, queue=f"queue:{url}#others")  # type: ignore[call-arg]
    assert "another version of this file, with queue" in only_problem(
        replace(pipeline, source=other)
    )
    assert "with states" in only_problem(from_queue(tmp_path, url, 'states = "ready"'))
    served = replace(pipeline.source, queue="queue:postgresql://me:secret@host/db#orders")  # type: ignore[call-arg]
    claim_checkpoint(replace(pipeline, source=served))
    [known] = pipeline.checkpoint.rglob("source.json")
    assert "secret" not in known.read_text()


# ---- what Spark reads as the source ------------------------------------------------------------------


def from_format(tmp_path: Path, source: str) -> Pipeline:
    file = tmp_path / "p.toml"
    file.write_text(dedent(TEXT.replace('stream = "events"', source.replace("\n", "\n    "))))
    return read_pipeline(file)


def test_files_need_an_existing_folder_and_a_schema(tmp_path: Path) -> None:
    bare = from_format(tmp_path, 'format = "json"')
    with pytest.raises(PipelineError) as refused:
        check(bare)
    folder, schema = refused.value.problems
    assert folder.startswith("[source]: path: json reads files; add path")
    assert schema.startswith("[source]: schema: json has no schema of its own")
    whole = from_format(tmp_path, 'format = "binaryFile"\npath = "."')
    assert 'add one: schema = "path string, modificationTime timestamp' in only_problem(whole)
    named = from_format(tmp_path, 'format = "CSV"\npath = "in"\nschema = "a string"')
    assert f"there is nothing at {tmp_path}/in" in only_problem(named)
    (tmp_path / "in").mkdir()
    check(named)
    check(from_format(tmp_path, 'format = "text"\npath = "in"'))


@pytest.mark.parametrize(
    "name", ["x" * 300, "a\\u0000b", "file:%00"], ids=["long", "nul", "coded nul"]
)
def test_a_path_that_no_file_can_have_is_a_problem_like_others(tmp_path: Path, name: str) -> None:
    made = from_format(tmp_path, f'format = "text"\npath = "{name}"')
    assert only_problem(made).startswith("[source]: path:")


@pytest.mark.parametrize("to", ["stream:a\0b", "parquet:http://[", "queue:postgresql://[::1#q"])
def test_a_place_that_cannot_be_is_a_problem_like_others(pipeline: Pipeline, to: str) -> None:
    Stream.create(pipeline.file.parent / "events").close()
    assert "sink of 'all'" in only_problem(replace(pipeline, sinks=(Sink("all", to),)))


def test_a_path_that_only_spark_can_check_is_left_to_spark(tmp_path: Path) -> None:
    for path in ("s3a://bucket/in", "in/*/today"):
        check(from_format(tmp_path, f'format = "json"\npath = "{path}"\nschema = "a string"'))


def test_kafka_needs_servers_and_topics_and_a_jar_is_worth_a_note(tmp_path: Path) -> None:
    with pytest.raises(PipelineError) as refused:
        check(from_format(tmp_path, 'format = "kafka"'))
    servers, topics = refused.value.problems
    assert "kafka.bootstrap.servers" in servers
    assert "subscribe" in topics
    options = '"kafka.bootstrap.servers" = "host:9092", subscribe = "orders"'
    complete = from_format(tmp_path, f'format = "kafka"\noptions = {{ {options} }}')
    check(complete)
    assert any("spark-sql-kafka-0-10_2.13" in note for note in notes_on(complete))


def test_the_policy_for_malformed_records_may_change_between_runs(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = 'format = "json"\npath = "in"\nschema = "a string"'
    claim_checkpoint(from_format(tmp_path, source))
    check(from_format(tmp_path, f'{source}\nmalformed = "drop"'))


def test_a_binding_on_a_header_that_the_source_does_not_list_is_worth_a_note(tmp_path) -> None:
    source = 'format = "json"\npath = "in"\nschema = "a string"\nheaders = { amount = "a" }'
    pipeline = from_format(tmp_path, source)
    assert not list(notes_on(pipeline))
    pipeline.topology.bind("pipeline", queue="all", filter="amout > 5 AND sys.topic = 'x'")
    (note,) = notes_on(pipeline)
    assert note.endswith("no message has the header amout; did you mean 'amount'?")


def test_a_binding_that_never_matches_is_worth_a_note(pipeline: Pipeline) -> None:
    assert not list(notes_on(pipeline))
    pipeline.topology.bind("pipeline", queue="all", key="a", filter="1 = 2")
    assert list(notes_on(pipeline))


def test_offsets_that_an_interrupted_run_did_not_finish_are_deleted(pipeline: Pipeline) -> None:
    offsets = pipeline.checkpoint / "offsets"
    delete_unfinished_offsets(pipeline)
    offsets.mkdir(parents=True)
    for name in ("0", ".0.crc", ".1.e0e0ee33.tmp", "..1.e0e0ee33.tmp.crc"):
        (offsets / name).write_text("")
    delete_unfinished_offsets(pipeline)
    assert sorted(file.name for file in offsets.iterdir()) == [".0.crc", "0"]

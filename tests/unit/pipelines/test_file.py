"""A pipeline file is read whole, and everything that is wrong with it is said at once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from headgate.errors import PipelineError
from headgate.pipelines.definition import FormatSource, Pipeline, QueueSource, Sink, StreamSource
from headgate.pipelines.file import read_pipeline
from headgate.pipelines.places import queue_place
from headgate.spark.pipeline.run import source_options

ISSUE = """
    [source]
    stream = "data/events"
    [exchange]
    type = "headers"
    [[binding]]
    queue = "eu-high"
    arguments = { x-match = "all", region = "EU", priority = "HIGH" }
    filter = "amount > 1000"
    [[sink]]
    queue = "eu-high"
    to = "stream:data/eu-high"
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "pipeline.toml"
    file.write_text(dedent(text))
    return file


def read(tmp_path: Path, text: str) -> Pipeline:
    return read_pipeline(written(tmp_path, text))


def problems(tmp_path: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(PipelineError) as refused:
        read(tmp_path, text)
    return refused.value.problems


def test_a_minimal_file_is_complete(tmp_path: Path) -> None:
    pipeline = read(tmp_path, ISSUE)
    assert pipeline.name == "pipeline"
    assert pipeline.source == StreamSource((str(tmp_path / "data/events"),))
    assert pipeline.sinks == (Sink("eu-high", f"stream:{tmp_path}/data/eu-high"),)
    assert pipeline.checkpoint == tmp_path / ".headgate/pipeline"
    assert (pipeline.trigger, pipeline.dead_letter) == ("continuous", None)
    headers = {"region": "EU", "priority": "HIGH", "amount": 1001}
    assert pipeline.topology.route(pipeline.exchange, ("", headers)).queues == {"eu-high"}


def test_paths_are_relative_to_the_file_and_not_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, ISSUE)
    monkeypatch.chdir(tmp_path)
    assert read_pipeline("pipeline.toml").source == read_pipeline(tmp_path / "pipeline.toml").source


def test_a_queue_in_a_database_is_the_sinks_own_unless_another_is_named(tmp_path: Path) -> None:
    text = (
        ISSUE
        + """
    [[sink]]
    queue = "eu-high"
    to = "queue:sqlite:///q.db"
    [[sink]]
    queue = "eu-high"
    to = "queue:postgresql://u:p@host/db#other"
    """
    )
    pipeline = read(tmp_path, text)
    assert pipeline.places()[1:] == (
        f"queue:sqlite:///{tmp_path}/q.db#eu-high",
        "queue:postgresql://u:p@host/db#other",
    )
    assert pipeline.outlets() == {"eu-high": (0, 1, 2)}


def test_a_database_may_lie_in_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "100%25 #1?"
    folder.mkdir()
    text = ISSUE.replace("stream:data/eu-high", "queue:sqlite:///q.db")
    place = queue_place(read(folder, text).places()[0])
    assert (place.file, place.name) == (folder.resolve() / "q.db", "eu-high")


def test_malformed_records_are_dead_letters_or_else_end_the_run(
    tmp_path: Path,
) -> None:
    def malformed(source: str, letters: str = "") -> str:
        text = ISSUE.replace('stream = "data/events"', f'format = "json"\n    {source}')
        return read(tmp_path, text + letters).malformed

    letters = '\n    [dead_letter]\n    to = "stream:lost"\n'
    assert malformed("") == "fail"
    assert malformed("", letters) == "dead-letter"
    assert malformed('malformed = "drop"', letters) == "drop"


def test_a_trigger_longer_than_time_is_a_problem_like_others(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, ISSUE + '\n    [pipeline]\n    trigger = "9999999999999h"\n')
    assert problem.startswith("[pipeline]: trigger is ")


def test_every_place_is_listed_once_and_nowhere_is_no_place(tmp_path: Path) -> None:
    text = (
        ISSUE
        + """
    [[sink]]
    queue = "eu-high"
    to = "none:"
    [dead_letter]
    to = "stream:data/eu-high"
    """
    )
    pipeline = read(tmp_path, text)
    assert pipeline.places() == (f"stream:{tmp_path}/data/eu-high",)
    assert pipeline.outlets() == {"eu-high": (0,)}


def test_settings_of_the_pipeline(tmp_path: Path) -> None:
    text = '[pipeline]\nname = "eu.1"\ntrigger = "500ms"\npartitions = 4\ncheckpoint = "c"\n'
    pipeline = read(tmp_path, text + dedent(ISSUE))
    assert (pipeline.name, pipeline.trigger) == ("eu.1", timedelta(milliseconds=500))
    assert (pipeline.partitions, pipeline.checkpoint) == (4, tmp_path / "c")


def test_a_format_source_maps_columns_to_parts_of_messages(tmp_path: Path) -> None:
    text = ISSUE.replace(
        'stream = "data/events"',
        """format = "json"
    path = "in"
    schema = "kind string, body string, region string"
    options = { maxFilesPerTrigger = 10, multiLine = true }
    columns = { topic = "kind", payload = "body" }
    headers = { area = "region" }""",
    )
    source = read(tmp_path, text).source
    assert isinstance(source, FormatSource)
    assert source.path == str(tmp_path / "in")
    assert source.options == (("maxFilesPerTrigger", "10"), ("multiLine", "true"))
    assert source.columns == (("topic", "kind"), ("payload", "body"))
    assert source.headers == (("area", "region"),)


def test_a_header_with_the_name_of_a_part_of_a_message_is_refused_with_both_ways_out(
    tmp_path: Path,
) -> None:
    text = ISSUE.replace(
        'stream = "data/events"', 'format = "json"\nschema = "id long"\nheaders = { id = "id" }'
    )
    with pytest.raises(PipelineError, match="'id' is a part of a message; give the header another"):
        read(tmp_path, text)


def test_a_topology_file_takes_the_place_of_exchange_and_bindings(tmp_path: Path) -> None:
    (tmp_path / "topology.toml").write_text(
        dedent("""
        [exchanges.orders]
        type = "topic"
        alternate = "rest"
        [exchanges.rest]
        type = "fanout"
        [queues.eu]
        [queues.lost]
        [queues.elsewhere]
        [[bindings]]
        from = "orders"
        queue = "eu"
        key = "eu.#"
        [[bindings]]
        from = "rest"
        queue = "lost"
        """)
    )
    text = """
    topology = "topology.toml"
    exchange = "orders"
    [source]
    stream = "events"
    [[sink]]
    queue = "eu"
    to = "none:"
    """
    assert problems(tmp_path, text) == (
        'queue \'lost\': has no sink; add [[sink]] with queue = "lost" and to = "…"',
    )
    with_lost = text + '\n    [[sink]]\n    queue = "lost"\n    to = "none:"\n'
    assert read(tmp_path, with_lost).exchange == "orders"
    stray = with_lost + '\n    [[sink]]\n    queue = "elsewhere"\n    to = "none:"\n'
    assert "no binding leads to this queue" in problems(tmp_path, stray)[0]
    assert (
        "has no exchange 'order'" in problems(tmp_path, with_lost.replace('"orders"', '"order"'))[0]
    )


def test_all_problems_of_a_file_are_reported(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """
        [sauce]
        [source]
        stream = "events"
        filtr = "x"
        filter = "region = AND"
        start = "yesterday"
        [exchange]
        type = "headrs"
        [[binding]]
        queue = "a"
        filter = "amount >> 1"
        [[binding]]
        queue = "b"
        kee = "x"
        [[binding]]
        queue = "c"
        [[sink]]
        queue = "a"
        to = "stram:x"
        [[sink]]
        queue = "b"
        [[sink]]
        queue = "d"
        to = "queue:mysql://x"
        [dead_letter]
        to = "parquet:"
        [pipeline]
        name = "a/b"
        trigger = "often"
        partitions = 0
        """,
    )
    expected = [
        "the file: unknown key 'sauce'; did you mean 'source'?",
        "[source]: unknown key 'filtr'; did you mean 'filter'?",
        "[source]: filter: unexpected 'AND'",
        "[source]: start: ",
        "[exchange]: exchange 'pipeline': there is no type 'headrs'",
        "[[binding]] 1: 'pipeline' to queue 'a': the filter cannot be used",
        "[[binding]] 2: does not know 'kee'",
        "[[sink]] 1: to: 'stram:x' is no place",
        "[[sink]] 2: to is missing; add to = ",
        "[[sink]] 3: to: 'queue:mysql://x' is no database",
        "[dead_letter]: to: 'parquet:' names no place",
        "[pipeline]: name is made of",
        "[pipeline]: trigger is ",
        "[pipeline]: partitions must be at least 1",
        "queue 'c': has no sink",
        "sink of 'd': no binding leads to this queue",
    ]
    for beginning in expected:
        assert [p for p in found if p.startswith(beginning)], beginning
    assert len(found) == len(expected)


def test_a_bad_filter_is_shown_with_a_caret_under_the_place(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, ISSUE.replace("amount > 1000", "amount > > 1"))
    assert found.splitlines()[-2:] == ["  amount > > 1", "           ^"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[source", "this is not TOML"),
        ('[source]\nstream = "a"\nformat = "json"', "[source]: needs exactly one of stream"),
        ("[source]\nstream = 7", "[source]: stream is text or a list of texts, not 7"),
        (
            '[source]\nstream = ["a", "a"]',
            "[source]: stream: give at least one, and each only once",
        ),
        (
            '[source]\nstream = "queue:sqlite:///q.db#orders"',
            '[source]: stream: this is a queue; write queue = "queue:',
        ),
        (
            '[source]\nformat = "headgate"\npath = "queue:postgresql://host/db#orders"',
            '[source]: path: this is a queue; write queue = "queue:',
        ),
        (
            '[source]\nqueue = "queue:mysql://me:secret@host/db#q"',
            "[source]: queue: 'queue:mysql://me:…@host/db#q' is no database",
        ),
        ('[source]\nqueue = "queue:sqlite:///q.db"', "[source]: queue: 'queue:sqlite:///"),
        ('[source]\nqueue = "sqlite:///q.db#q"\nstart = "next"', "[source]: unknown key 'start'"),
        (
            '[source]\nqueue = "sqlite:///q.db#q"\nstates = "redy"',
            "[source]: states: give some of ready",
        ),
        ('source = "a"', "[source]: expected a table, not 'a'"),
        (
            '[source]\nformat = "json"\nmalformed = "ignore"',
            "[source]: malformed is one of dead-letter, fail, drop, not 'ignore'",
        ),
        (
            '[source]\nformat = "json"\nmalformed = "dead-letter"',
            '[dead_letter]: malformed = "dead-letter" needs it',
        ),
        (
            '[pipeline]\nmax_messages_per_trigger = 5\n[source]\nformat = "json"\npath = "in"',
            "[pipeline]: max_messages_per_trigger: this source has no such limit",
        ),
        (
            '[pipeline]\nmax_bytes_per_trigger = 5\n[source]\nqueue = "sqlite:///q.db#q"',
            "[pipeline]: max_bytes_per_trigger: this source has no such limit",
        ),
        ('exchange = "orders"', "exchange: a name alone needs topology"),
        ("exchange = []", "[exchange]: is missing"),
        ('[pipeline]\ncheckpoint = "a\\u0000b"', "[pipeline]: checkpoint: "),
        ('[pipeline]\ncheckpoint = "http://["', "[pipeline]: checkpoint: 'http://[' is no path"),
        (
            '[source]\nqueue = "queue:postgresql://[::1#q"',
            "[source]: queue: 'queue:postgresql://[::1#q' is no database",
        ),
        ("", "[source]: is missing"),
        ("", "[exchange]: is missing"),
        ("", "[[sink]]: is missing"),
        ('[exchange]\ntype = "topic"', "[[binding]]: is missing"),
    ],
)
def test_a_missing_or_invalid_entry_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert [p for p in problems(tmp_path, text) if p.startswith(said)]


def test_a_queue_source_follows_the_archive_or_reads_states_once(tmp_path: Path) -> None:
    def source(line: str) -> Pipeline:
        return read(tmp_path, ISSUE.replace('stream = "data/events"', line))

    followed = source('queue = "queue:sqlite:///q.db#orders"\n    filter = "a = 1"')
    assert followed.source == QueueSource(f"queue:sqlite:///{tmp_path}/q.db#orders", "a = 1")
    assert followed.trigger == "continuous"
    looked = source('queue = "postgresql://host/db#orders"\n    states = "Dead"')
    assert looked.source == QueueSource("queue:postgresql://host/db#orders", states="dead")
    assert looked.trigger == "once"


def test_a_missing_file_is_reported_as_a_problem(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cannot be read"):
        read_pipeline(tmp_path / "none.toml")


@pytest.mark.parametrize("source", ['stream = "in"', 'queue = "queue:sqlite:///in.db#in"'])
def test_data_loss_fails_a_pipeline_unless_its_file_allows_it(tmp_path: Path, source: str) -> None:
    def with_source(*more: str) -> str:
        return dedent(ISSUE).replace('stream = "data/events"', "\n".join((source, *more)))

    for said, fails in (("", True), ("fail_on_data_loss = false", False)):
        pipeline = read(tmp_path, with_source(said))
        assert not isinstance(pipeline.source, FormatSource)
        assert (
            source_options(pipeline, pipeline.source, None)["failOnDataLoss"] == str(fails).lower()
        )
    [problem] = problems(tmp_path, with_source('fail_on_data_loss = "no"'))
    assert problem == "[source]: fail_on_data_loss is true or false, not 'no'"


def test_a_checkpoint_is_a_directory_however_it_is_spelled(tmp_path: Path) -> None:
    def with_checkpoint(spelled: str) -> str:
        return f'[pipeline]\ncheckpoint = "{spelled}"\n{dedent(ISSUE)}'

    for spelled in ("ck", "ck/", f"{tmp_path}/ck", f"file://{tmp_path}/ck/", f"file:{tmp_path}/ck"):
        assert read(tmp_path, with_checkpoint(spelled)).checkpoint == tmp_path / "ck"
    [problem] = problems(tmp_path, with_checkpoint("s3://bucket/ck"))
    assert (
        "checkpoint is a directory that driver and executors share, not 's3://bucket/ck'" in problem
    )


BOUND = """
[source]
stream = "events"
[exchange]
type = "topic"
[[binding]]
queue = "eu"
key = "#"
"""


def test_a_sink_that_is_written_twice_would_store_every_message_twice(tmp_path: Path) -> None:
    sink = '[[sink]]\nqueue = "eu"\nto = "{}"\n'
    [problem] = problems(tmp_path, BOUND + 2 * sink.format("stream:out"))
    assert problem.startswith("sink of 'eu': 2 sinks write this queue to stream:")
    read(tmp_path, BOUND + sink.format("stream:out") + sink.format("stream:copy"))
    read(tmp_path, BOUND + 2 * sink.format("none:"))


def test_a_queue_that_is_no_text_is_told_as_such(tmp_path: Path) -> None:
    bound = BOUND.replace('"eu"', '["eu"]')
    assert problems(tmp_path, bound)[0] == "[[binding]] 1: queue is text, not ['eu']"

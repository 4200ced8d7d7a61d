"""How much one batch of a pipeline covers, by its source and its places."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from headgate.pipelines.definition import Pipeline
from headgate.pipelines.file import read_pipeline
from headgate.pipelines.sources import limit_options
from headgate.spark.pipeline.run import source_options

STREAM, QUEUE = "stream:out", "queue:sqlite:///q.db"
EVENTS = 'stream = "events"'
DEFAULTS = {"maxMessagesPerTrigger": "50000", "maxBytesPerTrigger": str(32 << 20)}


def pipeline(tmp_path: Path, source: str, to: str, settings: str = "") -> Pipeline:
    text = f"""
    [pipeline]
    {settings}
    [source]
    {source}
    [exchange]
    type = "topic"
    [[binding]]
    queue = "all"
    key = "#"
    [[sink]]
    queue = "all"
    to = "{to}"
    """
    (tmp_path / "p.toml").write_text(dedent(text))
    return read_pipeline(tmp_path / "p.toml")


def test_a_batch_that_goes_into_a_queue_has_a_limit_by_default(tmp_path: Path) -> None:
    found = pipeline(tmp_path, EVENTS, QUEUE)
    assert limit_options(found) == DEFAULTS
    assert DEFAULTS.items() <= source_options(found, found.source, 2).items()  # type: ignore[arg-type]


def test_a_batch_that_goes_into_streams_only_has_none(tmp_path: Path) -> None:
    assert limit_options(pipeline(tmp_path, EVENTS, STREAM)) == {}


def test_dead_letters_in_a_queue_are_reason_enough_for_a_limit(tmp_path: Path) -> None:
    letters = f'"{STREAM}"\n    [dead_letter]\n    to = "{QUEUE}#lost'
    assert limit_options(pipeline(tmp_path, EVENTS, letters[1:])) == DEFAULTS


def test_a_limit_in_the_file_wins_and_bytes_can_be_limited_too(tmp_path: Path) -> None:
    said = "max_messages_per_trigger = 7"
    assert limit_options(pipeline(tmp_path, EVENTS, QUEUE, said)) == {
        **DEFAULTS,
        "maxMessagesPerTrigger": "7",
    }
    said = "max_bytes_per_trigger = 1000"
    assert limit_options(pipeline(tmp_path, EVENTS, STREAM, said)) == {"maxBytesPerTrigger": "1000"}


def test_the_archive_of_a_queue_is_limited_by_messages_alone(tmp_path: Path) -> None:
    source = 'queue = "queue:sqlite:///other.db#orders"'
    assert limit_options(pipeline(tmp_path, source, QUEUE)) == {"maxMessagesPerTrigger": "50000"}


def test_a_format_is_limited_by_its_own_option(tmp_path: Path) -> None:
    def options(source: str, settings: str = "") -> dict[str, str]:
        return limit_options(pipeline(tmp_path, source, QUEUE, settings))

    files = 'format = "JSON"\n    path = "in"\n    schema = "a string"'
    assert options(files) == {"maxBytesPerTrigger": str(32 << 20)}
    assert options('format = "kafka"') == {"maxOffsetsPerTrigger": "50000"}
    said = "max_messages_per_trigger = 7"
    assert options('format = "kafka"', said) == {"maxOffsetsPerTrigger": "7"}
    assert options('format = "rate"') == {}


def test_a_limit_of_the_format_itself_is_left_alone(tmp_path: Path) -> None:
    source = 'format = "json"\n    path = "in"\n    options = { maxFilesPerTrigger = 3 }'
    assert limit_options(pipeline(tmp_path, source, QUEUE)) == {}


def test_a_source_is_not_asked_for_more_than_a_filter_can_say(tmp_path: Path) -> None:
    found = pipeline(tmp_path, EVENTS + "\n    filter = \"region = 'EU'\"", STREAM)
    wanted = source_options(found, found.source, 2)["filter"]  # type: ignore[arg-type]
    assert wanted == "region = 'EU' AND sys.topic MATCHES '#'"
    found.topology.unbind(found.exchange, queue="all", key="#")
    for n in range(400):
        found.topology.bind(found.exchange, queue="all", key=f"orders.{n}.{'x' * 50}")
    assert source_options(found, found.source, 2)["filter"] == "region = 'EU'"  # type: ignore[arg-type]

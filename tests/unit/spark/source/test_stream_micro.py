from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from headgate.errors import DataLost, SparkOptionsError
from headgate.message import Message
from headgate.spark.jobs.replays import stage_ranges
from headgate.spark.options import source_options
from headgate.spark.sink.checkpoint import fresh_owner
from headgate.spark.sink.destinations import parse
from headgate.spark.source.ranges import Range, scan
from headgate.spark.source.stream_batch import HeadgateReader
from headgate.spark.source.stream_micro import HeadgateStreamReader
from headgate.streams.read.cursors import Cursors
from headgate.streams.read.query import StreamQuery
from headgate.streams.stream import Stream
from tests.mixed_stream import publish
from tests.unit.spark.ddl import struct


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """Two hundred messages in several small segments."""
    options = {"segment_bytes": 4096, "chunk_messages": 10, "fsync": "never"}
    with Stream.create(tmp_path / "s", **options) as stream:
        publish(stream, [Message(b"x" * 100, headers={"n": i}) for i in range(200)])
    return tmp_path / "s"


def reading(path: Path, **options: str) -> HeadgateStreamReader:
    given = {"path": str(path), **options}
    return HeadgateStreamReader(struct("offset bigint, n bigint"), source_options(given))


def offsets(reader: HeadgateStreamReader, start: int, end: int) -> list[int]:
    path = reader.options.paths[0]
    return [
        offset
        for partition in reader.partitions({path: start}, {path: end})
        for batch in reader.read(partition)
        for offset in batch.column("offset").to_pylist()
    ]


def test_a_query_begins_where_it_is_told_to(stream: Path) -> None:
    path = str(stream)
    assert reading(stream).initialOffset() == {path: 0}
    assert reading(stream, startingOffset="next").initialOffset() == {path: 200}
    assert reading(stream, startingOffset="last").initialOffset() == {path: 199}
    assert reading(stream, **{"from": "42"}).initialOffset() == {path: 42}


def test_an_offset_that_is_gone_means_the_oldest_there_is(stream: Path) -> None:
    with Stream.open(stream) as writer:
        writer.trim(before_offset=100)
        first = writer.first_offset
    assert first > 10
    assert reading(stream, startingOffset="10").initialOffset() == {str(stream): first}


def test_a_batch_goes_as_far_as_its_limit(stream: Path) -> None:
    path, reader = str(stream), reading(stream, maxMessagesPerTrigger="30")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    assert reader.latestOffset({path: 50}, limit) == {path: 80}
    assert reader.latestOffset({path: 50}, ReadAllAvailable()) == {path: 200}
    assert reader.latestOffset({path: 200}, limit) == {path: 200}


def test_a_limit_in_bytes_is_about_so_many_bytes(stream: Path) -> None:
    path, reader = str(stream), reading(stream, maxBytesPerTrigger="2000")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(2000)
    assert 5 <= reader.latestOffset({path: 0}, limit)[path] <= 20


def test_available_now_ends_where_the_stream_ended_at_the_beginning(stream: Path) -> None:
    path, reader = str(stream), reading(stream)
    reader.prepareForTriggerAvailableNow()
    with Stream.open(stream) as writer:
        publish(writer, [Message()] * 5)
    assert reader.latestOffset({path: 0}, ReadAllAvailable()) == {path: 200}
    assert reader.reportLatestOffset() == {path: 205}


def test_a_batch_reads_its_offsets_in_order_and_only_what_matches(stream: Path) -> None:
    reader = reading(stream, filter="n % 3 = 0", partitions="3")
    assert offsets(reader, 10, 150) == [n for n in range(10, 150) if n % 3 == 0]


def test_a_stream_that_is_added_later_is_read_from_its_beginning(
    stream: Path, tmp_path: Path
) -> None:
    Stream.create(tmp_path / "t").close()
    reader = reading(stream, paths=str(tmp_path / "t"))
    found = reader.latestOffset({str(stream): 200}, ReadAllAvailable())
    assert found == {str(stream): 200, str(tmp_path / "t"): 0}


def test_a_query_goes_on_where_it_stood_when_its_stream_is_spelled_differently(
    stream: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    linked = tmp_path / "link" / "s"
    for known, asked in ((stream, linked), (linked, stream)):
        reader = reading(asked)
        assert reader.latestOffset({str(known): 120}, ReadMaxRows(30)) == {str(asked): 150}
        for end in (
            asked,
            known,
        ):  # `known` of a batch that an earlier run planned and did not finish
            parts = reader.partitions({str(known): 120}, {str(end): 150})
            assert sum(b.num_rows for part in parts for b in reader.read(part)) == 30


def test_a_link_that_leads_elsewhere_now_is_still_the_same_stream(
    stream: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(stream)
    reader = reading(tmp_path / "link")
    stream.rename(tmp_path / "moved")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "moved")
    path = str(tmp_path / "link")
    assert reader.latestOffset({path: 120}, ReadMaxRows(30)) == {path: 150}


def test_a_stream_that_is_named_twice_in_different_ways_is_refused(
    stream: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(stream)
    with pytest.raises(SparkOptionsError, match="asked for twice"):
        reading(stream, paths=str(tmp_path / "link"))


def test_progress_is_shown_as_soon_as_spark_asks_for_more(stream: Path) -> None:
    reader = reading(stream, cursor="mine")
    reader.latestOffset({str(stream): 120}, ReadAllAvailable())
    reader.stop()
    [shown] = Cursors(stream).list()
    assert (shown.name, shown.position) == ("mine", 120)


def test_without_a_cursor_nothing_is_written(stream: Path) -> None:
    reading(stream, cursor="").commit({str(stream): 120})
    assert Cursors(stream).list() == []


def test_messages_dropped_before_they_were_planned_or_read_are_an_error(stream: Path) -> None:
    path, reader = str(stream), reading(stream)
    planned = reader.partitions({path: 0}, {path: 200})
    with Stream.open(stream) as writer:
        writer.trim(before_offset=100)
        first = writer.first_offset
    with pytest.raises(DataLost, match=f"offsets 0 to {first - 1} were dropped"):
        list(reader.read(planned[0]))
    with pytest.raises(DataLost, match=f"offsets 5 to {first - 1} were dropped.*failOnDataLoss"):
        reader.partitions({path: 5}, {path: 200})


def test_messages_dropped_before_they_were_read_are_left_out_when_that_is_wanted(
    stream: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Stream.open(stream) as writer:
        writer.trim(before_offset=100)
        first = writer.first_offset
    assert offsets(reading(stream, failOnDataLoss="false"), 0, 200) == list(range(first, 200))
    assert f"offsets 0 to {first - 1} were dropped" in caplog.text


def test_messages_dropped_while_a_task_reads_are_an_error(stream: Path) -> None:
    path, reader = str(stream), reading(stream)
    [planned] = reader.partitions({path: 0}, {path: 200})
    read = scan(planned.value.ranges[0], StreamQuery())
    assert next(read).num_rows
    with Stream.open(stream) as writer:
        writer.trim(before_offset=150)
        first = writer.first_offset
    with pytest.raises(DataLost, match=f"offsets [1-9][0-9]* to {first - 1} were dropped"):
        list(read)


def test_a_stream_that_ends_before_what_was_planned_is_an_error(
    stream: Path, tmp_path: Path
) -> None:
    path, reader = str(stream), reading(stream)
    planned = reader.partitions({path: 0}, {path: 200})
    rmtree(stream)
    with Stream.create(stream) as writer:
        publish(writer, [Message()] * 5)
    with pytest.raises(DataLost, match="ends before offset 5"):
        list(reader.read(planned[0]))


def test_a_batch_read_says_what_was_dropped_since_it_was_planned(
    stream: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def made(**options: str) -> HeadgateReader:
        given = source_options({"path": str(stream), **options})
        return HeadgateReader(struct("offset bigint"), given)

    [planned] = made(partitions="1").partitions()
    with Stream.open(stream) as writer:
        writer.trim(before_offset=100)
        first = writer.first_offset
    with pytest.raises(DataLost, match=f"offsets 0 to {first - 1} were dropped"):
        list(made().read(planned))
    rows = sum(batch.num_rows for batch in made(failOnDataLoss="false").read(planned))
    assert rows == 200 - first
    assert f"offsets 0 to {first - 1} were dropped" in caplog.text


def test_a_replay_says_what_was_dropped_before_it_came_to_it(stream: Path, tmp_path: Path) -> None:
    place, ranges = parse(f"stream:{tmp_path}/out", "", fresh_owner()), [Range(str(stream), 0, 200)]
    with Stream.open(stream) as writer:
        writer.trim(before_offset=100)
    with pytest.raises(DataLost, match=r"were dropped.*replay what is left under another id"):
        stage_ranges(place, StreamQuery(), ranges)


def test_a_stream_that_was_made_again_needs_a_new_checkpoint(stream: Path) -> None:
    with pytest.raises(DataLost, match="stands at offset 900, the stream ends at 200"):
        reading(stream).latestOffset({str(stream): 900}, ReadAllAvailable())

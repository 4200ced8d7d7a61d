from __future__ import annotations

from pathlib import Path
from random import Random
from shutil import rmtree

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from headgate.errors import DataLost, SparkOptionsError
from headgate.message import Message
from headgate.spark.jobs.replays import stage_ranges
from headgate.spark.options import parse_stream_read
from headgate.spark.sink.destination import destination_of, new_owner
from headgate.spark.source.ranges import OffsetRange, scan
from headgate.spark.source.stream_batch import StreamBatchReader
from headgate.spark.source.stream_micro import StreamMicroReader, limit_offsets
from headgate.streams.read.cursors import Cursors
from headgate.streams.read.query import StreamQuery
from headgate.streams.stream import Stream
from tests.mixed_stream import publish
from tests.unit.spark.ddl import struct


@pytest.fixture
def small_segments(tmp_path: Path) -> Path:
    """Two hundred messages in several small segments."""
    options = {"segment_bytes": 4096, "chunk_messages": 10, "fsync": "never"}
    with Stream.create(tmp_path / "s", **options) as stream:
        publish(stream, [Message(b"x" * 100, headers={"n": i}) for i in range(200)])
    return tmp_path / "s"


def reading(path: Path, **options: str) -> StreamMicroReader:
    given = {"path": str(path), **options}
    return StreamMicroReader(struct("offset bigint, n bigint"), parse_stream_read(given))


def offsets(reader: StreamMicroReader, start: int, end: int) -> list[int]:
    path = reader.options.paths[0]
    return [
        offset
        for partition in reader.partitions({path: start}, {path: end})
        for batch in reader.read(partition)
        for offset in batch.column("offset").to_pylist()
    ]


def test_a_query_begins_where_it_is_told_to(small_segments: Path) -> None:
    path = str(small_segments)
    assert reading(small_segments).initialOffset() == {path: 0}
    assert reading(small_segments, startingOffset="next").initialOffset() == {path: 200}
    assert reading(small_segments, startingOffset="last").initialOffset() == {path: 199}
    assert reading(small_segments, **{"from": "42"}).initialOffset() == {path: 42}


def test_a_deleted_offset_means_the_oldest_message(small_segments: Path) -> None:
    with Stream.open(small_segments) as writer:
        writer.trim(before_offset=100)
        first = writer.first_offset
    assert first > 10
    assert reading(small_segments, startingOffset="10").initialOffset() == {
        str(small_segments): first
    }


def test_a_batch_goes_as_far_as_its_limit(small_segments: Path) -> None:
    path, reader = str(small_segments), reading(small_segments, maxMessagesPerTrigger="30")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    assert reader.latestOffset({path: 50}, limit) == {path: 80}
    assert reader.latestOffset({path: 50}, ReadAllAvailable()) == {path: 200}
    assert reader.latestOffset({path: 200}, limit) == {path: 200}


def test_a_limit_in_bytes_is_about_so_many_bytes(small_segments: Path) -> None:
    path, reader = str(small_segments), reading(small_segments, maxBytesPerTrigger="2000")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(2000)
    assert 5 <= reader.latestOffset({path: 0}, limit)[path] <= 20


def test_available_now_ends_where_the_stream_ended_at_the_beginning(small_segments: Path) -> None:
    path, reader = str(small_segments), reading(small_segments)
    reader.prepareForTriggerAvailableNow()
    with Stream.open(small_segments) as writer:
        publish(writer, [Message()] * 5)
    assert reader.latestOffset({path: 0}, ReadAllAvailable()) == {path: 200}
    assert reader.reportLatestOffset() == {path: 205}


def test_a_batch_reads_only_matches_in_the_order_of_offsets(small_segments: Path) -> None:
    reader = reading(small_segments, filter="n % 3 = 0", partitions="3")
    assert offsets(reader, 10, 150) == [n for n in range(10, 150) if n % 3 == 0]


def test_a_stream_that_is_added_later_is_read_from_its_beginning(
    small_segments: Path, tmp_path: Path
) -> None:
    Stream.create(tmp_path / "t").close()
    reader = reading(small_segments, paths=str(tmp_path / "t"))
    found = reader.latestOffset({str(small_segments): 200}, ReadAllAvailable())
    assert found == {str(small_segments): 200, str(tmp_path / "t"): 0}


def test_a_query_goes_on_where_it_stood_when_its_stream_is_spelled_differently(
    small_segments: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    linked = tmp_path / "link" / "s"
    for known, asked in ((small_segments, linked), (linked, small_segments)):
        reader = reading(asked)
        assert reader.latestOffset({str(known): 120}, ReadMaxRows(30)) == {str(asked): 150}
        for end in (
            asked,
            known,
        ):  # `known` of a batch that an earlier run planned and did not finish
            parts = reader.partitions({str(known): 120}, {str(end): 150})
            assert sum(b.num_rows for part in parts for b in reader.read(part)) == 30


def test_a_moved_link_still_names_the_stream_of_the_checkpoint(
    small_segments: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(small_segments)
    reader = reading(tmp_path / "link")
    small_segments.rename(tmp_path / "moved")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "moved")
    path = str(tmp_path / "link")
    assert reader.latestOffset({path: 120}, ReadMaxRows(30)) == {path: 150}


def test_a_stream_that_is_named_twice_in_different_ways_is_refused(
    small_segments: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(small_segments)
    with pytest.raises(SparkOptionsError, match="listed twice"):
        reading(small_segments, paths=str(tmp_path / "link"))


def test_progress_is_shown_as_soon_as_spark_asks_for_more(small_segments: Path) -> None:
    reader = reading(small_segments, cursor="mine")
    reader.latestOffset({str(small_segments): 120}, ReadAllAvailable())
    reader.stop()
    [shown] = Cursors(small_segments).list()
    assert (shown.name, shown.position) == ("mine", 120)


def test_without_a_cursor_nothing_is_written(small_segments: Path) -> None:
    reading(small_segments, cursor="").commit({str(small_segments): 120})
    assert Cursors(small_segments).list() == []


def test_messages_deleted_before_they_are_planned_or_read_are_an_error(
    small_segments: Path,
) -> None:
    path, reader = str(small_segments), reading(small_segments)
    planned = reader.partitions({path: 0}, {path: 200})
    with Stream.open(small_segments) as writer:
        writer.trim(before_offset=100)
        first = writer.first_offset
    with pytest.raises(DataLost, match=f"offsets 0 to {first - 1} were deleted"):
        list(reader.read(planned[0]))
    with pytest.raises(DataLost, match=f"offsets 5 to {first - 1} were deleted.*failOnDataLoss"):
        reader.partitions({path: 5}, {path: 200})


def test_messages_deleted_before_they_are_read_are_skipped_without_fail_on_data_loss(
    small_segments: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Stream.open(small_segments) as writer:
        writer.trim(before_offset=100)
        first = writer.first_offset
    assert offsets(reading(small_segments, failOnDataLoss="false"), 0, 200) == list(
        range(first, 200)
    )
    assert f"offsets 0 to {first - 1} were deleted" in caplog.text


def test_messages_deleted_while_a_task_reads_are_an_error(small_segments: Path) -> None:
    path, reader = str(small_segments), reading(small_segments)
    [planned] = reader.partitions({path: 0}, {path: 200})
    read = scan(planned.value.ranges[0], StreamQuery())
    assert next(read).num_rows
    with Stream.open(small_segments) as writer:
        writer.trim(before_offset=150)
        first = writer.first_offset
    with pytest.raises(DataLost, match=f"offsets [1-9][0-9]* to {first - 1} were deleted"):
        list(read)


def test_a_stream_that_ends_before_the_planned_offsets_is_an_error(
    small_segments: Path, tmp_path: Path
) -> None:
    path, reader = str(small_segments), reading(small_segments)
    planned = reader.partitions({path: 0}, {path: 200})
    rmtree(small_segments)
    with Stream.create(small_segments) as writer:
        publish(writer, [Message()] * 5)
    with pytest.raises(DataLost, match="ends before offset 5"):
        list(reader.read(planned[0]))


def test_a_batch_read_names_the_offsets_deleted_since_planning(
    small_segments: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def made(**options: str) -> StreamBatchReader:
        given = parse_stream_read({"path": str(small_segments), **options})
        return StreamBatchReader(struct("offset bigint"), given)

    [planned] = made(partitions="1").partitions()
    with Stream.open(small_segments) as writer:
        writer.trim(before_offset=100)
        first = writer.first_offset
    with pytest.raises(DataLost, match=f"offsets 0 to {first - 1} were deleted"):
        list(made().read(planned))
    rows = sum(batch.num_rows for batch in made(failOnDataLoss="false").read(planned))
    assert rows == 200 - first
    assert f"offsets 0 to {first - 1} were deleted" in caplog.text


def test_a_replay_names_the_offsets_deleted_before_it_reads_them(
    small_segments: Path, tmp_path: Path
) -> None:
    place, ranges = (
        destination_of(f"stream:{tmp_path}/out", "", new_owner()),
        [OffsetRange(str(small_segments), 0, 200)],
    )
    with Stream.open(small_segments) as writer:
        writer.trim(before_offset=100)
    with pytest.raises(
        DataLost, match=r"were deleted.*replay the remaining messages under another id"
    ):
        stage_ranges(place, StreamQuery(), ranges)


def test_a_stream_that_was_created_again_needs_a_new_checkpoint(small_segments: Path) -> None:
    with pytest.raises(DataLost, match="is at offset 900, and the stream ends at 200"):
        reading(small_segments).latestOffset({str(small_segments): 900}, ReadAllAvailable())


def test_a_batch_within_the_limit_is_read_completely() -> None:
    assert limit_offsets({"a": 5}, {"a": 25}, 20) == {"a": 25}


def test_every_stream_gets_a_part_in_proportion_to_its_messages() -> None:
    assert limit_offsets({"a": 0, "b": 100}, {"a": 900, "b": 200}, 100) == {"a": 90, "b": 110}


def test_a_limit_is_never_exceeded_and_there_is_always_progress(seed: int) -> None:
    rng = Random(seed)
    for _ in range(500):
        begin = {name: rng.randint(0, 50) for name in "abcd"[: rng.randint(1, 4)]}
        end = {name: offset + rng.choice((0, 1, 7, 1000)) for name, offset in begin.items()}
        most = rng.randint(1, 60)
        found = limit_offsets(begin, end, most)
        assert all(begin[name] <= found[name] <= end[name] for name in begin)
        ahead = sum(end.values()) - sum(begin.values())
        assert sum(found.values()) - sum(begin.values()) == min(most, ahead) or len(begin) > 1
        assert sum(found.values()) - sum(begin.values()) <= most
        assert found != begin or not ahead


def test_all_messages_are_read_with_the_smallest_limit() -> None:
    at, end, steps = {"a": 0, "b": 3}, {"a": 4, "b": 9}, 0
    while at != end:
        at, steps = limit_offsets(at, end, 1), steps + 1
    assert steps == 10


def test_a_message_heavier_than_the_limit_is_read_alone() -> None:
    assert limit_offsets({"a": 0, "b": 0}, {"a": 9, "b": 3}, 10, {"a": 100.0, "b": 50.0}) == {
        "a": 1,
        "b": 0,
    }

"""Consumers of streams whose messages were deleted or are missing: a clear error, or what on_lost and on_corrupt say."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.errors import PositionLost, StreamCorrupt, StreamOptionsError
from headgate.message import Message
from headgate.streams.cold.compaction import compact
from headgate.streams.format import log_path, sealed_path
from headgate.streams.read import consumer as consumer_module
from headgate.streams.stream import Stream


def publish(stream: Stream, *numbers: int) -> None:
    with stream.producer() as producer:
        producer.publish_many([Message(b"%d" % n) for n in numbers])
        producer.flush()


@pytest.fixture
def four_segments(tmp_path: Path) -> Iterator[Stream]:
    """Offsets 0 to 39 in four segments, the last of them hot."""
    with Stream.create(tmp_path / "s") as made:
        for start in (0, 10, 20):
            publish(made, *range(start, start + 10))
            made.seal(all=True)
        publish(made, *range(30, 40))
        yield made


def numbers(messages: object) -> list[int]:
    return [int(message.payload) for message in messages]  # type: ignore[attr-defined]


# ---- lost positions ----------------------------------------------------------------------------------


@pytest.fixture
def shortened(four_segments: Stream) -> Stream:
    """Offsets 20 to 39; two cursors stand outside of them, three inside."""
    cursors = four_segments.cursors()
    for name, position in {"behind": 5, "ahead": 41, "first": 20, "inside": 35, "next": 40}.items():
        cursors.commit(name, position)
    cursors.close()
    four_segments.trim(before_offset=20)
    return four_segments


def test_a_cursor_that_retention_has_overtaken_is_an_error_that_says_what_to_do(
    shortened: Stream,
) -> None:
    with pytest.raises(PositionLost, match=r"'behind' is at offset 5, .*5 to 19.*on_lost=") as lost:
        shortened.consume(cursor="behind")
    assert (lost.value.position, lost.value.first_offset, lost.value.next_offset) == (5, 20, 40)
    assert str(pickle.loads(pickle.dumps(lost.value))) == str(lost.value)


def test_a_cursor_ahead_of_the_log_is_an_error_that_says_what_to_do(shortened: Stream) -> None:
    with pytest.raises(PositionLost, match=r"'ahead' is at offset 41, .*ends at 40.*on_lost="):
        shortened.consume(cursor="ahead", follow=True)


@pytest.mark.parametrize(("cursor", "position"), [("first", 20), ("inside", 35), ("next", 40)])
def test_a_cursor_that_the_stream_has_is_used(
    shortened: Stream, cursor: str, position: int
) -> None:
    with shortened.consume(cursor=cursor) as consumer:
        assert numbers(consumer) == list(range(position, 40))


@pytest.mark.parametrize("lost", ["behind", "ahead"])
@pytest.mark.parametrize(("on_lost", "position"), [("first", 20), ("next", 40)])
def test_on_lost_resets_a_lost_cursor(
    shortened: Stream, lost: str, on_lost: str, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        consumer = shortened.consume(cursor=lost, on_lost=on_lost, follow=True)  # type: ignore[arg-type]
    assert consumer.position == position
    assert f"goes on at offset {position}" in caplog.text
    publish(shortened, 40)
    found = consumer.poll()
    assert found is not None
    assert found.offset == position
    consumer.close()


@pytest.mark.parametrize("start", [5, "5", 41])
def test_an_offset_to_start_at_may_be_lost_too(shortened: Stream, start: int | str) -> None:
    for read in (shortened.consume, shortened.scan):
        with pytest.raises(PositionLost, match=f"is at offset {start}"):
            read(start=start)
        assert read(start=start, on_lost="first").position == 20  # type: ignore[operator]
        assert read(start=start, on_lost="next").position == 40  # type: ignore[operator]


def test_a_consumer_fails_when_retention_overtakes_it(four_segments: Stream) -> None:
    with four_segments.consume() as consumer, four_segments.consume(on_lost="first") as patient:
        assert numbers([next(consumer), next(patient)]) == [0, 0]
        four_segments.trim(before_offset=20)
        seen = []
        with pytest.raises(PositionLost, match="offsets 10 to 19 were deleted"):
            seen += numbers(consumer)
        with pytest.raises(PositionLost):  # raised again at the next call
            next(consumer)
        assert consumer.position == 10
        assert numbers(patient) == [*range(1, 10), *range(20, 40)]
        assert patient.stats.messages_dropped == 10


@pytest.mark.parametrize("wrong", [{"on_lost": "last"}, {"on_corrupt": "ignore"}])
def test_an_unknown_on_lost_or_on_corrupt_is_refused(
    four_segments: Stream, wrong: dict[str, str]
) -> None:
    for read in (four_segments.consume, four_segments.scan):
        with pytest.raises(StreamOptionsError, match=next(iter(wrong))):
            read(**wrong)  # type: ignore[operator]


# ---- missing segments --------------------------------------------------------------------------------


def test_a_consumer_stops_at_a_missing_segment_and_stays_there(four_segments: Stream) -> None:
    sealed_path(four_segments.path, 10).unlink()
    with four_segments.consume(follow=True) as consumer:
        assert [next(consumer).payload for _ in range(10)] == [b"%d" % i for i in range(10)]
        for _ in range(3):
            with pytest.raises(StreamCorrupt, match="offsets 10 to 19 cannot be read"):
                next(consumer)
    with four_segments.consume(on_corrupt="skip", follow=True) as consumer:
        found = [consumer.poll() for _ in range(31)]
        assert [r.offset for r in found if r is not None] == [*range(10), *range(20, 40)]
        assert consumer.stats.messages_lost == 10


@pytest.mark.parametrize("hot", [False, True])
def test_a_gap_behind_the_cold_tier_is_found(four_segments: Stream, hot: bool) -> None:
    compact(four_segments.path, before_offset=10 if not hot else 20, created_us=0)
    missing = 10 if not hot else 20
    sealed_path(four_segments.path, missing).unlink()
    with pytest.raises(StreamCorrupt) as caught:
        list(four_segments.scan())
    assert caught.value.offsets == ((missing, missing + 9),)


def test_the_end_of_a_segment_that_is_cut_off_is_a_gap(tmp_path: Path) -> None:
    with Stream.create(tmp_path / "s", segment_bytes=4096, chunk_messages=2) as stream:
        with stream.producer() as producer:
            for i in range(40):
                producer.publish(Message(b"%0200d" % i))
                producer.flush()
        log = log_path(stream.path, 0)
        log.write_bytes(log.read_bytes()[:-600])
        log.with_suffix(".idx").unlink()
        with pytest.raises(StreamCorrupt, match="are missing; offsets"):
            list(stream.scan())


# ---- batches -----------------------------------------------------------------------------------------


def offsets(batch: pa.RecordBatch) -> list[int]:
    return batch.column("offset").to_pylist()


def payloads(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [int(payload) for batch in batches for payload in batch.column("payload").to_pylist()]


def test_batches_hold_what_the_consumer_would_deliver(four_segments: Stream) -> None:
    with four_segments.consume(start=5) as consumer:
        assert payloads(consumer.batches()) == list(range(5, 40))
        assert (consumer.position, consumer.offset) == (40, 39)
    with four_segments.consume(start=35, follow=True, timeout=timedelta(0)) as consumer:
        assert payloads(consumer.batches()) == list(range(35, 40))


def test_batches_go_on_where_messages_stopped_and_messages_where_batches_did(
    four_segments: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "DECODED_ROWS", 4)
    with four_segments.consume() as consumer:
        assert numbers(islice(consumer, 2)) == [0, 1]
        assert offsets(consumer.next_batch()) == [2, 3]  # decoded, and not yet returned
        assert offsets(consumer.next_batch()) == [4, 5, 6, 7, 8, 9]
        assert numbers(islice(consumer, 1)) == [10]
        assert consumer.offset == 10
        assert payloads(consumer.batches()) == list(range(11, 40))


def test_a_commit_stores_the_position_behind_the_last_batch(four_segments: Stream) -> None:
    with four_segments.consume(cursor="c") as consumer:
        assert offsets(consumer.next_batch()) == list(range(10))
        consumer.commit()
        consumer.next_batch()
    with four_segments.consume(cursor="c") as again:
        assert again.position == 10
        assert payloads(again.batches()) == list(range(10, 40))


def test_no_message_is_decoded_for_batches(
    four_segments: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(consumer_module, "decode_records")
    with four_segments.consume() as consumer:
        assert sum(batch.num_rows for batch in consumer.batches()) == 40


def test_batches_with_a_post_filter_are_refused(four_segments: Stream) -> None:
    with (
        four_segments.consume(post_filter=lambda message: True) as consumer,
        pytest.raises(StreamOptionsError, match="post_filter"),
    ):
        next(consumer.batches())


def test_a_closed_consumer_has_no_batches(four_segments: Stream) -> None:
    consumer = four_segments.consume()
    next(consumer)
    consumer.close()
    assert list(consumer.batches()) == []

"""Consumers: what they return, where they go on, how they wait."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import islice
from pathlib import Path

import pytest

from headgate.errors import PositionLost, StreamClosed, StreamOptionsError
from headgate.message import Message
from headgate.streams.read import consumer as consumer_module
from headgate.streams.stream import Stream

SECONDS = 30  # longer than anything here can take


def publish(stream: Stream, *messages: Message) -> None:
    with stream.producer() as producer:
        for message in messages:
            producer.publish(message)


def numbered(*numbers: int) -> list[Message]:
    return [Message(b"%d" % n, headers={"n": n, "even": n % 2 == 0}) for n in numbers]


@pytest.fixture
def numbered_stream(tmp_path: Path) -> Stream:
    made = Stream.create(tmp_path / "s")
    publish(made, *numbered(*range(10)))
    return made


def payloads(messages: object) -> list[bytes]:
    return [m.payload for m in messages]  # type: ignore[attr-defined]


# ---- seed 002 ----------------------------------------------------------------------------------------


@pytest.fixture(params=["hot", "sealed"])
def regions(request: pytest.FixtureRequest, tmp_path: Path) -> Stream:
    """One AMER, one APAC, two EMEA, then two AMER messages, and two without a filter value."""
    stream = Stream.create(tmp_path / "regions", filter_size=32)
    headers = ["AMER", "APAC", "EMEA", "EMEA", "AMER", "AMER", None, None]
    with stream.producer(filter_value=lambda m: m.headers.get("region")) as producer:
        for i, region in enumerate(headers):
            producer.publish(Message(b"%d" % i, headers={"region": region} if region else {}))
            producer.flush()
    if request.param == "sealed":
        stream.seal(all=True)
    return stream


def test_a_producer_takes_the_filter_value_from_the_message(regions: Stream) -> None:
    found = [m.filter_value for m in regions.consume()]
    assert found == ["AMER", "APAC", "EMEA", "EMEA", "AMER", "AMER", None, None]


def test_filter_values_select_messages_and_skip_chunks_without_them(regions: Stream) -> None:
    consumer = regions.consume(filter_values=["AMER"])
    assert payloads(consumer) == [b"0", b"4", b"5"]
    scan = regions.scan(filter_values=["NOWHERE"])
    assert list(scan) == []
    assert scan.stats.bytes_read < scan.stats.bytes_total


def test_messages_without_a_filter_value_need_match_unfiltered(regions: Stream) -> None:
    assert payloads(regions.consume(filter_values=["APAC"])) == [b"1"]
    found = regions.consume(filter_values=["APAC"], match_unfiltered=True)
    assert payloads(found) == [b"1", b"6", b"7"]


def test_a_post_filter_decides_last(regions: Stream) -> None:
    consumer = regions.consume(
        filter_values=["AMER", "EMEA"], post_filter=lambda m: m.payload in (b"2", b"5")
    )
    assert payloads(consumer) == [b"2", b"5"]
    assert consumer.position == 8


# ---- positions and cursors ---------------------------------------------------------------------------


def test_records_have_offsets(numbered_stream: Stream) -> None:
    assert [r.offset for r in numbered_stream.consume("even").records()] == [0, 2, 4, 6, 8]


def test_the_position_follows_returned_messages_and_not_those_read_ahead(
    numbered_stream: Stream,
) -> None:
    consumer = numbered_stream.consume("even")
    assert payloads(islice(consumer, 2)) == [b"0", b"2"]
    assert (consumer.offset, consumer.position, consumer.lag()) == (2, 3, 7)
    assert payloads(consumer) == [b"4", b"6", b"8"]
    assert (consumer.offset, consumer.position, consumer.lag()) == (8, 10, 0)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_batch_is_decoded_a_few_messages_at_a_time(
    numbered_stream: Stream, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    monkeypatch.setattr(consumer_module, "DECODED_ROWS", 3)
    if sealed:
        numbered_stream.seal(all=True)
    consumer = numbered_stream.consume("n <> 4")
    found = [(consumer.position, consumer.offset) for _ in consumer]
    assert found == [(n + 1, n) for n in range(10) if n != 4]
    assert consumer.position == 10


def test_a_named_consumer_goes_on_where_it_committed(numbered_stream: Stream) -> None:
    with numbered_stream.consume("even", cursor="billing") as first:
        next(first), next(first)
        first.commit()
        next(first)
    with numbered_stream.consume("even", cursor="billing", start="next") as second:
        assert payloads(second) == [b"4", b"6", b"8"]
        second.commit()
    cursor = numbered_stream.cursors().get("billing")
    assert cursor is not None
    assert (cursor.position, numbered_stream.next_offset - cursor.position) == (10, 0)


def test_a_commit_includes_messages_the_filter_rejected(numbered_stream: Stream) -> None:
    with numbered_stream.consume("n > 1000", cursor="quiet") as consumer:
        assert list(consumer) == []
        consumer.commit()
    assert numbered_stream.cursors().get("quiet").position == 10  # type: ignore[union-attr]


def test_a_consumer_without_a_name_cannot_commit(numbered_stream: Stream) -> None:
    with pytest.raises(StreamOptionsError, match="only a consumer with a name"):
        numbered_stream.consume().commit()


def test_a_consumer_without_follow_ends_where_the_stream_ended_when_it_began(
    numbered_stream: Stream,
) -> None:
    consumer = numbered_stream.consume()
    next(consumer)
    publish(numbered_stream, *numbered(10))
    assert len(list(consumer)) == 9


# ---- following ---------------------------------------------------------------------------------------


def test_a_following_consumer_gets_what_this_process_publishes(numbered_stream: Stream) -> None:
    with (
        ThreadPoolExecutor(1) as thread,
        numbered_stream.consume("even", start="next", follow=True) as tail,
    ):
        found = thread.submit(lambda: payloads(islice(tail, 2)))
        publish(numbered_stream, *numbered(11, 12, 13))
        publish(numbered_stream, *numbered(14))
        assert found.result(SECONDS) == [b"12", b"14"]
        assert tail.position == 14


PUBLISH = """
import sys
from headgate.message import Message
from headgate.streams.stream import Stream
with Stream.open(sys.argv[1]) as stream, stream.producer() as producer:
    producer.publish(Message(b"from afar", headers={"even": True}))
"""


def test_a_following_consumer_gets_what_another_process_publishes(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s")
    with ThreadPoolExecutor(1) as thread, stream.consume("even", follow=True) as tail:
        found = thread.submit(lambda: next(tail).payload)
        subprocess.run([sys.executable, "-c", PUBLISH, str(stream.path)], check=True)
        assert found.result(SECONDS) == b"from afar"


def test_a_following_consumer_crosses_segments_while_they_are_sealed(tmp_path: Path) -> None:
    stream = Stream.create(tmp_path / "s", segment_bytes=8192, chunk_messages=5)
    with ThreadPoolExecutor(1) as thread, stream.consume(follow=True) as tail:
        found = thread.submit(lambda: payloads(islice(tail, 600)))
        for i in range(60):
            publish(stream, *numbered(*range(i * 10, i * 10 + 10)))
            if i % 10 == 9:
                stream.seal(all=i % 20 == 9)
        assert found.result(SECONDS) == [b"%d" % i for i in range(600)]


def test_a_following_consumer_ends_after_its_timeout(numbered_stream: Stream) -> None:
    with numbered_stream.consume(follow=True, timeout=timedelta(milliseconds=1)) as tail:
        assert len(list(tail)) == 10
        publish(numbered_stream, *numbered(10))
        assert payloads(tail) == [b"10"]


def test_closing_a_consumer_wakes_the_thread_that_waits(numbered_stream: Stream) -> None:
    tail = numbered_stream.consume(start="next", follow=True)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(lambda: list(tail))
        tail.close()
        tail.close()
        assert waiting.result(SECONDS) == []


def test_a_closed_consumer_returns_no_message(numbered_stream: Stream) -> None:
    consumer = numbered_stream.consume()
    next(consumer)
    consumer.close()
    assert list(consumer) == []
    assert consumer.position == 1


# ---- seeking -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [False, True])
def test_a_consumer_seeks_back_and_forth(numbered_stream: Stream, sealed: bool) -> None:
    if sealed:
        numbered_stream.seal(all=True)
    consumer = numbered_stream.consume("even = TRUE", cursor="billing")
    assert payloads(islice(consumer, 2)) == [b"0", b"2"]
    consumer.seek(5)
    assert (consumer.position, consumer.offset) == (5, None)
    assert payloads(consumer) == [b"6", b"8"]
    consumer.seek("first")
    assert payloads(islice(consumer, 1)) == [b"0"]
    consumer.commit()
    assert numbered_stream.cursors().get("billing").position == 1  # type: ignore[union-attr]
    consumer.seek("last")
    assert list(consumer) == []
    consumer.seek(timedelta(hours=1))
    assert payloads(consumer) == [b"0", b"2", b"4", b"6", b"8"]


def test_a_consumer_of_batches_seeks(numbered_stream: Stream) -> None:
    consumer = numbered_stream.consume()
    assert [b.num_rows for b in consumer.batches()] == [10]
    consumer.seek(7)
    (batch,) = consumer.batches()
    assert batch.column("offset").to_pylist() == [7, 8, 9]


def test_a_following_consumer_seeks_to_the_next_message(numbered_stream: Stream) -> None:
    with numbered_stream.consume(follow=True) as consumer:
        assert next(consumer).payload == b"0"
        consumer.seek("next")
        publish(numbered_stream, *numbered(10))
        assert next(consumer).payload == b"10"


def test_a_consumer_cannot_seek_to_what_is_not_there(numbered_stream: Stream) -> None:
    consumer = numbered_stream.consume()
    assert next(consumer).payload == b"0"
    with pytest.raises(PositionLost):
        consumer.seek(11)
    with pytest.raises(StreamOptionsError, match="cannot start at"):
        consumer.seek("yesterday")
    assert next(consumer).payload == b"1"  # it stays where it was
    consumer.close()
    with pytest.raises(StreamClosed):
        consumer.seek("first")

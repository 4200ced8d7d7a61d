from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.errors import (
    InvalidMessage,
    StreamCorrupt,
    StreamError,
    StreamExists,
    StreamLocked,
    StreamNotFound,
    StreamOptionsError,
)
from headgate.message import Message
from headgate.partitions import murmur3_32, partition_of
from headgate.streams import superstream
from headgate.streams.read.consumer import DECODED_ROWS
from headgate.streams.read.partitioned import SuperConsumer
from headgate.streams.stream import Stream
from headgate.streams.superstream import SuperStream
from headgate.streams.write.lock import is_held

SECONDS = 30

# What RabbitMQ's stream clients answer for three partitions.
RABBITMQ = {
    "hello1": 1, "hello2": 0, "hello3": 1, "hello4": 2, "hello5": 0, "hello6": 2, "hello7": 0, "hello8": 1,
    "hello9": 0, "hello10": 2, "hello88": 1,
}  # fmt: skip


def test_a_key_has_the_partition_that_rabbitmq_gives_it() -> None:
    assert {key: partition_of(key, 3) for key in RABBITMQ} == RABBITMQ


def test_the_hash_is_murmur3() -> None:
    assert murmur3_32(b"", 0) == 0
    assert murmur3_32(b"", 1) == 0x514E28B7
    assert murmur3_32(b"test", 0) == 0xBA6BD213
    assert murmur3_32(b"Hello, world!", 0x9747B28C) == 0x24884CBA


@pytest.fixture
def invoices(tmp_path: Path) -> SuperStream:
    stream = SuperStream.create(tmp_path / "invoices", 3, indexed=["region"])
    with stream.producer("pos") as producer:
        for i in range(20):
            producer.publish(Message(b"%d" % i, headers={"region": "EU", "i": i}, key=f"hello{i}"))
    return stream


def test_messages_are_spread_by_their_key(invoices: SuperStream) -> None:
    assert [s.next_offset for s in invoices.partitions] == [9, 7, 4]


def test_a_super_stream_can_be_opened_again(invoices: SuperStream) -> None:
    invoices.close()
    with SuperStream.open(invoices.path) as again:
        assert len(list(again.consume())) == 20


def test_a_super_consumer_returns_every_message_once_and_each_key_in_order(
    invoices: SuperStream,
) -> None:
    with invoices.consume("i >= 5") as consumer:
        found = [int(m.payload) for m in consumer]
    assert sorted(found) == list(range(5, 20))
    for partition in range(3):
        mine = [i for i in found if partition_of(f"hello{i}", 3) == partition]
        assert mine == sorted(mine)


def test_a_scan_of_a_super_stream_names_the_partition(invoices: SuperStream) -> None:
    scan = invoices.scan("region = 'EU'")
    rows = [row for batch in scan for row in batch.to_pylist()]
    assert len(rows) == scan.stats.rows_matched == 20
    assert all(row["partition"] == partition_of(row["key"], 3) for row in rows)


def test_a_named_consumer_has_a_cursor_in_every_partition(invoices: SuperStream) -> None:
    with invoices.consume(cursor="c") as consumer:
        for _ in range(5):
            next(consumer)
        consumer.commit()
        assert consumer.lag() == 15
    with invoices.consume(cursor="c") as consumer:
        assert len(list(consumer)) == 15


def test_a_following_super_consumer_wakes_for_any_partition(invoices: SuperStream) -> None:
    with ThreadPoolExecutor(1) as thread, invoices.consume(start="next", follow=True) as tail:
        found = thread.submit(lambda: [next(tail).payload for _ in range(3)])
        with invoices.producer() as producer:
            for key in ("hello1", "hello2", "hello4"):
                producer.publish(Message(key.encode(), key=key))
        assert sorted(found.result(SECONDS)) == [b"hello1", b"hello2", b"hello4"]


def test_a_following_consumer_ends_after_its_timeout(invoices: SuperStream) -> None:
    with invoices.consume(follow=True, timeout=timedelta(milliseconds=1)) as tail:
        assert len(list(tail)) == 20


def test_routing_may_use_any_field_of_a_message(tmp_path: Path) -> None:
    with (
        SuperStream.create(tmp_path / "s", 3) as stream,
        stream.producer(routing=lambda m: m.id) as producer,
    ):
        producer.publish(Message(b"", id="hello4"))
        producer.flush()
        assert [s.next_offset for s in stream.partitions] == [0, 0, 1]


def test_a_payload_is_published_with_its_key(tmp_path: Path) -> None:
    with SuperStream.create(tmp_path / "s", 3) as stream, stream.producer() as producer:
        producer.publish(b"payload", key="hello4", topic="t")
        producer.flush()
        assert [m.key for m in stream.partitions[2].consume()] == ["hello4"]


def test_a_message_without_a_key_is_refused(invoices: SuperStream) -> None:
    with invoices.producer() as producer, pytest.raises(InvalidMessage, match="routing="):
        producer.publish(Message(b""))


def test_sealing_seals_every_partition(invoices: SuperStream) -> None:
    assert len(invoices.seal(all=True)) == 3
    assert len(list(invoices.consume())) == 20


def test_a_stream_opened_as_a_super_stream_and_the_reverse_say_what_is_there(
    invoices: SuperStream, tmp_path: Path
) -> None:
    with pytest.raises(StreamNotFound, match="but a super stream: use SuperStream"):
        Stream.open(invoices.path)
    Stream.create(tmp_path / "plain").close()
    with pytest.raises(StreamNotFound, match="it is a stream: use Stream"):
        SuperStream.open(tmp_path / "plain")


def test_a_missing_or_existing_super_stream_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StreamNotFound, match="no super stream"):
        SuperStream.open(tmp_path)
    SuperStream.create(tmp_path / "s", 1).close()
    with pytest.raises(StreamExists):
        SuperStream.create(tmp_path / "s", 1)
    with pytest.raises(StreamError, match="1 to 1024"):
        SuperStream.create(tmp_path / "t", 0)


def test_a_scan_raises_damage_again_instead_of_ending(invoices: SuperStream) -> None:
    invoices.seal(all=True)
    invoices.close()
    sealed = next(invoices.partitions[0].path.glob("*.arrow"))
    content = bytearray(sealed.read_bytes())
    content[len(content) // 3] ^= 1
    sealed.write_bytes(content)
    scan = SuperStream.open(invoices.path).scan()
    for _ in range(2):
        with pytest.raises(StreamCorrupt):
            next(scan)


def test_a_producer_refused_by_one_partition_is_closed_in_the_others(
    invoices: SuperStream,
) -> None:
    invoices.close()
    other, again = Stream.open(invoices.partitions[2].path), SuperStream.open(invoices.path)
    with again:
        with other, other.producer(), pytest.raises(StreamLocked):
            again.producer("pos")
        again.producer("pos")


def test_every_partition_is_closed_even_if_closing_one_fails(
    invoices: SuperStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise StreamError("the disk is full")

    monkeypatch.setattr(invoices.partitions[1], "close", fail)
    with pytest.raises(StreamError, match="the disk is full"):
        invoices.close()
    assert not is_held(invoices.partitions[0].path)
    assert not is_held(invoices.partitions[2].path)
    monkeypatch.undo()
    invoices.close()


@pytest.mark.parametrize("name", ["super.json", "super.json.copy"])
def test_the_next_producer_rewrites_a_damaged_record(invoices: SuperStream, name: str) -> None:
    invoices.close()
    record = invoices.path / name
    sound = record.read_bytes()
    record.write_bytes(sound.replace(b'": 3', b'": 2'))
    with SuperStream.open(invoices.path) as again:
        again.producer()
    assert record.read_bytes() == sound


class Killed(BaseException):
    """Takes the place of a kill."""


@pytest.mark.parametrize("after", range(4))
def test_an_interrupted_creation_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    real, calls = Stream.create, count()

    def interrupted(path: Path, **fields: Any) -> Stream:
        if next(calls) == after:
            raise Killed
        return real(path, **fields)

    with monkeypatch.context() as patch:
        patch.setattr(Stream, "create", interrupted)
        with pytest.raises(Killed):
            SuperStream.create(tmp_path / "s", 4, indexed=["region"])
    with pytest.raises(StreamNotFound):
        SuperStream.open(tmp_path / "s")
    # With other options, and fewer partitions.
    with SuperStream.create(tmp_path / "s", 2, indexed=["kind"]) as parts:
        assert [stream.options.indexed for stream in parts.partitions] == [("kind",)] * 2
        with parts.producer() as producer:
            producer.publish(b"x", key="a")
    assert sorted(path.name for path in (tmp_path / "s").glob("partition-*")) == [
        "partition-0",
        "partition-1",
    ]


def test_partitions_that_hold_messages_are_not_taken_over(tmp_path: Path) -> None:
    with Stream.create(tmp_path / "s" / "partition-3") as stream, stream.producer() as producer:
        producer.publish(b"x")
    with pytest.raises(StreamExists, match="partition-3 holds messages"):
        SuperStream.create(tmp_path / "s", 2)
    assert not (tmp_path / "s" / "partition-0").exists()


def test_other_files_beside_partitions_are_kept(tmp_path: Path) -> None:
    (tmp_path / "s" / "partition-7").mkdir(parents=True)
    (tmp_path / "s" / "partition-7" / "letter.txt").write_text("dear")
    SuperStream.create(tmp_path / "s", 2).close()
    SuperStream.delete(tmp_path / "s")
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["partition-7"]
    assert (tmp_path / "s" / "partition-7" / "letter.txt").read_text() == "dear"


def test_a_deleted_super_stream_leaves_nothing(invoices: SuperStream) -> None:
    invoices.close()
    SuperStream.delete(invoices.path)
    assert not invoices.path.exists()
    with pytest.raises(StreamNotFound):
        SuperStream.delete(invoices.path)
    SuperStream.create(invoices.path, 2).close()


def test_a_super_stream_that_is_being_written_is_not_deleted(invoices: SuperStream) -> None:
    with invoices.partitions[2].producer(), pytest.raises(StreamLocked):
        SuperStream.delete(invoices.path)
    assert sum(1 for _ in invoices.consume()) == 20


def test_an_interrupted_deletion_is_made_again(
    invoices: SuperStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoices.close()
    real, calls = superstream.delete_files, count()

    def interrupted(path: Path) -> None:
        if next(calls) == 1:
            raise Killed
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(superstream, "delete_files", interrupted)
        with pytest.raises(Killed):
            SuperStream.delete(invoices.path)
    SuperStream.delete(invoices.path)
    assert not invoices.path.exists()


def test_trimming_is_that_of_every_partition(tmp_path: Path) -> None:
    with SuperStream.create(tmp_path / "s", 2, segment_bytes=4096) as parts:
        with parts.producer() as producer:
            for i in range(20):
                producer.publish(bytes(3000), key=str(i))
                producer.flush()
        deleted = parts.trim(max_bytes=1)
        assert sum(info.next_offset - info.first_offset for info in deleted) == 18
        assert [s.next_offset - s.first_offset for s in parts.partitions] == [1, 1]
        with pytest.raises(StreamOptionsError, match="max_age: give a timedelta"):
            parts.trim(max_age=7)


def test_cursors_have_a_position_in_every_partition(invoices: SuperStream) -> None:
    assert invoices.cursors().list() == []
    with invoices.consume(cursor="billing") as consumer:
        for _ in range(10):
            next(consumer)
        consumer.commit()
    with invoices.partitions[0].consume(cursor="audit") as consumer:
        next(consumer)
        consumer.commit()
    cursors = invoices.cursors()
    audit, billing = cursors.list()
    assert (audit.name, audit.positions) == ("audit", (1, None, None))
    assert sum(position or 0 for position in billing.positions) >= 10
    assert cursors.get("billing") == billing
    assert cursors.get("nobody") is None
    assert cursors.delete("audit")
    assert not cursors.delete("audit")
    assert [cursor.name for cursor in cursors.list()] == ["billing"]
    cursors.close()


def test_many_messages_are_published_at_once(tmp_path: Path) -> None:
    messages = [Message(b"%d" % i, key=f"hello{i}") for i in range(20)]
    with SuperStream.create(tmp_path / "s", 3) as parts, parts.producer("pos") as producer:
        assert producer.publish_many(messages) == 20
        with pytest.raises(InvalidMessage, match="key"):
            producer.publish_many([Message(b"", key="a"), b"without a key"])
        with pytest.raises(InvalidMessage, match="topic"):
            producer.publish_many([Message(b"", key="a"), Message(b"", key="b", topic=None)])  # type: ignore[arg-type]
        producer.flush()
        assert [stream.next_offset for stream in parts.partitions] == [9, 7, 4]


def test_a_consumer_seeks_in_all_partitions_or_in_one(invoices: SuperStream) -> None:
    consumer = invoices.consume()
    everything = sorted(message.payload for message in consumer)
    consumer.seek("first")
    assert sorted(message.payload for message in consumer) == everything
    with pytest.raises(StreamOptionsError, match="give partition="):
        consumer.seek(3)
    consumer.seek(3, partition=2)
    assert [consumer.next_record()[:2] for _ in range(1)] == [(2, 3)]
    assert list(consumer) == []


def test_a_reader_numbers_the_partitions(invoices: SuperStream) -> None:
    table = pa.table(invoices.scan("i < 10"))
    assert table.schema.names[:3] == ["partition", "offset", "timestamp"]
    rows = table.select(["partition", "key", "i"]).to_pylist()
    assert sorted(row["i"] for row in rows) == list(range(10))
    assert all(partition_of(row["key"], 3) == row["partition"] for row in rows)
    table = invoices.scan(columns=["h.i.i"]).to_reader().read_all()
    assert table.schema.names == ["partition", "offset", "h.i.i"]


# ---- idle partitions ---------------------------------------------------------------------------------


def key_in(partition: int, partitions: int) -> str:
    return next(key for key in map(str, count()) if partition_of(key, partitions) == partition)


def count_polls(consumer: SuperConsumer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often each partition is asked for more from now on."""
    polls = [0] * len(consumer.consumers)

    def counting(i: int, real: Callable[[], object]) -> Callable[[], object]:
        def poll() -> object:
            polls[i] += 1
            return real()

        return poll

    for i, part in enumerate(consumer.consumers):
        monkeypatch.setattr(part, "poll", counting(i, part.poll))
    return polls


def test_idle_partitions_are_not_asked_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SuperStream.create(tmp_path / "s", 8, fsync="never") as stream:
        consumer = stream.consume(follow=True)
        with stream.producer() as producer:
            while consumer.poll() or consumer._tail.look() != set():
                pass  # the logs that the producers began
            polls = count_polls(consumer, monkeypatch)
            for i in range(20):
                producer.publish(b"%d" % i, key=key_in(3, 8))
                producer.producers[3].flush()
                assert next(consumer).payload == b"%d" % i
        busy = polls.pop(3)
        assert busy >= 20
        assert polls == [0] * 7
        consumer.close()


def test_a_partition_that_wakes_gets_its_turn_while_another_is_busy(tmp_path: Path) -> None:
    with SuperStream.create(tmp_path / "s", 4, fsync="never") as stream:
        consumer = stream.consume(follow=True)
        with stream.producer() as producer:
            busy = [Message(b"busy", key=key_in(0, 4))] * 5000
            producer.producers[0].publish_many(busy)
            producer.flush()
            assert next(consumer).payload == b"busy"
            producer.publish(b"late", key=key_in(2, 4))
            producer.flush()
            seen = [next(consumer).payload for _ in range(2 * DECODED_ROWS)]
            assert b"late" in seen
            assert consumer.partition in (0, 2)
        consumer.close()


def test_only_positions_that_moved_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SuperStream.create(tmp_path / "s", 4, fsync="never") as stream:
        consumer = stream.consume(cursor="c", follow=True)
        committed: list[int] = []
        for i, part in enumerate(consumer.consumers):
            real = part.commit
            monkeypatch.setattr(
                part, "commit", lambda i=i, real=real: committed.append(i) or real()
            )
        consumer.commit()
        assert committed == [0, 1, 2, 3]
        with stream.producer() as producer:
            producer.publish(b"x", key=key_in(1, 4))
            producer.flush()
        next(consumer)
        consumer.commit()
        assert committed[4:] == [1]
        assert stream.partitions[1].cursors().get("c").position == 1  # type: ignore[union-attr]
        consumer.close()

"""Adoption: outsiders append through the inbox, once, in order, as a whole."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.errors import InvalidMessage
from headgate.message import Message
from headgate.streams.format import INBOX
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import verify
from headgate.streams.write.inbox import deposit_path, deposits, write_deposit
from tests.unit.streams.write.inboxes import adopt_deposits, payloads


def table(*payloads):
    return pa.table({"payload": list(payloads)})


def test_a_deposit_is_stored_at_once_when_there_is_no_writer(path):
    with Stream.open(path) as stream:
        assert stream.deposit("spark", 0, table(b"a", b"b"))
    assert payloads(path) == [b"a", b"b"]
    assert deposits(path) == []


def test_a_deposit_made_twice_is_stored_once(path):
    with Stream.open(path) as stream:
        for _ in range(2):
            stream.deposit("spark", 7, table(b"a"))
        stream.deposit("spark", 6, table(b"older"))
        stream.deposit("spark", 8, table(b"b"))
        stream.deposit("other", 7, table(b"c"))
    assert payloads(path) == [b"a", b"b", b"c"]


def test_the_lock_holder_adopts_deposits_of_other_processes(path):
    with Stream.open(path) as holder, holder.producer("busy") as producer:
        producer.publish(Message(b"mine"))
        producer.flush()
        with Stream.open(path) as outsider:
            assert not outsider.deposit("spark", 1, table(b"theirs"))
        consumer = holder.consume(follow=True)
        assert [next(consumer).payload for _ in range(2)] == [b"mine", b"theirs"]
        consumer.close()


def test_a_deposit_made_while_the_lock_holder_closes_is_adopted(path):
    holder = Stream.open(path)
    producer = holder.producer()
    close_writer = holder._writer.close
    outsider = Stream.open(path)

    def close_late():
        assert not outsider.deposit(
            "spark", 1, table(b"late")
        )  # refused the lock, so it relies on the holder
        close_writer()

    holder._committer.close()
    holder._writer.close = close_late
    producer.publish(Message(b"mine"))
    holder.close()
    assert payloads(path) == [b"mine", b"late"]


def test_deposits_are_adopted_in_the_order_of_their_ids(path):
    for publishing_id in (11, 2, 1, 100):
        write_deposit(path, "p", publishing_id, table(b"%d" % publishing_id).to_batches())
    assert adopt_deposits(path) == 4
    assert payloads(path) == [b"1", b"2", b"11", b"100"]


def test_a_producer_name_may_hold_characters_that_no_file_name_can(path):
    name = "a/b-../é %-1"
    with Stream.open(path) as stream:
        stream.deposit(name, 3, table(b"x"))
        with stream.producer(name) as producer:
            assert producer.last_publishing_id == 3


def test_a_deposit_of_many_chunks_is_one_append(path):
    with Stream.open(path) as stream:
        stream.deposit("p", 0, pa.table({"n": range(1000)}))
        assert stream.next_offset == 1000
        assert [m.headers["n"] for m in stream.consume()] == list(range(1000))
        with stream.producer("p") as producer:
            assert producer.last_publishing_id == 0


def test_an_empty_deposit_stores_no_message_and_leaves_no_file(path):
    with Stream.open(path) as stream:
        assert stream.deposit("p", 0, pa.table({"n": pa.array([], pa.int64())}))
        assert stream.next_offset == 0
    assert deposits(path) == []


def test_an_invalid_table_is_refused_before_it_is_deposited(path):
    with Stream.open(path) as stream, pytest.raises(InvalidMessage):
        stream.deposit("p", 0, pa.table({"x": [float("nan")]}))
    assert list((path / INBOX).iterdir()) == []


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_deposit_is_rejected_and_the_others_are_adopted(path, damage):
    bad = write_deposit(path, "p", 1, table(b"bad").to_batches())
    write_deposit(path, "p", 2, table(b"good").to_batches())
    content = bytearray(bad.read_bytes())
    content[len(content) // 2] ^= 1
    bad.write_bytes({"flip": bytes(content), "cut": bytes(content[:-5]), "empty": b""}[damage])
    adopt_deposits(path)
    assert payloads(path) == [b"good"]
    assert deposits(path) == []
    aside = bad.with_name(bad.name + ".rejected")
    assert aside.exists()
    assert [problem.file for problem in verify(path).problems] == [str(aside)]


def test_an_unfinished_file_is_not_adopted(path):
    (path / INBOX / ".abc.new").write_bytes(b"half")
    (path / INBOX / "notes.txt").write_text("hello")
    assert deposits(path) == []
    assert adopt_deposits(path) == 0


def test_an_abandoned_file_is_removed(path):
    old, new = (path / INBOX / name for name in (".old.new", ".new.new"))
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    adopt_deposits(path)
    assert not old.exists()
    assert new.exists()


def test_the_name_of_a_deposit_holds_producer_and_publishing_id(path):
    assert deposit_path(path, "pos-1", 5).name == "pos-1-00000000000000000005"


def test_a_writer_starts_although_an_unfinished_deposit_is_renamed_meanwhile(path, monkeypatch):
    listed = [path / INBOX / ".gone.new"]  # and renamed since
    monkeypatch.setattr(Path, "glob", lambda directory, pattern: iter(listed))
    assert adopt_deposits(path) == 0

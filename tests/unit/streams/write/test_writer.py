"""The writer: group commit, fsync, and a disk that refuses."""

import errno
import os
import resource
import shutil
import threading
from contextlib import contextmanager
from datetime import timedelta

import pyarrow as pa
import pytest

from headgate import files
from headgate.errors import StreamWriteError
from headgate.message import Message
from headgate.streams.format import index_path, log_path
from headgate.streams.segments import hot_log as log
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import verify
from headgate.streams.write import writer

LATER = timedelta(hours=1)


@contextmanager
def files_at_most(nbytes):
    """No file can grow past that: what a full disk does, for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def syncs(monkeypatch):
    """How often the log was made durable."""
    calls = []
    real = os.fdatasync

    def counted(fd):
        calls.append(os.fstat(fd).st_size)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", counted)
    return calls


def payloads(stream):
    return [message.payload for message in stream.consume()]


# ---- a full disk -------------------------------------------------------------------------------------


def test_a_full_disk_is_a_clear_error_and_the_writer_goes_on_when_there_is_room(tmp_path):
    with Stream.create(tmp_path / "s", linger=LATER) as stream:
        producer = stream.producer("p")
        producer.publish(Message(b"confirmed"))
        producer.flush()
        size = log_path(stream.path, 0).stat().st_size
        with files_at_most(size + 1000):
            producer.publish(Message(b"x" * 5000))
            with pytest.raises(
                StreamWriteError, match=r"File too large; nothing that was confirmed is lost"
            ):
                producer.flush()
            assert payloads(stream) == [b"confirmed"]
            assert log_path(stream.path, 0).stat().st_size == size
            assert verify(stream.path).fine
            with pytest.raises(StreamWriteError):
                producer.flush()  # and again, as long as it is full
        producer.flush()
        assert payloads(stream) == [b"confirmed", b"x" * 5000]
        assert producer.confirmed_publishing_id == 1


def test_no_more_than_one_chunk_is_accepted_while_the_disk_is_full(tmp_path):
    with Stream.create(tmp_path / "s", linger=LATER, chunk_messages=3) as stream:
        producer = stream.producer("p")
        with files_at_most(200):
            for i in range(3):
                producer.publish(Message(b"%d" % i + b"x" * 300))
            with pytest.raises(StreamWriteError):
                producer.publish(Message(b"refused"), publishing_id=99)
            assert producer.last_publishing_id == 2
            with pytest.raises(StreamWriteError):
                producer.publish_many([Message(b"refused")] * 5)
        producer.publish(Message(b"then"))
        producer.flush()
        assert [p[:1] for p in payloads(stream)] == [b"0", b"1", b"2", b"t"]


@pytest.mark.parametrize("name", [None, "p"])
def test_accepted_messages_wait_until_there_is_room(tmp_path, name):
    with Stream.create(
        tmp_path / "s", linger=LATER, chunk_messages=10, segment_bytes=8192
    ) as stream:
        producer = stream.producer(name)
        messages = [Message(b"%03d" % i + b"x" * 100) for i in range(100)]
        with files_at_most(6000):
            assert producer.publish_many(messages) == 100
            with pytest.raises(StreamWriteError):
                producer.flush()
            assert payloads(stream) == [m.payload for m in messages[: stream.next_offset]]
        producer.flush()
        assert payloads(stream) == [m.payload for m in messages]
        assert verify(stream.path).fine


def test_a_chunk_is_rolled_back_when_its_index_cannot_grow(tmp_path):
    with Stream.create(tmp_path / "s", linger=LATER, indexed=["a"], filter_size=4096) as stream:
        producer = stream.producer()
        producer.publish(Message(b"1"))
        producer.flush()
        sizes = [path(stream.path, 0).stat().st_size for path in (log_path, index_path)]
        with files_at_most(sizes[1] + 1000):
            producer.publish(Message(b"2"))
            with pytest.raises(StreamWriteError):
                producer.flush()
            assert [path(stream.path, 0).stat().st_size for path in (log_path, index_path)] == sizes
            assert verify(stream.path).fine
        producer.flush()
        assert payloads(stream) == [b"1", b"2"]


def test_a_table_that_does_not_fit_is_not_stored_in_part(tmp_path):
    with Stream.create(tmp_path / "s", chunk_messages=10) as stream:
        stream.append(pa.table({"n": range(10)}))
        with files_at_most(20_000), pytest.raises(StreamWriteError):
            stream.append(pa.table({"n": range(100_000)}))
        assert stream.next_offset == 10
        assert verify(stream.path).fine
        stream.append(pa.table({"n": range(10)}))
        assert stream.next_offset == 20


def test_a_segment_that_cannot_be_created_is_created_later(tmp_path):
    with Stream.create(tmp_path / "s", linger=LATER, segment_bytes=4096, fsync="never") as stream:
        producer = stream.producer()
        producer.publish(Message(b"x" * 4000))
        producer.flush()
        with files_at_most(10):
            producer.publish(Message(b"next"))
            with pytest.raises(StreamWriteError):
                producer.flush()
            assert stream.next_offset == 1
        producer.flush()
        assert stream.next_offset == 2
        assert verify(stream.path).fine


def test_closing_on_a_full_disk_raises_and_releases_the_lock(tmp_path):
    stream = Stream.create(tmp_path / "s", linger=LATER)
    producer = stream.producer()
    with files_at_most(200):
        producer.publish(Message(b"x" * 5000))
        with pytest.raises(StreamWriteError):
            stream.close()
    with Stream.open(tmp_path / "s") as again, again.producer() as other:
        other.publish(Message(b"fine"))
    assert payloads(Stream.open(tmp_path / "s")) == [b"fine"]


def test_a_writer_confirms_nothing_after_a_failed_sync(tmp_path, monkeypatch):
    stream = Stream.create(tmp_path / "s", linger=LATER, fsync_interval=LATER)
    producer = stream.producer()
    producer.publish(Message(b"1"))
    producer.flush()

    def refuse(fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(StreamWriteError):
        stream._writer.sync()
    with pytest.raises(StreamWriteError, match="Input/output error"):
        producer.publish(Message(b"2"))
    monkeypatch.undo()
    with pytest.raises(StreamWriteError):
        stream.close()
    with Stream.open(tmp_path / "s") as again, again.producer() as other:
        other.publish(Message(b"3"))
    assert payloads(Stream.open(tmp_path / "s")) == [b"1", b"3"]


def test_a_writer_confirms_nothing_after_a_sync_that_failed_at_a_roll(tmp_path, monkeypatch):
    stream = Stream.create(tmp_path / "s", linger=LATER, fsync_interval=LATER)
    producer = stream.producer()
    producer.publish(Message(b"1"))
    producer.flush()

    def refuse(fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(StreamWriteError):
        stream.seal(all=True)
    monkeypatch.undo()  # the kernel says so once, and has forgotten what it could not write
    with pytest.raises(StreamWriteError, match="Input/output error"):
        stream.seal(all=True)
    with pytest.raises(StreamWriteError):
        stream.close()


# ---- fsync -------------------------------------------------------------------------------------------


def test_with_fsync_always_a_chunk_is_durable_before_readers_see_it(tmp_path, syncs):
    with Stream.create(tmp_path / "s", linger=LATER, fsync="always") as stream:
        producer = stream.producer()
        producer.publish(Message(b"1"))
        before = len(syncs)
        producer.flush()
        assert len(syncs) == before + 1
        assert syncs[-1] == log_path(stream.path, 0).stat().st_size


def test_threads_that_flush_share_one_sync(tmp_path, monkeypatch):
    """While one waits for the disk the others gather, and the next sync serves them all."""
    with Stream.create(tmp_path / "s", linger=LATER, fsync="always") as stream:
        producer = stream.producer()
        begun, go_on, calls = threading.Event(), threading.Event(), []
        real = os.fdatasync

        def slow(fd):
            calls.append(fd)
            begun.set()
            assert go_on.wait(20)
            real(fd)

        monkeypatch.setattr(os, "fdatasync", slow)
        arrived = threading.Barrier(9)

        def publish():
            producer.publish(Message(b"x"))
            arrived.wait(20)
            producer.flush()

        producer.publish(Message(b"first"))
        first = threading.Thread(target=producer.flush)
        first.start()
        assert begun.wait(20)
        others = [threading.Thread(target=publish) for _ in range(8)]
        for thread in others:
            thread.start()
        arrived.wait(20)  # all have sent, though the first still waits for the disk
        go_on.set()
        for thread in [first, *others]:
            thread.join()
        assert len(calls) == 2
        assert len(payloads(stream)) == 9
        monkeypatch.undo()


def test_with_fsync_interval_a_message_is_confirmed_before_it_is_synced_by_the_clock(
    tmp_path, monkeypatch
):
    synced = threading.Event()
    real = os.fdatasync

    def noted(fd):
        real(fd)
        synced.set()

    monkeypatch.setattr(os, "fdatasync", noted)
    interval = timedelta(milliseconds=5)
    with Stream.create(tmp_path / "s", linger=timedelta(0), fsync_interval=interval) as stream:
        stream.producer().publish(Message(b"1"))
        assert synced.wait(20)
    with Stream.create(tmp_path / "t", linger=LATER, fsync_interval=LATER) as stream:
        producer = stream.producer()
        producer.publish(Message(b"1"))
        synced.clear()
        producer.flush()
        assert payloads(stream) == [b"1"]
        assert not synced.is_set()


def test_with_fsync_interval_a_writer_syncs_the_messages_of_a_killed_one(tmp_path, monkeypatch):
    path, copy = tmp_path / "s", tmp_path / "copy"
    with Stream.create(path, linger=LATER, fsync_interval=LATER) as stream:
        producer = stream.producer()
        producer.publish(Message(b"1"))
        producer.flush()
        shutil.copytree(path, copy)  # as if the writer were killed now
    synced, real = threading.Event(), os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (real(fd), synced.set()))
    with Stream.open(copy) as again:
        again.reconfigure(fsync_interval=timedelta(milliseconds=5))
        again.producer()
        assert synced.wait(20)
        assert payloads(again) == [b"1"]


def test_with_fsync_never_a_writer_never_syncs(tmp_path, syncs):
    stream = Stream.create(tmp_path / "s", fsync="never", segment_bytes=4096)
    with stream, stream.producer() as producer:
        for _ in range(10):
            producer.publish(Message(b"x" * 1000))
            producer.flush()
    assert syncs == []


@pytest.mark.parametrize("fsync", ["never", "interval", "always"])
def test_a_deposit_is_durable_before_readers_see_it_and_before_its_file_is_removed(
    tmp_path, syncs, monkeypatch, fsync
):
    with Stream.create(tmp_path / "s", fsync=fsync, linger=LATER, fsync_interval=LATER) as stream:
        durable, commit = [], log.HotLog.commit

        def look_and_commit(self):
            durable.append(self.end in syncs and list((stream.path / "inbox").iterdir()) != [])
            commit(self)

        monkeypatch.setattr(log.HotLog, "commit", look_and_commit)
        assert stream.deposit("d", 0, pa.table({"payload": [b"alone"]}))  # there is no writer
        with stream.producer() as producer:
            producer.publish(Message(b"before"))
            assert stream.deposit("d", 1, pa.table({"payload": [b"beside a producer"]}))
        assert durable == [True, fsync == "always", True]
        assert payloads(stream) == [b"alone", b"before", b"beside a producer"]


def test_a_deposit_that_recovery_finds_in_the_log_is_durable_before_its_file_is_removed(
    tmp_path, monkeypatch
):
    with Stream.create(tmp_path / "s", fsync="never") as stream:
        stream.deposit("d", 0, pa.table({"payload": [b"a"]}))
    index_path(stream.path, 0).unlink()  # as if it was killed between the append and the commit
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), real(fd)))
    with Stream.open(stream.path) as again:
        assert again.deposit("d", 0, pa.table({"payload": [b"a"]}))
        assert log_path(stream.path, 0).stat().st_ino in synced
        assert payloads(again) == [b"a"]


def test_the_directory_is_synced_after_a_file_was_created(tmp_path, monkeypatch):
    synced = []
    real = files.sync_directory
    monkeypatch.setattr(files, "sync_directory", lambda d: (synced.append(d), real(d))[1])
    log.create_hot_log(
        tmp_path, 0, writer.IndexShape.of(Stream.create(tmp_path / "s").options), {}, 0
    ).close()
    assert synced.count(tmp_path) == 1  # after both were renamed; an index is made again if need be

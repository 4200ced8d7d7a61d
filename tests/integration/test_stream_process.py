"""Producers and the life of their process: it ends without closing them, or forks while they are open."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from datetime import timedelta
from pathlib import Path

import pytest

from headgate.errors import StreamClosed, StreamLocked
from headgate.message import Message
from headgate.streams.stream import Stream
from headgate.streams.write.lock import WriterLock
from tests.forked import in_child

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
LATER = timedelta(hours=1)
_PREPARED = """
    import atexit, multiprocessing, sys, threading
    from datetime import timedelta
    from headgate import Message, Stream

    def publish(number=100, name=None):
        stream = Stream.open(sys.argv[1])
        producer = stream.producer(name)
        for i in range(number):
            producer.publish(Message(b"%d" % i))
        return stream, producer
"""


def run(path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script to its end, on a stream that commits nothing by itself."""
    Stream.create(path, linger=LATER).close()
    text = textwrap.dedent(_PREPARED) + textwrap.dedent(script)
    command = [sys.executable, "-c", text, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def payloads(path: Path) -> list[bytes]:
    return [message.payload for message in Stream.open(path).consume()]


# ---- the end -----------------------------------------------------------------------------------------

ENDS = {
    "its end": ("kept = publish()", 0),
    "its end, with nothing kept": ("publish()", 0),
    "an exception": ("kept = publish()\nraise RuntimeError('over')", 1),
    "sys.exit": ("kept = publish(name='p')\nsys.exit(3)", 3),
    "a thread": ("threading.Thread(target=publish).start()", 0),
    "a handler of atexit": ("atexit.register(lambda: publish()[1].flush())", 0),
    "a forked process": (
        "p = multiprocessing.get_context('fork').Process(target=publish); p.start(); p.join()",
        0,
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_script_that_ends_without_close_stores_its_messages(tmp_path: Path, end: str) -> None:
    script, status = ENDS[end]
    done = run(tmp_path / "s", script)
    assert done.returncode == status, done.stderr
    assert payloads(tmp_path / "s") == [b"%d" % i for i in range(100)]
    assert "Exception ignored" not in done.stderr


def test_messages_that_cannot_be_stored_at_the_end_of_a_process_are_logged(tmp_path: Path) -> None:
    script = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        kept = publish(1000)
    """
    done = run(tmp_path / "s", script)
    assert "1000 published messages are not stored, the process ends" in done.stderr
    assert "File too large" in done.stderr


def test_close_stores_the_other_messages_when_one_is_refused(
    tmp_path: Path,
) -> None:
    stream = Stream.create(tmp_path / "s", linger=LATER)
    producer = stream.producer()
    bad = Message(b"bad", headers={"a": 1})
    for message in (Message(b"1"), bad, Message(b"2")):
        producer.publish(message)
    bad.headers["a"] = 2**70  # type: ignore[index]
    assert stream._writer is not None
    with pytest.raises(Exception, match="header 'a'"):
        stream._writer.close()
    assert payloads(stream.path) == [b"1", b"2"]
    stream.close()


# ---- fork --------------------------------------------------------------------------------------------


def test_an_inherited_producer_refuses_to_publish_and_to_flush_and_says_why(stream: Stream) -> None:
    with stream, stream.producer("p") as producer, stream.producer() as unnamed:
        unnamed.publish(Message(b"a"))
        for refused in (
            lambda: producer.publish(Message(b"x")),
            lambda: unnamed.publish(Message(b"x")),
            lambda: unnamed.publish_many([Message(b"x")] * 5000),
            unnamed.flush,
        ):
            answer = in_child(refused)
            assert answer.startswith(StreamClosed.__name__)
            assert f"belongs to process {os.getpid()}" in answer
            assert "open the stream again here" in answer
        unnamed.publish(Message(b"b"))
    assert payloads(stream.path) == [b"a", b"b"]


def test_a_child_may_close_an_inherited_stream_and_its_parent_writes_on(stream: Stream) -> None:
    producer = stream.producer()
    producer.publish(Message(b"a"))
    assert in_child(lambda: (producer.close(), stream.close())) == "(None, None)"
    with pytest.raises(StreamLocked):
        WriterLock(stream.path, "test")
    producer.publish(Message(b"b"))
    stream.close()
    assert payloads(stream.path) == [b"a", b"b"]


def test_a_child_that_inherited_a_stream_reads_it_and_is_refused_its_lock(stream: Stream) -> None:
    with stream, stream.producer() as producer:
        producer.publish(Message(b"a"))
        producer.flush()
        assert in_child(lambda: [m.payload for m in stream.consume()]) == "[b'a']"
        assert in_child(stream.producer).startswith("StreamLocked")


def test_a_lock_ends_with_close_although_a_forked_child_lives_on(stream: Stream) -> None:
    stream.producer()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)  # until the parent is done
        os._exit(0)
    try:
        os.close(read)
        stream.close()
        with WriterLock(stream.path, "test"):
            pass
    finally:
        os.close(write)
        os.waitpid(pid, 0)


def test_a_child_opens_the_stream_itself_once_its_parent_has_closed_it(stream: Stream) -> None:
    producer = stream.producer("p")
    producer.publish(Message(b"parent"))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)  # until the parent has closed
        with stream.producer("p") as own:
            own.publish(Message(b"child"))
        stream.close()
        os._exit(0)
    os.close(read)
    stream.close()
    os.close(write)
    assert os.waitpid(pid, 0)[1] == 0
    assert payloads(stream.path) == [b"parent", b"child"]


def test_a_child_ends_normally_without_storing_what_its_parent_has_pending(tmp_path: Path) -> None:
    script = """
        import os
        stream, producer = publish(10)
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        producer.publish(Message(b"last"))
    """
    done = run(tmp_path / "s", script)
    assert done.returncode == 0, done.stderr
    assert payloads(tmp_path / "s") == [b"%d" % i for i in range(10)] + [b"last"]


def test_a_follower_used_in_a_child_takes_no_wake_up_from_its_parent(stream: Stream) -> None:
    # Or the committer's sync would change the index again, which wakes the child rightly.
    stream.reconfigure(fsync_interval=LATER)
    with (
        stream,
        stream.producer() as producer,
        stream.consume(follow=True, timeout=timedelta(milliseconds=10)) as consumer,
    ):
        assert next(consumer, None) is None  # it watches now
        watch = consumer._tail._watch
        assert watch is not None
        producer.publish(Message(b"a"))
        producer.flush()
        assert in_child(lambda: watch.wait(0)) == "False"
        assert watch.wait(0)


def test_a_cursor_is_committed_on_both_sides_of_a_fork(stream: Stream) -> None:
    cursors = stream.cursors()
    cursors.commit("parent", 1)
    inherited = cursors._connection
    assert in_child(lambda: cursors.commit("child", 2)) == "None"
    assert cursors._connection is not inherited
    cursors.commit("parent", 3)
    assert [(c.name, c.position) for c in cursors.list()] == [("child", 2), ("parent", 3)]
    cursors.close()

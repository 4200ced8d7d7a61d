"""Verifying a stream while it is written, sealed, compacted and dropped: nothing is reported that is not there."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from headgate.message import Message
from headgate.streams.cold.compaction import compact
from headgate.streams.format import log_path
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import verify
from tests.conftest import FULL

LOOKS = 400 if FULL else 40


def look_again_and_again(path: Path, looks: int) -> list[str]:
    return [str(problem) for _ in range(looks) for problem in verify(path).problems]


WRITER = """
import sys
from headgate.message import Message
from headgate.streams.stream import Stream
with Stream.open(sys.argv[1]) as stream, stream.producer() as producer:
    print("ready", flush=True)
    for n in range(10**9):
        producer.publish_many([Message(b"%d" % n, headers={"n": n}) for _ in range(30)])
        producer.flush()
        if n % 40 == 0:
            stream.seal(all=n % 80 == 0)
        if n % 100 == 0:
            stream.trim(before_offset=max(30 * n - 6000, 1))
"""


def test_verify_raises_no_false_alarm_beside_a_writer(tmp_path: Path) -> None:
    """The writer is another process; a compaction goes on as well."""
    path = tmp_path / "s"
    Stream.create(
        path, indexed=["n"], segment_bytes=32_768, chunk_messages=10, fsync="never"
    ).close()
    done = threading.Event()

    def compact_on_and_on() -> None:
        while not done.wait(0.05):
            compact(path, created_us=0)

    command = [sys.executable, "-c", WRITER, str(path)]
    compacting = threading.Thread(target=compact_on_and_on)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            compacting.start()
            problems = look_again_and_again(path, LOOKS)
            assert writer.poll() is None
        finally:
            done.set()
            writer.kill()
    compacting.join()
    assert problems == []


def test_verify_finds_real_damage_beside_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Stream.create(path, fsync="always") as stream, stream.producer() as producer:
        for i in range(10):
            producer.publish(Message(b"%010d" % i))
            producer.flush()
        log = log_path(path, 0)
        at = log.read_bytes().index(b"%010d" % 4)
        with log.open("r+b") as file:
            file.seek(at)
            file.write(b"\xff")
        (problem,) = verify(path).problems
        assert "offsets 4 to 4 fails its CRC" in problem.what

"""Readers beside a writer that seals and drops segments all the time: never a wrong, lost or doubled row."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headgate.columns.decode import decode_records
from headgate.message import Message
from headgate.streams.stream import Stream
from tests.conftest import FULL

MESSAGES = 60_000 if FULL else 12_000
BATCH = 40
KEEP = 4000  # offsets that retention leaves alone


def message(n: int) -> Message:
    return Message(b"%d" % n, headers={"n": n, "third": n % 3, "word": f"w{n % 50}"})


def write_all(stream: Stream) -> None:
    """Publish, and now and then seal and trim."""
    with stream.producer() as producer:
        for n in range(0, MESSAGES, BATCH):
            producer.publish_many([message(i) for i in range(n, n + BATCH)])
            producer.flush()
            if n % 1200 == 0:
                stream.seal(all=n % 2400 == 0)
            if n % 2000 == 0:
                stream.trim(before_offset=max(n - KEEP, 1))


@pytest.fixture
def small_segments(tmp_path: Path) -> Stream:
    return Stream.create(
        tmp_path / "s", indexed=["word"], segment_bytes=32_768, chunk_messages=BATCH, fsync="never"
    )


def check_scan(path: Path) -> int:
    """One scan: what stands at every offset is right, and nothing is missing but what retention dropped meanwhile."""
    stream = Stream.open(path)
    there_before = stream.next_offset
    found = [r for batch in stream.scan("third = 1") for r in decode_records(batch)]
    left_after = stream.first_offset
    assert all(r.message.payload == b"%d" % r.offset for r in found)
    offsets = [r.offset for r in found]
    assert offsets == sorted(set(offsets))
    assert {n for n in range(left_after, there_before) if n % 3 == 1} <= set(offsets)
    return len(found)


def test_scans_stay_exact_while_segments_are_sealed_and_deleted(small_segments: Stream) -> None:
    writer = threading.Thread(target=write_all, args=(small_segments,))
    writer.start()
    scans, rows = 0, 0
    while writer.is_alive():
        rows += check_scan(small_segments.path)
        scans += 1
    writer.join()
    assert scans > 3
    assert rows > 0
    small_segments.close()


def test_a_consumer_that_keeps_up_sees_every_message_once(small_segments: Stream) -> None:
    seen: list[int] = []

    def follow() -> None:
        with small_segments.consume("third = 1", follow=True) as tail:
            for record in tail.records():
                assert record.message.payload == b"%d" % record.offset
                seen.append(record.offset)
                if record.offset >= MESSAGES - 3:
                    return

    reader = threading.Thread(target=follow)
    reader.start()
    with small_segments.producer() as producer:
        for n in range(0, MESSAGES // 2, BATCH):
            producer.publish_many([message(i) for i in range(n, n + BATCH)])
            if n % 1200 == 0:
                small_segments.seal(all=n % 2400 == 0)
        for n in range(MESSAGES // 2, MESSAGES):
            producer.publish(message(n))
        producer.flush()
    reader.join(60)
    assert not reader.is_alive()
    assert seen == [n for n in range(MESSAGES) if n % 3 == 1]
    small_segments.close()


WRITER = """
import sys
from headgate.streams.stream import Stream
from tests.integration.test_stream_readers import write_all
with Stream.open(sys.argv[1]) as stream:
    write_all(stream)
"""


def test_readers_in_another_process_than_the_writer_stay_exact(small_segments: Stream) -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(small_segments.path)], cwd=root
    ) as writer:
        while writer.poll() is None:
            check_scan(small_segments.path)
    assert writer.returncode == 0
    assert check_scan(small_segments.path) > 0

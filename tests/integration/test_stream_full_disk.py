"""A disk that is really full, again and again: readers in another process see what is confirmed, and live."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headgate.errors import StreamWriteError
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import verify
from tests.conftest import FULL

ROUNDS = 200 if FULL else 24
DISK_BYTES = 4 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB, where this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


READER = """
import json, sys
from pathlib import Path
from headgate.columns.decode import decode_records
from headgate.streams.stream import Stream
path, done, seen = sys.argv[1], Path(sys.argv[2]), {}
print("ready", flush=True)
with Stream.open(path) as stream, stream.consume(follow=True) as follower:
    last = False
    while not last:
        last = done.exists()
        start = follower.position
        found = [r for batch in stream.scan(start=start) for r in decode_records(batch)]
        while (record := follower.poll()) is not None:
            found.append(record)
        for offset, message in found:
            payload = [message.payload[:12].decode(), len(message.payload)]
            assert seen.setdefault(offset, payload) == payload, f"offset {offset} was given twice"
print(json.dumps(seen))
"""


def fill(place: Path, but: int) -> None:
    """Leave only so many bytes of the disk free."""
    (place / "filler").unlink(missing_ok=True)
    left = os.statvfs(place)
    size = max(left.f_bavail * left.f_frsize - but, 0)
    # A thread of the stream may take some of it meanwhile: then the disk is full, too.
    with suppress(OSError), (place / "filler").open("wb") as filler:
        filler.write(bytes(size))


def batch(rng: Random, number: int) -> pa.RecordBatch:
    """Messages that know their offset, in some twenty chunks."""
    payloads = [b"%012d" % i + bytes(rng.randrange(2000)) for i in range(number, number + 40)]
    return pa.record_batch({"payload": payloads})


def test_no_reader_sees_messages_that_a_full_disk_refused(small_disk: Path, tmp_path: Path) -> None:
    path, done, rng = small_disk / "s", tmp_path / "done", Random(7)
    refused, number = 0, 0
    stream = Stream.create(path, chunk_bytes=2000, segment_bytes=256 << 10, fsync="never")
    command = [sys.executable, "-c", READER, str(path), str(done)]
    with stream, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        for _ in range(ROUNDS):
            # Other bytes than before at these offsets, unless they were confirmed.
            fill(small_disk, rng.randrange(4, 12) * 4096)
            try:
                stream.append(batch(rng, number))
            except StreamWriteError:
                refused += 1
            (small_disk / "filler").unlink()
            number = (
                stream.next_offset
            )  # what went into a full segment before the next was begun stays
            number += stream.append(batch(rng, number).slice(0, 5))
        done.touch()
        output = reader.stdout.read()
    assert reader.returncode == 0
    assert refused > ROUNDS // 2
    seen = json.loads(output)
    assert {offset: payload for offset, (payload, _) in seen.items()} == {
        str(i): f"{i:012d}" for i in range(number)
    }
    assert verify(path).fine


def files_of(path: Path) -> list[str]:
    """All files but the outlines of segments and their lock, which another thread writes when it gets to it."""
    return sorted({p.name for p in path.rglob("*")} - {"outlines", "cold.lock"})


def test_every_operation_on_a_full_disk_raises_a_stream_error_and_leaves_no_file(
    small_disk: Path,
) -> None:
    path, table = small_disk / "s", pa.table({"payload": [os.urandom(1000) for _ in range(1500)]})
    with Stream.create(path, segment_bytes=1 << 20) as stream:
        stream.append(table)
        before = files_of(path)
        fill(small_disk, but=0)
        refused = [
            lambda: stream.seal(),
            lambda: stream.deposit("another", 1, table),
            lambda: Stream.open(path).deposit_staged("another", 2, []),
        ]
        for act in refused:
            with pytest.raises(StreamWriteError, match="No space left on device"):
                act()
        assert files_of(path) == before
        fill(small_disk, but=2 << 20)
        assert stream.seal()
    with Stream.open(path) as stream:
        fill(small_disk, but=0)
        with pytest.raises(StreamWriteError, match="No space left on device"):
            stream.reconfigure(max_bytes=1 << 30)
        assert stream.scan(columns=["offset"]).to_table().num_rows == 1500

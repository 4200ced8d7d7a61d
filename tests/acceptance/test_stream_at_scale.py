"""What a stream promises under load: filters that prune, memory that stays small, messages of any size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headgate.message import Message
from headgate.streams.read.plan import ScanStats
from headgate.streams.stream import Stream
from tests.conftest import SEED

ROWS, VALUES = 1_000_000, 1_000
WORDS = [f"v{i:04}" for i in range(VALUES)]


def bursts(numbers: np.random.Generator) -> pa.Table:
    codes = numbers.integers(0, VALUES, ROWS, np.int16)
    ends = pa.py_buffer(np.arange(0, (ROWS + 1) * 30, 30, dtype=np.int32))
    payloads = pa.Array.from_buffers(
        pa.binary(), ROWS, [None, ends, pa.py_buffer(numbers.bytes(ROWS * 30))]
    )
    region = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(WORDS))
    return pa.table({"region": region, "payload": payloads, "n": pa.array(np.arange(ROWS))})


@pytest.fixture(scope="module")
def burst_stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """A million messages, a thousand uniform values, published in bursts."""
    made = Stream.create(tmp_path_factory.mktemp("scale") / "s", indexed=["region"], fsync="never")
    made.append(bursts(np.random.default_rng(SEED)))
    return made


def asked(stream: Stream, filter: str) -> ScanStats:
    scan = stream.scan(filter, columns=["offset"])
    for _ in scan:
        pass
    return scan.stats


def passed(stats: ScanStats) -> float:
    opened = stats.chunks_all + stats.chunks_some
    return opened / (opened + stats.chunks_none)


def test_absent_values_pass_as_many_hot_chunks_as_the_formula_says(burst_stream: Stream) -> None:
    shares = [passed(asked(burst_stream, f"region = 'absent{i}'")) for i in range(150)]
    bits, hashes = burst_stream.options.filter_size * 8, burst_stream.options.bloom_hashes
    expected = (1 - np.exp(-hashes * VALUES / bits)) ** hashes
    assert np.mean(shares) == pytest.approx(expected, rel=0.5)
    assert max(shares) < expected + 0.1  # no value drags everything in


def test_one_value_of_a_thousand_reads_three_percent_once_it_is_sealed(
    burst_stream: Stream,
) -> None:
    everywhere = asked(burst_stream, "region = 'v0007'")
    assert everywhere.bytes_read > 0.9 * everywhere.bytes_total
    burst_stream.seal(all=True)
    for word in WORDS[::50]:
        stats = asked(burst_stream, f"region = '{word}'")
        assert stats.bytes_read <= 0.03 * stats.bytes_total
        assert stats.rows_matched > 500
    absent = [passed(asked(burst_stream, f"region = '{word}x'")) for word in WORDS[::20]]
    assert np.mean(absent) < 0.01
    assert max(absent) < 0.05


WATCHED = """
import sys, threading
from headgate.streams.stream import Stream
def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) // 1024
stream, most, done = Stream.open(sys.argv[1]), 0, threading.Event()
def watch():
    global most
    while not done.wait(0.01):
        most = max(most, anonymous())
watcher = threading.Thread(target=watch)
watcher.start()
rows = sum(batch.num_rows for batch in stream.scan("n >= 10"))
with stream.consume("n >= 10") as consumer:
    rows += sum(1 for _ in consumer)
done.set()
watcher.join()
print(rows, most)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the kernel in Linux's way")
def test_reading_half_a_gigabyte_takes_little_memory(tmp_path: Path) -> None:
    rows, size = 4000, 5000
    with Stream.create(tmp_path / "s", indexed=["k"], fsync="never") as stream:
        payloads = pa.array([bytes(size)] * rows, pa.binary())
        for at in range(25):
            numbers = np.arange(at * rows, (at + 1) * rows)
            stream.append(pa.table({"payload": payloads, "n": numbers, "k": numbers % 7}))
            if at == 15:
                stream.seal(all=True)
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(tmp_path / "s")],
        capture_output=True,
        text=True,
        check=True,
    )
    found, most = map(int, done.stdout.split())
    assert found == 2 * (25 * rows - 10)
    assert most < 300


def test_a_message_of_64_megabytes_can_be_read_hot_and_sealed(tmp_path: Path) -> None:
    large = bytes(64 << 20)
    with Stream.create(tmp_path / "s", fsync="never") as stream:
        with stream.producer() as producer:
            for payload in (b"before", large, b"after"):
                producer.publish(Message(payload, headers={"size": len(payload)}))
        for _ in range(2):
            assert [len(m.payload) for m in stream.consume()] == [6, 64 << 20, 5]
            (found,) = stream.consume("size > 1000")
            assert found.payload == large
            stream.seal(all=True)

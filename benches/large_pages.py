"""Pages of what is large: a stream of a million chunks, and queues of a million messages, opened by a browser's request.

A million chunks of one message each take minutes to publish. Here a few are published, and their bytes are written again
under other offsets, as a writer would have written them.
"""

from __future__ import annotations

import http.client
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
from amqp_client import connected, encode_publish
from broker import Served, publish, served
from broker_api import ask
from figures import Recorder, at_most
from reports import options, recorded

from headgate import Message, Stream, connect
from headgate.checksum import crc32
from headgate.streams.format import CHUNK_HEADER, CRC, entry_checksums, index_path, log_path
from headgate.streams.segments import bloom
from headgate.streams.segments.hot_chunk import ChunkHead, read_head
from headgate.streams.segments.hot_index import IndexShape
from headgate.streams.segments.hot_log import create_hot_log
from headgate.streams.segments.hot_segment import HotSegment

SEGMENT = 64 << 20
REGIONS = ("DE", "FR", "JP", "US")
ROUNDS = 3


def bench_large_pages(bench: Recorder, place: Path, quick: bool) -> None:
    """Open each page some times; the CPU time of the most expensive one counts."""
    count = 50_000 if quick else 1_000_000
    bench.part(f"Pages of a stream with {count:,} chunks, and of queues with {count:,} messages")
    write_chunks(place / "data" / "large", count)
    database = f"sqlite:///{place / 'queue.db'}"
    _fill_sql(database, count)
    with served(place / "data", "--set", f"http.database={database}") as broker:
        with connected(broker.port) as client:
            client.declare("large", True)
        publish(broker.port, count, encode_publish("large", durable=True))
        for name, path in _paths():
            _open(bench, broker, name, path)


def _paths() -> list[tuple[str, str]]:
    def path(page: str, **query: str) -> str:
        return f"{page}?{urlencode(query)}"

    return [
        ("stream", path("/stream", name="large")),
        ("stream, filter that skips all", path("/stream", name="large", filter="region = 'XX'")),
        ("stream, filter that hits a quarter", path("/stream", name="large", filter="region = 'DE'")),
        ("stream, header without an index", path("/stream", name="large", filter="n = 2")),
        ("streams", "/streams"),
        ("queue of the broker", path("/queue", vhost="/", name="large")),
        ("queue of the broker, filter without a match", path("/queue", vhost="/", name="large", filter="none = 1")),
        ("queue on SQLite", path("/sql-queue", name="large")),
        ("queue on SQLite, filter without a match", path("/sql-queue", name="large", filter="n = -1")),
        ("queues on SQLite", "/sql-queues"),
    ]  # fmt: skip


def _fill_sql(database: str, count: int) -> None:
    with connect(database) as opened:
        queue = opened.queue("large")
        for start in range(0, count, 10_000):
            queue.publish_many(
                Message(b"x", headers={"n": n}) for n in range(start, start + 10_000)
            )


def _open(bench: Recorder, broker: Served, name: str, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=60)
    took, spent = [], []
    for _ in range(ROUNDS):
        began, cpu = time.perf_counter(), broker.cpu_s
        ask(connection, path)
        took.append(time.perf_counter() - began)
        spent.append(broker.cpu_s - cpu)
    note = f"{took[0]:.2f} s by the clock when it is opened first, then {min(took[1:]):.2f} s"
    bench.add(name, max(spent), "s CPU", at_most(1), note=note)


def write_chunks(path: Path, count: int) -> None:
    """Write a stream of so many chunks of one message; the last hundredth of them are from the UK."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Stream.create(path, indexed=["region"], filter_size=16, fsync="never", chunk_messages=1).close()
    with tempfile.TemporaryDirectory() as place:
        parts = {region: _chunk_of(Path(place) / region, region) for region in (*REGIONS, "UK")}
    shape = next(iter(parts.values())).shape
    width = shape.dtype.itemsize + max(part.length for part in parts.values())
    size = SEGMENT // width
    for name in path.glob("0*"):
        name.unlink()
    for first in range(0, count, size):
        numbers = range(first, min(first + size, count))
        named = (REGIONS[n % 4] if n < count - count // 100 else "UK" for n in numbers)
        _write_segment(path, first, [parts[name] for name in named], shape)


class ChunkCopy:
    """One chunk of one message, to be written again under another offset."""

    def __init__(self, segment: HotSegment, region: str) -> None:
        data, base = segment._bytes_of(0, int(segment._columns.position[0]))
        at = int(segment._columns.position[0]) - base
        head = read_head(data, at)
        assert isinstance(head, ChunkHead)
        whole = bytes(memoryview(data)[at : at + head.length])
        self.head, self.entry, self.shape = head, segment.entries[0].copy(), segment.shape
        self.rest = whole[CHUNK_HEADER.size :]
        hashed = bloom.hash_value(segment.shape.fields[1], region)
        self.hashes = np.array([hashed], np.uint64).reshape(1, 2)

    @property
    def length(self) -> int:
        return self.head.length

    def at(self, offset: int) -> tuple[int, bytes]:
        """The checksum of its header, and its bytes, at an offset."""
        fixed = CHUNK_HEADER.pack(*self.head._replace(first_offset=offset))[: -CRC.size]
        header = self.rest[: self.head.header_length - CHUNK_HEADER.size]
        crc = crc32(header, crc32(fixed))
        return crc, fixed + CRC.pack(crc) + self.rest


def _chunk_of(path: Path, region: str) -> ChunkCopy:
    with Stream.create(path, indexed=["region"], filter_size=16, fsync="never") as stream:
        with stream.producer() as producer:
            producer.publish(Message(b"x", topic="orders", headers={"region": region, "n": 1}))
        return ChunkCopy(HotSegment(log_path(path, 0)), region)


def _write_segment(path: Path, first: int, chunks: list[ChunkCopy], shape: IndexShape) -> None:
    log = create_hot_log(path, first, shape, {}, 0)
    start = log.end
    log.close()
    entries = np.array([chunk.entry for chunk in chunks], shape.dtype)
    entries["first_offset"] = np.arange(first, first + len(chunks))
    lengths = np.array([chunk.length for chunk in chunks])
    entries["position"] = start + np.cumsum(lengths) - lengths
    written = [chunk.at(first + i) for i, chunk in enumerate(chunks)]
    entries["header_crc"] = [crc for crc, _ in written]
    nbytes = shape.bloom.nbytes
    for i, chunk in enumerate(chunks):
        entries["bloom"][i, :nbytes] = bloom.build(shape.bloom, chunk.hashes, first + i)
    entries["checksum"] = entry_checksums(entries)
    contents = b"".join(content for _, content in written), entries.tobytes()
    for file, content in zip(
        (log_path(path, first), index_path(path, first)), contents, strict=True
    ):
        with file.open("ab") as target:
            target.write(content)


def main() -> None:
    given = options(__doc__ or "").parse_args()
    bench = Recorder("pages")
    with recorded(bench, given), tempfile.TemporaryDirectory() as place:
        bench_large_pages(bench, Path(place), given.quick)


if __name__ == "__main__":
    main()

"""What a stream costs: publishing, sealing, scanning with a filter, waking; in time, bytes and memory.

    python benches/streams.py [--quick] [--seed N] [--json PATH] [--only PART] [--directory PATH]

Every figure stands beside what a user would do instead, measured on the same data in the same run: decoding every
message and testing it, or lines of JSON. Rates are medians of rounds on one core, by the clock and by the processor;
files are read from a warm page cache, and written to memory that files of earlier rounds have left.
"""

from __future__ import annotations

import gc
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from figures import CPU_RATE, TIMES, Figure, Recorder, at_least, at_most, timed
from open_streams import bench_open_streams
from orders import PAYLOAD, START_US, VALUES, WORDS, Data, coded, fill
from reports import options, recorded
from stream_history import bench_absent, bench_consume, bench_history, bench_partitions

from headgate.filters.compile.python import compile_predicate
from headgate.filters.parser import parse
from headgate.message import Message
from headgate.spark.source.ranges import plan, sweep
from headgate.streams.read import plan as planning
from headgate.streams.read.plan import ScanStats
from headgate.streams.read.query import make_query
from headgate.streams.read.scan import Scan
from headgate.streams.segments.bloom import BloomShape
from headgate.streams.segments.sealed import SealedSegment
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import verify

ONE = f"region = '{WORDS[7]}'"


class Bench(Recorder):
    def __init__(self, rounds: int) -> None:
        super().__init__("streams")
        self.rounds = rounds
        # Called between rounds: removes what they wrote. The memory of a virtual machine costs its processor much when it
        # is touched for the first time, several times as much as the copy of the bytes; so rounds use the same memory.
        self.clear: Callable[[], None] = lambda: None

    def rate(
        self, name: str, work: Callable[[], object], units: int, least: float = 0, note: str = ""
    ) -> Figure:
        """Units per second: the median of the rounds; the target is held against the processor's time."""
        return self.took(name, self.time(work), units, least, note)

    def took(
        self, name: str, spent: tuple[float, float], units: int, least: float = 0, note: str = ""
    ) -> Figure:
        """Units per second, from the seconds it took."""
        wall, cpu = spent
        bound = at_least(least) if least else None
        return self.add(name, units / cpu, CPU_RATE, bound, clock=units / wall, note=note)

    def time(self, work: Callable[[], object]) -> tuple[float, float]:
        """Seconds by the clock and by the processor. What the bench itself keeps is no garbage to look through meanwhile."""
        gc.collect()
        gc.freeze()
        rounds = []
        for _ in range(self.rounds):
            rounds.append(timed(work))
            self.clear()
        gc.unfreeze()
        return statistics.median(r[0] for r in rounds), statistics.median(r[1] for r in rounds)

    def ratio(self, work: Callable[[], object], base: Callable[[], object]) -> float:
        """How much longer one takes the processor than the other, taken in turns: what disturbs one disturbs both."""
        rounds = [(timed(work)[1], timed(base)[1]) for _ in range(2 * self.rounds)]
        return statistics.median(a / b for a, b in rounds)


def run(scan: Scan) -> Scan:
    for _ in scan:
        pass
    return scan


# ---- the parts ---------------------------------------------------------------------------------------


def bench_publish(bench: Bench, data: Data, place: Path, quick: bool) -> None:
    count = 100_000 if quick else 400_000
    bench.part(
        f"Publish: {count:,} messages built beforehand, {PAYLOAD} bytes, 3 headers, fsync=interval"
    )
    messages = data.messages(count)
    places = (place / f"publish-{i}" for i in range(1000))

    def clear() -> None:
        for path in place.glob("publish-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    bench.clear = clear

    def publish(name: str | None = None, messages: list[Message] = messages) -> None:
        with (
            Stream.create(next(places), indexed=["region"]) as stream,
            stream.producer(name) as producer,
        ):
            for message in messages:
                producer.publish(message)

    def publish_many() -> None:
        with (
            Stream.create(next(places), indexed=["region"]) as stream,
            stream.producer() as producer,
        ):
            for first in range(0, count, 4096):
                producer.publish_many(messages[first : first + 4096])

    def write_json() -> None:
        with open(next(places), "w") as file:
            for m in messages:
                line = {"topic": m.topic, "headers": m.headers, "payload": m.payload.hex()}
                file.write(json.dumps(line) + "\n")

    single = bench.rate("publish, one by one", publish, count, 500_000)
    stamped = [
        replace(message, key=f"k{i % 1000}", timestamp=START_US + i)
        for i, message in enumerate(messages)
    ]
    for what, work in (
        ("a named producer", lambda: publish("p")),
        ("with key and timestamp", lambda: publish(messages=stamped)),
        ("a named producer, with key and timestamp", lambda: publish("p", stamped)),
    ):
        bench.rate(f"publish, one by one, {what}", work, count, 400_000)
    many = bench.rate("publish_many, 4,096 at a time", publish_many, count, 500_000)
    lines = bench.rate("JSON lines, nothing checked", write_json, count)
    for ours in (single, many):
        bench.versus(ours, "JSON lines", lines.value)
    bench_append(bench, list(data.orders(count)), places)
    bench.clear = lambda: None
    print_sizes(bench, data, place, messages)


def bench_append(bench: Bench, tables: list[pa.Table], places: Iterator[Path]) -> None:
    count = sum(table.num_rows for table in tables)

    def append() -> None:
        with Stream.create(next(places), indexed=["region"]) as stream:
            for table in tables:
                stream.append(table)

    def write_ipc() -> None:
        with pa.OSFile(str(next(places)), "wb") as file:
            for table in tables:
                with pa.ipc.new_stream(file, table.schema) as writer:
                    writer.write_table(table)

    appended = bench.rate("Arrow tables appended", append, count, 5e6)
    ipc = bench.rate("Arrow tables as IPC, nothing checked", write_ipc, count)
    bench.versus(appended, "Arrow IPC", ipc.value)


def print_sizes(bench: Bench, data: Data, place: Path, messages: list[Message]) -> None:
    lines = sum(
        len(json.dumps({"topic": m.topic, "headers": m.headers, "payload": m.payload.hex()})) + 1
        for m in messages[:1000]
    )
    note = f"payload {PAYLOAD} B, as hex"
    plain = bench.add("bytes a message, JSON lines", lines / 1000, "B", note=note)
    with Stream.create(place / "sizes", indexed=["region"]) as stream:
        with stream.producer() as producer:
            producer.publish_many(messages)
        bench.add("bytes a message, hot", _bytes(stream.path) / len(messages), "B")
        stream.seal(all=True)
        ours = bench.add("bytes a message, sealed", _bytes(stream.path) / len(messages), "B")
        bench.versus(ours, "JSON lines", plain.value)
    with Stream.create(place / "single", filter_size=16) as stream:
        with stream.producer() as producer:
            for message in messages[:1000]:
                producer.publish(message)
                producer.flush()
        bench.add("bytes a message, hot, one message a chunk", _bytes(stream.path) / 1000, "B")
    shutil.rmtree(place / "sizes")
    shutil.rmtree(place / "single")


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir() if path.is_file())


def bench_scan(bench: Bench, data: Data, place: Path, quick: bool) -> None:
    rows = 500_000 if quick else 2_000_000
    bench.part(
        f"Scan: {rows:,} messages, hot, 4,096 a chunk; the Bloom filter knows none of these headers"
    )
    stream = fill(place / "scan", data.orders(rows, 4096), indexed=["other"])
    rare = "region = 'v0007' AND amount = 17 AND type = 'a'"
    hot = bench.rate(
        "exact, no message matches",
        lambda: run(stream.scan("region = 'v0007' AND amount < 0")),
        rows,
        20e6,
        "region = 'v0007' AND amount < 0; every row examined",
    )
    bench.rate("exact, 1 match in 20,000,000", lambda: run(stream.scan(rare)), rows, 20e6, rare)
    common = "region = 'v0007' AND amount > 1000"
    bench.rate(
        "exact, all columns, 1 match in 1,250",
        lambda: run(stream.scan(common)),
        rows,
        note="every chunk has some: its payloads are checked too",
    )
    bench.rate(
        "exact, one column, 1 match in 1,250",
        lambda: run(stream.scan(common, columns=["h.i.amount"])),
        rows,
    )
    part = rows // 10
    matches = compile_predicate(parse(common))
    decoded = bench.rate(
        "decode every message and test it",
        lambda: sum(matches(m) for m in stream.consume(start=rows - part)),
        part,
    )
    bench.versus(hot, decoded.name, decoded.value, at_least(10))
    examined = run(stream.scan(common)).stats
    assert examined.rows_examined == rows, examined
    compare_with_no_filter(bench, stream, rows, "hot")

    stream.close()
    stream = Stream.open(place / "scan")
    stream.reconfigure(indexed=["region"])
    bench.took("seal", timed(lambda: stream.seal(all=True)), rows, 1e6)
    bench.part("Sealed, clustered by region:")
    bench.rate(
        "sealed, 4 of 5 match, in offset order",
        lambda: run(stream.scan("amount > 1000")),
        rows,
        5e6,
    )
    bench.rate("sealed, 1 of 5,000 matches", lambda: run(stream.scan("amount = 77")), rows, 5e6)
    compare_with_no_filter(bench, stream, rows, "sealed")
    stream.close()
    shutil.rmtree(place / "scan")


def compare_with_no_filter(bench: Bench, stream: Stream, rows: int, state: str) -> None:
    def plain() -> object:
        return run(stream.scan())

    bench.rate(f"{state}, no filter", plain, rows)
    for what, filter, limit in (
        ("everything", "amount >= 0", 1.15),
        ("nothing", "amount < 0", 1.0),
    ):
        ratio = bench.ratio(lambda filter=filter: run(stream.scan(filter)), plain)
        name = f"{state}, {what} matches / no filter"
        bench.add(name, ratio, TIMES, at_most(limit), note="time of CPU")


def bench_pruning(bench: Bench, data: Data, place: Path, quick: bool) -> None:
    rows = 1_000_000
    bench.part(f"Pruning: {rows:,} messages, {VALUES:,} uniform values, published in bursts")
    stream = fill(place / "prune", data.orders(rows), indexed=["region"])
    hot = [_share(stream, f"region = '{word}'") for word in WORDS[::100]]
    note = "each chunk holds most values"
    bench.add("hot, one value: bytes read", 100 * float(np.mean(hot)), "%", note=note)
    bloom_of_hot_chunks(bench, stream)
    stream.seal(all=True)
    shares = [_share(stream, f"region = '{word}'") for word in WORDS[::20]]
    mean, worst = 100 * float(np.mean(shares)), 100 * max(shares)
    note = "RabbitMQ 4.0.5: 99.8 %"
    bench.add("sealed, one value: bytes read, mean", mean, "%", at_most(3), note=note)
    bench.add("sealed, one value: bytes read, worst", worst, "%", at_most(6))
    absent = [_passed(stream, f"region = 'v{i:04}x'") for i in range(0, VALUES, 5)]
    mean, worst = 100 * float(np.mean(absent)), 100 * max(absent)
    note = "no value drags everything in"
    bench.add("sealed, absent values: chunks passed, mean", mean, "%", at_most(2))
    bench.add("sealed, absent values: chunks passed, worst", worst, "%", at_most(5), note=note)
    wall, _ = bench.time(lambda: run(stream.scan("region = 'v0007'")))
    bench.add("sealed, one value: time", wall * 1000, "ms")
    stream.close()
    shutil.rmtree(place / "prune")
    prune_unique_ids(bench, place, 200_000 if quick else rows)


def prune_unique_ids(bench: Bench, place: Path, rows: int) -> None:
    """Ids that occur once, in rows sorted by another id: only the Bloom filters know where they are not."""
    with Stream.create(place / "ids", fsync="never", indexed=["customer", "serial"]) as stream:
        for first in range(0, rows, 10_000):
            numbers = range(first, first + 10_000)
            ids = pa.array([f"id-{n * 7919 % rows:08}" for n in numbers])
            customers = pa.array([n // 2 for n in numbers])
            stream.append(pa.table({"customer": customers, "serial": ids}))
        stream.seal(all=True)
        assert run(stream.scan("serial = 'id-00000007'")).stats.rows_matched == 1
        absent = [_passed(stream, f"serial = 'id-{n:08}x'") for n in range(7, rows, rows // 200)]
    bench.add(
        "sealed, unique ids absent: chunks passed", 100 * float(np.mean(absent)), "%", at_most(3)
    )
    shutil.rmtree(place / "ids")


def bench_pages(bench: Bench, data: Data, place: Path, quick: bool) -> None:
    """Two indexed headers: the values of the second are in a few pages of many chunks."""
    two = f"region IN ('{WORDS[7]}', '{WORDS[400]}') AND amount >= 2500"
    for rows in (250_000, 500_000, 1_000_000):
        bench.part(
            f"Pages: {rows:,} messages, {VALUES:,} regions and 4 types, both indexed, sealed"
        )
        stream = fill(place / "pages", data.orders(rows), indexed=["region", "type"])
        stream.seal(all=True)
        goals = (at_most(1), at_most(2)) if rows == 1_000_000 else (None, None)
        for what, filter, goal in zip(("one value", "two values"), (ONE, two), goals, strict=True):
            with chunks_read_whole():
                whole = f"{100 * _share(stream, filter):.2g} % without pages"
            name = f"{rows:,} messages, {what}"
            bench.add(f"{name}: bytes read", 100 * _share(stream, filter), "%", goal, note=whole)
            swept = 100 * _share_of_tasks(stream, filter)
            bench.add(f"{name}: bytes read by the tasks of Spark", swept, "%", goal)
        if rows == 1_000_000:
            cost_of_pages(bench, stream)
        stream.close()
        shutil.rmtree(place / "pages")


def cost_of_pages(bench: Bench, stream: Stream) -> None:
    def run_whole() -> None:
        with chunks_read_whole():
            run(stream.scan(ONE))

    ratio = bench.ratio(lambda: run(stream.scan(ONE)), run_whole)
    note = "time of CPU, from a warm page cache"
    bench.add("one value, pages / whole chunks", ratio, TIMES, note=note)
    segments = [SealedSegment(path) for path in sorted(stream.path.glob("*.arrow"))]
    size = sum(len(segment.encoded_pages or b"") for segment in segments)
    share = 100 * size / sum(segment.nbytes for segment in segments)
    bench.add("pages, share of the file", share, "%", at_most(0.2))


def chunks_read_whole() -> AbstractContextManager[object]:
    """Plan as if no file had pages."""
    return patch.object(planning, "find_parts", lambda *known: {})


def _share_of_tasks(stream: Stream, filter: str) -> float:
    """The share of bytes that the tasks of a batch read by Spark read."""
    query, stats = make_query(filter), ScanStats()
    for task in plan([str(stream.path)], query, tasks=4):
        for part in task:
            for _ in sweep(part, query, stats=stats):
                pass
    return stats.bytes_read / stats.bytes_total


def bloom_of_hot_chunks(bench: Bench, stream: Stream) -> None:
    """Absent values pass a share of the chunks that follows the formula, each chunk on its own."""
    shape = BloomShape(stream.options.filter_size, stream.options.bloom_hashes)
    passed = [_passed(stream, f"region = 'absent{i}'") for i in range(200)]
    values = VALUES * (1 - (1 - 1 / VALUES) ** 4096)
    expected = (1 - np.exp(-shape.hashes * values / shape.bits)) ** shape.hashes
    mean = float(np.mean(passed))
    bench.add("hot, absent values: chunks passed, mean", 100 * mean, "%")
    off = 100 * abs(mean - expected)
    note = f"expected {100 * expected:.2g} %"
    most = at_most(100 * (0.5 * expected + 0.01))
    bench.add("hot, absent values: off the formula by", off, "points", most, note=note)
    most, note = at_most(100 * (expected + 0.1)), "RabbitMQ: 24 of 24 at 16 bytes"
    bench.add("hot, absent values: chunks passed, worst", 100 * max(passed), "%", most, note=note)


def _share(stream: Stream, filter: str) -> float:
    stats = run(stream.scan(filter)).stats
    return stats.bytes_read / stats.bytes_total


def _passed(stream: Stream, filter: str) -> float:
    stats = run(stream.scan(filter)).stats
    return 1 - stats.chunks_none / (stats.chunks_none + stats.chunks_some + stats.chunks_all)


def bench_rabbitmq(bench: Bench, data: Data, place: Path, quick: bool) -> None:
    rows = 1_000_000 if quick else 10_000_000
    filter = f"subject = 'order.created' AND ts > {START_US // 1000} AND region IN ('AMER', 'ANTARCTICA')"
    bench.part(f"RabbitMQ's published shape: {rows:,} messages, sealed\n  {filter}")
    stream = fill(place / "rabbitmq", data.published(rows), indexed=["subject", "region"])
    bench.took("published shape, seal", timed(lambda: stream.seal(all=True)), rows, 1e6)
    found = run(stream.scan(filter)).stats
    assert found.rows_matched == rows // 1_000_000, found
    wall, cpu = bench.time(lambda: run(stream.scan(filter)))
    note = f"{cpu:.4f} s of CPU; RabbitMQ 2.05 s with Bloom filter and SQL, 24.7 s with SQL"
    bench.add("published shape, answered in", wall * 1000, "ms", at_most(50), note=note)
    wall, cpu = bench.time(lambda: run(Stream.open(stream.path).scan(filter)))
    note = f"{cpu:.4f} s of CPU"
    bench.add("published shape, answered in, stream just opened", wall * 1000, "ms", note=note)
    share = 100 * found.bytes_read / found.bytes_total
    bench.add("published shape, bytes read", share, "%")
    stream.close()
    shutil.rmtree(place / "rabbitmq")


def bench_single(bench: Bench, data: Data, place: Path, quick: bool) -> None:
    count = 10_000 if quick else 100_000
    bench.part(f"{count:,} chunks of one message")
    stream = Stream.create(place / "single", fsync="never", chunk_messages=1)
    with stream.producer() as producer:
        producer.publish_many(data.messages(count))
    spent = timed(lambda: run(stream.scan("amount > 1000")))
    hot = bench.took("chunks of one message, hot scan", spent, count)
    spent = timed(lambda: stream.seal(all=True))
    bench.took("chunks of one message, seal", spent, count)
    sealed = bench.rate(
        "chunks of one message, sealed scan", lambda: run(stream.scan("amount > 1000")), count
    )
    bench.versus(sealed, "the same, hot", hot.value, at_least(50))
    stream.close()
    shutil.rmtree(place / "single")


def bench_upkeep(bench: Bench, data: Data, place: Path, quick: bool) -> None:
    sizes = (1_000, 4_000, 16_000) if quick else (2_500, 10_000, 40_000)
    bench.part("Upkeep: chunks of one message, verified and recovered; many names of headers")
    for count in sizes:
        verify_and_recover(bench, data, place / "upkeep", count)
    messages = 20_000
    for names in (3, 120, 10_000):
        wide = [
            replace(m, headers={f"n{data.rng.randrange(names)}": i % 1000 for _ in range(3)})
            for i, m in enumerate(data.messages(messages))
        ]

        def publish(wide: list[Message] = wide) -> None:
            with Stream.create(place / "wide") as stream, stream.producer() as producer:
                for message in wide:
                    producer.publish(message)
            shutil.rmtree(place / "wide")

        bench.rate(f"publish, 3 of {names:,} header names a message", publish, messages)


def verify_and_recover(bench: Bench, data: Data, path: Path, count: int) -> None:
    with (
        Stream.create(path, fsync="never", chunk_messages=1) as stream,
        stream.producer() as producer,
    ):
        producer.publish_many(data.messages(count))
    _, cpu = bench.time(lambda: verify(path))
    bench.add(f"verify, {count:,} chunks of one message", 1e6 * cpu / count, "µs/chunk")

    def recover() -> None:
        for index in path.glob("*.idx"):
            index.unlink()
        with Stream.open(path) as stream, stream.producer():
            pass

    _, cpu = bench.time(recover)
    name = f"recover without an index, {count:,} chunks of one message"
    bench.add(name, 1e6 * cpu / count, "µs/chunk")
    shutil.rmtree(path)


# ---- other processes ---------------------------------------------------------------------------------

TAIL = """
import json, sys, time
from headgate.streams.stream import Stream
tail = Stream.open(sys.argv[1]).consume("n >= 0", start="next", follow=True)
print("ready", flush=True)
late = []
for message in tail:
    late.append(time.time_ns() - message.headers["n"])
    if len(late) == int(sys.argv[2]):
        break
print(json.dumps(late), flush=True)
"""

IDLE = """
import sys, threading, time
from headgate.streams.stream import Stream
tail = Stream.open(sys.argv[1]).consume(start="next", follow=True)
threading.Thread(target=list, args=(tail,), daemon=True).start()
time.sleep(0.5)
cpu, wall = time.process_time(), time.monotonic()
time.sleep(float(sys.argv[2]))
print((time.process_time() - cpu) / (time.monotonic() - wall))
tail.close()
"""

WATCHED = """
import sys, threading
from headgate.streams.stream import Stream
stream, how = Stream.open(sys.argv[1]), sys.argv[2]
def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024
before, most, done = anonymous(), 0.0, threading.Event()
def watch():
    global most
    while not done.wait(0.01):
        most = max(most, anonymous())
watcher = threading.Thread(target=watch); watcher.start()
rows = 0
if how == "scan":
    for batch in stream.scan("amount >= 100"):
        rows += batch.num_rows
else:
    with stream.consume("amount >= 100") as tail:
        for message in tail:
            rows += 1
done.set(); watcher.join()
print(rows, most, before)
"""


def bench_wake(bench: Bench, data: Data, place: Path, quick: bool) -> None:
    count = 100 if quick else 500
    bench.part(f"Waking: {count} messages, one at a time, to a consumer in another process")
    with Stream.create(place / "wake", fsync="interval") as stream:
        python = [sys.executable, "-c"]
        with (
            subprocess.Popen(
                [*python, TAIL, str(stream.path), str(count)], stdout=subprocess.PIPE, text=True
            ) as tail,
            stream.producer() as producer,
        ):
            assert tail.stdout is not None
            tail.stdout.readline()
            for _ in range(count):
                producer.publish(Message(headers={"n": time.time_ns()}))
                producer.flush()
                time.sleep(data.rng.uniform(0.002, 0.01))
            late = sorted(json.loads(tail.stdout.readline()))
        bench.add("publish to wake, p50", late[count // 2] / 1e6, "ms", at_most(5))
        bench.add("publish to wake, p99", late[count * 99 // 100] / 1e6, "ms")
        seconds = "3" if quick else "15"
        idle = subprocess.run(
            [*python, IDLE, str(stream.path), seconds], capture_output=True, text=True, check=True
        )
        bench.add("idle tailing", 100 * float(idle.stdout), "% CPU", at_most(0.5))
    shutil.rmtree(place / "wake")


def bench_growth(bench: Bench, data: Data, place: Path, quick: bool) -> None:
    bench_history(bench, place, quick)
    bench_absent(bench, place, quick)
    bench_partitions(bench, place, quick)
    bench_consume(bench, place, quick)


def bench_open(bench: Bench, data: Data, place: Path, quick: bool) -> None:
    bench_open_streams(bench, place, quick)


def bench_memory(bench: Bench, data: Data, place: Path, quick: bool) -> None:
    size = (1 if quick else 5) * 10**9
    rows_a_table, payload = 20_000, 1000
    rows = size // payload
    bench.part(
        f"Memory: a stream of {size / 1e9:g} GB, payloads of {payload} bytes, half of it sealed"
    )
    stream = Stream.create(place / "memory", fsync="never", indexed=["region"])
    for first in range(0, rows, rows_a_table):
        columns = {
            "payload": data.payloads(rows_a_table, payload),
            "region": coded(data.numbers.integers(0, VALUES, rows_a_table, np.int16), WORDS),
            "amount": pa.array(data.numbers.integers(0, 5000, rows_a_table)),
        }
        stream.append(pa.table(columns))
        if rows // 2 <= first < rows // 2 + rows_a_table:
            stream.seal(all=True)
    stream.close()
    for how in ("scan", "consume"):
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, str(stream.path), how],
            capture_output=True,
            text=True,
            check=True,
        )
        found, most, before = map(float, done.stdout.split())
        assert found > 0.9 * rows
        note = f"{before:.0f} MB before, {size / 1e9:g} GB read"
        bench.add(f"{how}, most anonymous memory", most, "MB", at_most(300), note=note)
    shutil.rmtree(place / "memory")


PARTS: dict[str, Callable[[Bench, Data, Path, bool], None]] = {
    "publish": bench_publish,
    "scan": bench_scan,
    "pruning": bench_pruning,
    "pages": bench_pages,
    "rabbitmq": bench_rabbitmq,
    "single": bench_single,
    "upkeep": bench_upkeep,
    "wake": bench_wake,
    "history": bench_growth,
    "open": bench_open,
    "memory": bench_memory,
}


def main() -> None:
    parser = options(__doc__, seed=3, parts=PARTS)
    parser.add_argument("--directory", type=Path, help="where the streams go, for a while")
    given = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    bench = Bench(3 if given.quick else 7)
    with recorded(bench, given), tempfile.TemporaryDirectory(dir=given.directory) as place:
        for name in given.only or PARTS:
            PARTS[name](bench, Data(given.seed), Path(place), given.quick)


if __name__ == "__main__":
    main()

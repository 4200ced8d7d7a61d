"""What a stream's history costs those at its end: a wake-up, the next offset and a new segment, at several lengths."""

from __future__ import annotations

import gc
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from figures import CPU_RATE, Recorder, at_least, at_most

from headgate.message import Message
from headgate.streams.format import OUTLINES_FILE
from headgate.streams.listing import list_segments
from headgate.streams.outlines import Outlines
from headgate.streams.stream import Stream
from headgate.streams.superstream import SuperStream

ROUNDS = 50
BURST = 100  # messages of a busy partition between two looks
FLAT = 2.0  # times the cost with the shortest history


def bench_history(bench: Recorder, place: Path, quick: bool) -> None:
    """Measure with more and more segments, then with more and more chunks in the last one."""
    bench.part("History: what a consumer at the end, and its writer, pay for what is behind them")
    for unit, sizes in (
        ("segments", (1, 100, 1_000) if quick else (1, 100, 1_000, 10_000)),
        ("chunks", (1, 100, 4_000) if quick else (1, 400, 4_000, 40_000)),
    ):
        first: dict[str, float] = {}
        for size in sizes:
            path = place / f"{unit}-{size}"
            _write(path, size, unit)
            for name, seconds in _measure(path).items():
                flat = at_most(FLAT * 1e3 * first[name]) if name in first else None
                first.setdefault(name, seconds)
                bench.add(f"{name}, {size:,} {unit}", seconds * 1e3, "ms CPU", flat)
            shutil.rmtree(path)


def _write(path: Path, size: int, unit: str) -> None:
    segment_bytes = 4096 if unit == "segments" else 1 << 30
    stream = Stream.create(
        path, fsync="never", segment_bytes=segment_bytes, max_bytes=1 << 40, chunk_messages=1
    )
    with stream, stream.producer() as producer:
        payload = bytes(segment_bytes if unit == "segments" else 1)
        for start in range(0, size, 1000):
            producer.publish_many([payload] * min(1000, size - start))
            producer.flush()
    stream = Stream.open(path)
    stream.reconfigure(segment_bytes=1 << 30)


def _measure(path: Path) -> dict[str, float]:
    with Stream.open(path) as stream, stream.producer() as producer:
        consumer = stream.consume(start="next", follow=True)

        def publish() -> None:
            producer.publish(b"x")
            producer.flush()

        def wake() -> None:
            assert consumer.poll() is not None
            assert consumer.poll() is None

        time.sleep(0.2)  # so that opening the stream is no longer a recent change
        publish(), wake()
        found = {
            "a tail's wake-up": _median(wake, before=publish),
            "next_offset": _median(lambda: stream.next_offset, before=publish),
        }
        consumer.close()
    return found | _measure_rolls(path)


def _measure_rolls(path: Path) -> dict[str, float]:
    """Measure what the process pays when every message begins a new segment."""
    with Stream.open(path) as stream:
        stream.reconfigure(segment_bytes=4096)
        with stream.producer() as producer, stream.consume(start="next", follow=True) as consumer:

            def publish_large() -> None:
                producer.publish(bytes(4096))
                producer.flush()

            def wake() -> None:
                assert consumer.poll() is not None
                assert consumer.poll() is None

            publish_large(), wake()
            time.sleep(1)  # the first look of retention asks every segment for its size
            found = {"publish into a new segment": _median(publish_large)}
            while consumer.poll() is not None:
                pass
            found["a tail's wake-up after a roll"] = _median(wake, before=publish_large)
            found["next_offset after a roll"] = _median(
                lambda: stream.next_offset, before=publish_large
            )
            start = time.process_time()
            for _ in range(ROUNDS):
                publish_large()
                time.sleep(0.02)
            found["a roll, all threads"] = (time.process_time() - start) / ROUNDS
    return found


ABSENT = "region = 'absent'"
_FRESH = f"""
import sys, time
from headgate.streams.stream import Stream
start = time.process_time()
with Stream.open(sys.argv[1]) as stream:
    assert not list(stream.scan({ABSENT!r}))
print(time.process_time() - start)
"""


def bench_absent(bench: Recorder, place: Path, quick: bool) -> None:
    """Ask for a value that no segment has, in a new process, and again in one that has asked before."""
    bench.part("An absent value: every segment is excluded by its outline")
    for tier in ("sealed segments", "logs"):
        for size in (30, 100, 300) if quick else (36, 360, 3_600):
            path = place / f"absent-{size}"
            _write_regions(path, size, seal=tier == "sealed segments")
            with_outlines = _ask_absent(path)
            (path / OUTLINES_FILE).unlink()
            without = _ask_absent(path)
            for name, bound in (("a new process", at_most(1_000)), ("again", at_most(100))):
                text = f"an absent value over {size:,} {tier}, {name}"
                spent = 1e3 * with_outlines[name]
                figure = bench.add(text, spent, "ms CPU", bound)
                bench.versus(figure, "without outlines", 1e3 * without[name])
            shutil.rmtree(path)


def _write_regions(path: Path, size: int, *, seal: bool) -> None:
    with Stream.create(path, fsync="never", indexed=["region"], segment_bytes=4096) as stream:
        with stream.producer() as producer:
            for n in range(size + 1):  # the last segment is not full
                headers = {"region": f"r{n % 50}", "n": n}
                producer.publish(bytes(4096), headers=headers)
                producer.flush()
        if seal:
            stream.seal()
        outlines = Outlines(path)
        outlines.complete(list_segments(path)[:-1])  # those that are still to be made


def _ask_absent(path: Path) -> dict[str, float]:
    command = [sys.executable, "-c", _FRESH, str(path)]
    fresh = [float(subprocess.check_output(command)) for _ in range(3)]
    warm = []
    with Stream.open(path) as stream:
        for _ in range(6):
            gc.collect()
            start = time.thread_time()
            assert not list(stream.scan(ABSENT))
            warm.append(time.thread_time() - start)
    return {"a new process": statistics.median(fresh), "again": statistics.median(warm[1:])}


def bench_partitions(bench: Recorder, place: Path, quick: bool) -> None:
    """Follow one busy partition beside more and more idle ones, far behind its end and close to it."""
    count = 20_000 if quick else 200_000
    bench.part(f"A super stream: {count:,} messages of one partition, followed beside idle ones")
    for partitions in (1, 8, 64, 256):
        path = place / f"super-{partitions}"
        with SuperStream.create(path, partitions, fsync="never") as stream:
            consumer = stream.consume(follow=True)
            with stream.producer() as producer:
                messages = [Message(bytes(50), headers={"n": n}) for n in range(count)]
                busy = producer.producers[-1]
                busy.publish_many(messages)
                busy.flush()
                behind = _consume(consumer, count)
                spent = 0.0
                for start in range(0, count // 4, BURST):
                    busy.publish_many(messages[start : start + BURST])
                    busy.flush()
                    spent += BURST / _consume(consumer, BURST)
            consumer.close()
        name = f"one of {partitions} partitions"
        bench.add(f"{name}, followed", behind, CPU_RATE, at_least(100_000))
        bursts = count // 4 / spent
        bench.add(f"{name}, in bursts of {BURST}", bursts, CPU_RATE, at_least(100_000))
        shutil.rmtree(path)


def _consume(consumer: Iterator[Message], count: int) -> float:
    """Return the messages per second of this thread's CPU."""
    start = time.thread_time()
    for _ in range(count):
        next(consumer)
    return count / (time.thread_time() - start)


def bench_consume(bench: Recorder, place: Path, quick: bool) -> None:
    """Consume the same stream as messages and as batches, in turns."""
    count = 100_000 if quick else 1_000_000
    bench.part(f"{count:,} messages, consumed to the end")
    with Stream.create(place / "consumed", fsync="never") as stream:
        with stream.producer() as producer:
            headers = [{"region": f"r{n % 50}", "n": n} for n in range(count)]
            producer.publish_many([Message(bytes(50), headers=found) for found in headers])
        rates: dict[str, list[float]] = {"messages": [], "batches": []}
        for _ in range(3):
            for name, found in rates.items():
                gc.collect()
                start = time.thread_time()
                if name == "messages":
                    rows = sum(1 for _ in stream.consume())
                else:
                    rows = sum(batch.num_rows for batch in stream.consume().batches())
                assert rows == count
                found.append(count / (time.thread_time() - start))
    messages, batches = (statistics.median(found) for found in rates.values())
    bench.add("consume(): messages", messages, CPU_RATE, at_least(400_000))
    figure = bench.add("consume().batches(): rows", batches, CPU_RATE)
    bench.versus(figure, "the same as messages", messages)
    shutil.rmtree(place / "consumed")


def _median(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """Return the seconds of this thread's CPU that `work` takes."""
    gc.collect()
    spent = []
    for _ in range(ROUNDS):
        before()
        start = time.thread_time()
        work()
        spent.append(time.thread_time() - start)
    return statistics.median(spent)

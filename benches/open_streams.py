"""Many open streams in one process, each with a producer and a consumer that follows it: what they cost while nothing happens."""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

from figures import Recorder, at_most

from headgate.streams.read.consumer import StreamConsumer
from headgate.streams.stream import Stream
from headgate.streams.write.producer import Producer

SETTLED_S = 3.0  # after the last sync by the clock


def bench_open_streams(bench: Recorder, place: Path, quick: bool) -> None:
    """Measure threads, inotify instances, idle CPU and the way of a message at three numbers of streams."""
    bench.part("Open streams, each with a producer and a following consumer in a thread")
    for number in (10, 30, 100) if quick else (10, 100, 1_000):
        with _open(place / f"open-{number}", number) as (producers, arrivals):
            own = threading.active_count() - number - 1
            instances, idle = _count_instances(), _idle_share(2.0 if quick else 10.0)
            waits = list(_wake_ups(producers, arrivals, 100 if quick else 500))
        text = f"{number:,} open streams"
        bench.add(f"{text}: threads beside the consumers'", own, "", at_most(3))
        bench.add(f"{text}: inotify instances", instances, "", at_most(1))
        bench.add(f"{text}: idle CPU", idle * 100, "%", at_most(1))
        bench.add(f"{text}: publish to consume, p50", statistics.median(waits) * 1e3, "ms")
        shutil.rmtree(place / f"open-{number}")


@contextmanager
def _open(place: Path, number: int) -> Iterator[tuple[list[Producer], SimpleQueue[float]]]:
    arrivals: SimpleQueue[float] = SimpleQueue()
    with ExitStack() as stack:
        streams = [stack.enter_context(Stream.create(place / str(n))) for n in range(number)]
        producers = [stream.producer() for stream in streams]
        consumers = [stream.consume(follow=True) for stream in streams]
        threads = [threading.Thread(target=_follow, args=(c, arrivals)) for c in consumers]
        for thread in threads:
            thread.start()
        for producer in producers:
            producer.publish(b"first")
            arrivals.get(timeout=60)
        time.sleep(SETTLED_S)
        yield producers, arrivals
        for consumer, thread in zip(consumers, threads, strict=True):
            consumer.close()
            thread.join()


def _follow(consumer: StreamConsumer, arrivals: SimpleQueue[float]) -> None:
    for _ in consumer:
        arrivals.put(time.perf_counter())


def _count_instances() -> int:
    found = 0
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += "inotify" in str(file.readlink())
    return found


def _idle_share(seconds: float) -> float:
    began, spent = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - spent) / (time.perf_counter() - began)


def _wake_ups(
    producers: list[Producer], arrivals: SimpleQueue[float], number: int
) -> Iterator[float]:
    """Yield the seconds from a publish until the consumer has the message; the linger of 1 ms is part of it."""
    for n in range(number):
        sent = time.perf_counter()
        producers[n * 7 % len(producers)].publish(b"x")
        yield arrivals.get(timeout=60) - sent

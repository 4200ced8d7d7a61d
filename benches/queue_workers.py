"""Workers on one queue: a consumer beside huey's storage, four processes beside one, and who is woken for a message."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import queue_peers as peers
from figures import RATE, TIMES, Recorder, at_least, at_most

from headgate.queues.database import connect
from headgate.queues.queue import Queue

PROCESSES = 4
BATCHES = (1, 10, 100)
SYNCHRONOUS = ("FULL", "NORMAL")

# Takes and acks until the queue is empty; a line from outside starts it.
TAKER = """
import sys, time
from headgate.queues.database import connect
with connect(sys.argv[1]) as db:
    queue, batch, taken, held = db.queue("workers"), int(sys.argv[2]), 0, []
    print("ready", flush=True)
    sys.stdin.readline()
    while held := queue.ack_and_claim(held, batch):
        taken += len(held)
    print(f"[{taken}, {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}]", flush=True)
"""
# Consumes in ten threads until a line comes from outside; reports how many messages, and how many empty claims.
CONSUMER = """
import sys, threading, time
from headgate.queues.database import connect
from headgate.tally import QUEUES
lock, handled = threading.Lock(), 0
def handle(delivery):
    global handled
    with lock:
        handled += 1
with connect(sys.argv[1]) as db:
    with db.queue("workers").consumer(handle, mode="notify", threads=10):
        time.sleep(1)
        before = QUEUES.read("empty_claims")
        print("ready", flush=True)
        sys.stdin.readline()
        print(f"[{handled}, {QUEUES.read('empty_claims') - before}]", flush=True)
"""


def workers(
    bench: Recorder, engine: str, url: str, directory: Path | None, count: int, rounds: int
) -> None:
    """`count` messages a round and process; `directory` for files of others, on SQLite."""
    if directory is not None:
        one_by_one(bench, engine, url, directory, count, rounds)
    with connect(url) as db:
        queue = db.queue("workers")
        several(bench, engine, url, queue, count, rounds)
        spread(bench, engine, url, queue)
        queue.delete()


def one_by_one(
    bench: Recorder, engine: str, url: str, directory: Path, count: int, rounds: int
) -> None:
    """A worker that handles one message after the other: a consumer as it is by default, and huey's storage."""
    bench.part(f"{engine}: a worker that handles {count} messages, one after the other")
    for level in SYNCHRONOUS:
        try:
            with (
                connect(url, synchronous=level) as db,
                peers.huey(directory / level, level) as huey,
            ):
                _one_by_one(bench, engine, level, db.queue("workers"), huey, count, rounds)
        except ImportError as missing:
            print(f"  left out: huey ({missing})")


def _one_by_one(
    bench: Recorder,
    engine: str,
    level: str,
    queue: Queue,
    huey: peers.Peer,
    count: int,
    rounds: int,
) -> None:
    rates: dict[str, list[float]] = {"ours": [], "huey": []}
    for _ in range(rounds):
        queue.publish_many([peers.BODY] * count)
        rates["ours"].append(_rate(count, lambda: _consume(queue, count)))
        huey.put(count)
        rates["huey"].append(_rate(count, lambda: huey.take(count)))
    ours, theirs = (statistics.median(found) for found in rates.values())
    row = bench.add(f"{engine}, a consumer, synchronous={level}", ours, RATE)
    note = f"both synchronous={level}; huey deletes what it takes, without a lease"
    bench.versus(row, "huey", theirs, at_least(1), note=note)


def _consume(queue: Queue, count: int) -> None:
    """Handle that many messages by a consumer with default options."""
    handled = threading.Semaphore(0)
    with queue.consumer(lambda delivery: handled.release()):
        for _ in range(count):
            handled.acquire()


def _rate(count: int, act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return count / (time.perf_counter() - began)


def several(bench: Recorder, engine: str, url: str, queue: Queue, count: int, rounds: int) -> None:
    bench.part(f"{engine}: {PROCESSES} processes that take and finish, beside one")
    for batch in BATCHES:
        rates: dict[int, list[float]] = {1: [], PROCESSES: []}
        messages = count * min(batch, 20)
        for _ in range(rounds):
            for processes, found in rates.items():
                for at in range(0, messages, 1_000):
                    queue.publish_many([peers.BODY] * min(1_000, messages - at))
                found.append(_drain(url, batch, processes, messages))
        one, many = (statistics.median(found) for found in rates.values())
        name = f"{engine}, {PROCESSES} processes / one, batches of {batch}"
        bench.add(name, many / one, TIMES, at_least(1), note=f"{many:,.0f}/s, one {one:,.0f}/s")


def _drain(url: str, batch: int, processes: int, messages: int) -> float:
    with _started(TAKER, processes, url, str(batch)) as running:
        began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        answers = _ask(running)
    assert sum(taken for taken, _ in answers) == messages
    return messages / ((max(at for _, at in answers) - began) / 1e9)


def spread(bench: Recorder, engine: str, url: str, queue: Queue, messages: int = 50) -> None:
    bench.part(f"{engine}: one message at a time for {PROCESSES} idle processes of 10 threads")
    with _started(CONSUMER, PROCESSES, url) as running:
        for _ in range(messages):
            queue.publish(b"")
            time.sleep(0.02)
        time.sleep(0.5)  # on a busy machine the last message is still on its way
        answers = _ask(running)
    assert sum(handled for handled, _ in answers) == messages
    empty = sum(claims for _, claims in answers) / messages
    name = f"{engine}, empty claims a message, {PROCESSES} processes"
    bench.add(name, empty, "", at_most(2), note=f"{[handled for handled, _ in answers]} handled")


@contextmanager
def _started(program: str, processes: int, *arguments: str) -> Iterator[list[Any]]:
    """Processes that are ready to begin."""
    command = [sys.executable, "-c", program, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **pipes) for _ in range(processes)]
    for process in running:
        assert process.stdout.readline() == "ready\n"
    yield running
    for process in running:
        process.wait()


def _ask(running: list[Any]) -> list[Any]:
    """Give each a line, and return their answers."""
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    return [json.loads(process.stdout.readline()) for process in running]

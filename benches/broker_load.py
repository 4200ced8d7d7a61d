"""The broker under load: connections, queues and bindings in number, bad neighbours, a large message, delayed messages."""

from __future__ import annotations

import ctypes
import multiprocessing
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing import Process
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import Final

from amqp_client import Client, connected, encode_publish
from broker import Served, in_process, publish, served
from figures import RATE, Recorder, at_least, at_most
from reports import options, recorded

from headgate.amqp.methods import FRAME, method_frame
from headgate.amqp.properties import content_header, encode_properties

CONNECT_S = 3.0
CONNECTS = 200  # a second
CLOSED_S = 3.0  # after which the broker has let go of a connection that was closed
MB = 1e6
ABOVE = 300_000_000  # bytes of memory that a flood may take, above what a broker needs at its start


def flood(port: int, seconds: float, queue: str = "unread", size: int = 1_000, durable: bool = False) -> None:  # fmt: skip
    """Publish without waiting for anything."""
    message = encode_publish(queue, durable=durable, body=b"x" * size)
    messages = message * max(1, 100_000 // len(message))
    with connected(port) as client:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            client.socket.sendall(messages)


def connect_steadily(port: int, seconds: float, made: Synchronized[int]) -> None:
    """Connect, open a channel and close, so many times a second, or as many as can be."""
    began = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        time.sleep(max(0.0, began + made.value / CONNECTS - now))
        with connected(port) as client:
            client.call(0, "connection.close", 200, "", 0, 0)
        made.value += 1


def times_beside(process: Process, ask: Callable[[], object]) -> list[float]:
    """How long a client waits for an answer, again and again while a process runs; in seconds."""
    times: list[float] = []
    while process.is_alive():
        began = time.perf_counter()
        ask()
        times.append(time.perf_counter() - began)
        time.sleep(0.002)
    process.join()
    return times


def bench_connections(bench: Recorder, broker: Served, quick: bool) -> None:
    count = 200 if quick else 1_000
    bench.part(f"{count:,} idle connections, then as many short ones as come")
    before = broker.memory
    clients = [Client(broker.port) for _ in range(count)]
    bench.add("memory of an idle connection", (broker.memory - before) / count / 1e3, "kB")
    began, made = time.monotonic(), 0
    while time.monotonic() - began < CONNECT_S * (1 if quick else 20):
        with connected(broker.port):
            made += 1
    bench.add("connects", made / (time.monotonic() - began), RATE)
    for client in clients:
        client.close()


def bench_connects(bench: Recorder, broker: Served, quick: bool) -> None:
    seconds = 6.0 if quick else 60.0
    bench.part(f"{CONNECTS} connects a second for {seconds:.0f} s: connect, open a channel, close")
    made = multiprocessing.Value(ctypes.c_int, 0)
    with connected(broker.port) as other:
        other.declare("served", **{"x-max-length": 100})  # its messages are not what is measured
        other.call(1, "confirm.select", False)
        message = encode_publish("served")

        def confirm() -> None:
            other.socket.sendall(message)
            other.read()

        in_process(connect_steadily, broker.port, 5.0, made).join()  # as much memory as it takes
        time.sleep(CLOSED_S)
        before, made.value = broker.memory, 0
        connecting = in_process(connect_steadily, broker.port, seconds, made)
        times = times_beside(connecting, confirm)
    bench.add("connects reached", made.value / seconds, RATE, at_least(0.95 * CONNECTS))
    bench.add("p99 of another client's confirm", quantiles(times, n=100)[98] * 1e3, "ms")
    time.sleep(CLOSED_S)
    bench.add("memory that a connect leaves", (broker.memory - before) / made.value / 1e3, "kB", at_most(1))  # fmt: skip


def bench_floods(bench: Recorder, quick: bool) -> None:
    bench.part("Two publishers that never wait, 300 MB above its start as the memory alarm")
    seconds = 8.0 if quick else 30.0
    for name, size, durable in (
        ("transient messages of 1 kB, all in memory", 1_000, None),
        ("transient messages of 1 kB", 1_000, False),
        ("durable messages of 1 kB", 1_000, True),
        ("durable messages of 100 kB", 100_000, True),
    ):
        with tempfile.TemporaryDirectory() as place:
            data = None if durable is None else Path(place) / "data"
            with served(data) as idle:
                limit = idle.memory + ABOVE
            with served(data, "--set", f"alarms.memory={limit}") as broker:
                _flood(bench, broker, name, seconds, size, bool(durable))


def _flood(bench: Recorder, broker: Served, name: str, seconds: float, size: int, durable: bool) -> None:  # fmt: skip
    with connected(broker.port) as other:
        queues = ("unread", "unread too")
        for queue in queues:
            other.declare(queue, durable)
        before, peak = broker.memory, 0

        def ask() -> None:
            nonlocal peak
            other.call(1, "queue.declare", 0, "unread", True, False, False, False, False, {})
            peak = max(peak, broker.memory)

        flooding = [in_process(flood, broker.port, seconds, q, size, durable) for q in queues]
        ending = threading.Timer(seconds + 1, lambda: [process.kill() for process in flooding])
        ending.start()  # one that is blocked does not end by itself
        times = times_beside(flooding[0], ask)
        flooding[1].join()
        ending.cancel()
        bench.add(f"{name}: most memory above the start", (peak - before) / MB, "MB", at_most(1.5 * ABOVE / MB))  # fmt: skip
        bench.add(f"{name}: p99 of another client's answer", quantiles(times, n=100)[98] * 1e3, "ms")  # fmt: skip
        for queue in queues:
            other.call(1, "queue.purge", 0, queue, False)
        began = time.monotonic()
        publish(broker.port, 100, encode_publish("unread"))  # waits until the alarm is cleared
        bench.add(f"{name}: publishers go on after a purge within", time.monotonic() - began, "s", at_most(5))  # fmt: skip


def bench_names(bench: Recorder, broker: Served, quick: bool) -> None:
    queues, bindings = (2_000, 5_000) if quick else (10_000, 100_000)
    bench.part(f"{queues:,} queues, {bindings:,} bindings")
    with connected(broker.port) as client:
        before, began = broker.memory, time.monotonic()
        for number in range(queues):
            client.declare(f"load-{number}")
        bench.add("queues declared", queues / (time.monotonic() - began), RATE)
        bench.add("memory of a queue", (broker.memory - before) / queues / 1e3, "kB")
        before, began = broker.memory, time.monotonic()
        for number in range(bindings):
            queue = f"load-{number % queues}"
            client.call(1, "queue.bind", 0, queue, "amq.topic", f"a.{number}.#", False, {})
        bench.add("bindings made", bindings / (time.monotonic() - began), RATE)
        bench.add("memory of a binding", (broker.memory - before) / bindings / 1e3, "kB")


def bench_neighbours(bench: Recorder, broker: Served, quick: bool) -> None:
    bench.part("a consumer that never reads, a publisher that never waits: the others")
    seconds = 4.0 if quick else 20.0
    with connected(broker.port) as deaf, connected(broker.port) as other:
        deaf.declare("unread")
        deaf.call(1, "basic.consume", 0, "unread", "deaf", False, True, False, False, {})
        other.declare("served", **{"x-max-length": 100})  # its messages are not what is measured
        other.call(1, "confirm.select", False)
        message, times = encode_publish("served"), []
        flooding = in_process(flood, broker.port, seconds)
        while flooding.is_alive():
            began = time.perf_counter()
            other.socket.sendall(message)
            other.read()
            times.append(time.perf_counter() - began)
        flooding.join()
    bench.add("p99 of a confirm", quantiles(times, n=100)[98] * 1e3, "ms")
    bench.add("memory of the broker", broker.memory / MB, "MB")


def bench_large_message(bench: Recorder, broker: Served, quick: bool) -> None:
    size = (16 if quick else 128) << 20
    bench.part(f"one message of {size >> 20} MB")
    header = content_header(encode_properties({}), size)
    piece = FRAME.pack(3, 1, 65_536) + b"x" * 65_536 + b"\xce"
    with connected(broker.port) as client:
        client.declare("large")
        client.call(1, "confirm.select", False)
        began = time.monotonic()
        client.socket.sendall(method_frame(1, "basic.publish", 0, "", "large", False, False))
        client.socket.sendall(FRAME.pack(2, 1, len(header)) + header + b"\xce")
        for _ in range(size // 65_536):
            client.socket.sendall(piece)
        client.read()
        bench.add("confirmed", size / MB / (time.monotonic() - began), "MB/s")
        client.call(1, "queue.purge", 0, "large", False)


def bench_delays(bench: Recorder, broker: Served, quick: bool) -> None:
    count, least, spread = (20_000, 2_000, 4_000) if quick else (1_000_000, 90_000, 100_000)
    bench.part(f"{count:,} delayed messages, which fall due within {spread // 1_000} s")
    order = Random(7)
    with connected(broker.port) as client:
        arguments = {"x-delayed-type": "direct"}
        declared = (0, "later", "x-delayed-message", False, False, False, False, False, arguments)
        client.call(1, "exchange.declare", *declared)
        client.declare("due")
        client.call(1, "queue.bind", 0, "due", "later", "due", False, {})
        client.call(1, "confirm.select", False)
        before, sent, confirmed = broker.memory, 0, 0
        for _ in range(count // 100):
            delay_ms = least + order.randrange(spread)
            body = struct.pack(">d", time.time() + delay_ms / 1e3)
            message = encode_publish("due", "later", headers={"x-delay": delay_ms}, body=body)
            client.socket.sendall(message * 100)
            sent += 100
            while confirmed < sent:  # else the time in the socket would count as lateness
                confirmed = struct.unpack_from(">Q", client.read()[1], 4)[0]
        client.call(1, "basic.consume", 0, "due", "c", False, True, False, False, {})
        bench.add("memory of a delayed message", (broker.memory - before) / count / 1e3, "kB")
        late: list[float] = []
        while len(late) < count:
            kind, payload = client.read()
            if kind == 3:
                late.append(time.time() - struct.unpack(">d", payload)[0])
    bound = None if quick else at_most(100)
    bench.add("p99 lateness", quantiles(late, n=100)[98] * 1e3, "ms", bound)


def bench_load(bench: Recorder, quick: bool) -> None:
    bench_floods(bench, quick)
    for part in PARTS.values():
        with served() as broker:
            part(bench, broker, quick)


PARTS: Final[dict[str, Callable[[Recorder, Served, bool], None]]] = {
    "connections": bench_connections,
    "connects": bench_connects,
    "names": bench_names,
    "neighbours": bench_neighbours,
    "large": bench_large_message,
    "delays": bench_delays,
}


def main() -> None:
    given = options(__doc__ or "").parse_args()
    bench = Recorder("broker")  # whose bench ends with these figures
    with recorded(bench, given):
        bench_load(bench, given.quick)


if __name__ == "__main__":
    main()

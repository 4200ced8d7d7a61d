"""The broker under load: connections, queues and bindings in number, bad neighbours, a large message, delayed messages."""

from __future__ import annotations

import struct
import time
from random import Random
from statistics import quantiles

from amqp import Served, in_process, served
from amqp_client import Client, connected, encode_publish
from figures import RATE, Recorder, at_most
from reports import options, recorded

from headgate.amqp.methods import FRAME, method_frame
from headgate.amqp.properties import content_header, encode_properties

CONNECT_S = 3.0
MB = 1e6


def flood(port: int, seconds: float) -> None:
    """Publish without waiting for anything."""
    message = encode_publish("unread", body=b"x" * 1_000) * 100
    with connected(port) as client:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            client.socket.sendall(message)


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
        other.declare("served")
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
        before = broker.memory
        for _ in range(count // 100):
            delay_ms = least + order.randrange(spread)
            body = struct.pack(">d", time.time() + delay_ms / 1e3)
            message = encode_publish("due", "later", headers={"x-delay": delay_ms}, body=body)
            client.socket.sendall(message * 100)
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
    parts = (bench_connections, bench_names, bench_neighbours, bench_large_message, bench_delays)
    for part in parts:
        with served() as broker:
            part(bench, broker, quick)


def main() -> None:
    given = options(__doc__ or "").parse_args()
    bench = Recorder("amqp")  # whose bench ends with these figures
    with recorded(bench, given):
        bench_load(bench, given.quick)


if __name__ == "__main__":
    main()

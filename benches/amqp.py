"""The broker: messages by the clock and by its CPU time, delays beside a flood, memory, and start-up with a long queue."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import Process
from pathlib import Path

from amqp_client import BATCH, Client, connected, encode_publish, wait_until_open
from figures import CPU_RATE, RATE, Recorder, at_least, at_most
from reports import options, recorded

TICKS = os.sysconf("SC_CLK_TCK")


class Served:
    """`headgate serve` in a process of its own."""

    def __init__(self, data: Path | None, port: int = 0) -> None:
        place = ["--memory"] if data is None else ["--data", str(data)]
        command = [
            sys.executable,
            "-m",
            "headgate",
            "serve",
            "--amqp-port",
            str(port),
            "--http-port",
            "0",
            *place,
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"AMQP 0-9-1 +\S+:(\d+)", line):
                self.port = int(found[1])
            if found := re.search(r"http://\S+?:(\d+)", line):
                self.http_port = int(found[1])
            if line.startswith("Ctrl-C"):
                return
        raise RuntimeError("the broker did not start")

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def memory(self) -> int:
        """Bytes of resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return int(found[1]) * 1024 if found else 0

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def served(data: Path | None = None) -> Iterator[Served]:
    broker = Served(data)
    try:
        yield broker
    finally:
        broker.end()


def in_process(call: Callable[..., None], *arguments: object) -> Process:
    process = Process(target=call, args=arguments)
    process.start()
    return process


def publish(port: int, count: int, message: bytes, batch: int = BATCH) -> None:
    with connected(port) as client:
        client.publish(count, message, batch)


def bench_throughput(bench: Recorder, place: Path, quick: bool) -> None:
    bench.part("Throughput: 100 bytes and 5 headers a message, confirms for each, one ack for each")
    count = 30_000 if quick else 300_000
    for durable in (False, True):
        name = "durable" if durable else "transient"
        with served(place / name if durable else None) as broker:
            message = encode_publish("q", durable=durable)
            with connected(broker.port) as client:
                client.declare("q", durable)
            bound = at_least(50_000) if durable else None
            _rate(bench, broker, f"{name}, publish and confirm", count, bound, partial(publish, broker.port, count, message))  # fmt: skip
            _rate(bench, broker, f"{name}, consume and ack", count, None, partial(_consume, broker.port, "q", count, message))  # fmt: skip
            _rate(
                bench,
                broker,
                f"{name}, publish, confirm, consume and ack at once",
                count,
                at_least(30_000) if durable else None,
                partial(_both, broker.port, count, message),
                cpu_bound=None if durable else 100_000,
            )


def _consume(port: int, queue: str, count: int, message: bytes) -> None:
    with connected(port) as client:
        client.consume(queue, count, message)


def _both(port: int, count: int, message: bytes) -> None:
    publisher = in_process(publish, port, count, message)
    _consume(port, "q", count, message)
    publisher.join()


def _rate(
    bench: Recorder,
    broker: Served,
    name: str,
    count: int,
    bound: object,
    work: Callable[[], object],
    cpu_bound: int | None = None,
) -> None:
    cpu, began = broker.cpu_s, time.monotonic()
    work()
    seconds, cpu = time.monotonic() - began, broker.cpu_s - cpu
    bench.add(name, count / seconds, RATE, bound)  # type: ignore[arg-type]
    limit = None if cpu_bound is None else at_least(cpu_bound)
    bench.add(f"{name}, by CPU", count / max(cpu, 0.01), CPU_RATE, limit)


def bench_routing(bench: Recorder, quick: bool) -> None:
    bench.part("Routing: a headers exchange, and a fan-out")
    count = 20_000 if quick else 200_000
    with served() as broker, connected(broker.port) as client:
        for bindings in (10, 100, 1_000):
            exchange = f"headers-{bindings}"
            client.call(1, "exchange.declare", 0, exchange, "headers", False, False, False, False, False, {})  # fmt: skip
            for number in range(bindings):
                client.declare(f"h{number}", **{"x-max-length": 1_000})
                arguments = {"x-match": "all", "tenant": f"t{number}", "region": "EMEA"}
                client.call(1, "queue.bind", 0, f"h{number}", exchange, "", False, arguments)
            message = encode_publish(
                "", exchange, headers={"region": "EMEA", "tenant": "t7", "n": 1}
            )
            bound = at_least(80_000) if bindings == 1_000 else None
            _rate(bench, broker, f"headers exchange, {bindings:,} bindings", count, bound, partial(publish, broker.port, count, message))  # fmt: skip
        for number in range(100):
            client.declare(f"f{number}", **{"x-max-length": 1_000})
            client.call(1, "queue.bind", 0, f"f{number}", "amq.fanout", "", False, {})
        count //= 20
        _rate(bench, broker, "fan-out to 100 queues, publishes", count, None, lambda: publish(broker.port, count, encode_publish("", "amq.fanout")))  # fmt: skip


def bench_delay(bench: Recorder, quick: bool) -> None:
    bench.part(
        "Delay: 200 messages a second, alone, and beside a connection that publishes as fast as it can"
    )
    count = 200 if quick else 2_000
    with served() as broker:
        for name, flood in (("alone", False), ("beside a flood", True)):
            flooding = None
            if flood:
                with connected(broker.port) as client:
                    client.declare("flood", **{"x-max-length": 10_000})
                flooding = in_process(publish, broker.port, 1 << 40, encode_publish("flood"))
            try:
                delays = _delays(broker.port, count)
            finally:
                if flooding is not None:
                    flooding.kill()
                    flooding.join()
            p99 = statistics.quantiles(delays, n=100)[98] * 1e3
            p50 = statistics.median(delays) * 1e3
            bench.add(f"transient, {name}, p50", p50, "ms", None if flood else at_most(1))
            bench.add(f"transient, {name}, p99", p99, "ms", at_most(5) if flood else None)


def _delays(port: int, count: int) -> list[float]:
    """Seconds from sending a message until it is received."""
    found: list[float] = []
    with connected(port) as client, connected(port) as receiver:
        client.declare("d")
        receiver.call(1, "basic.consume", 0, "d", "c", False, True, False, False, {})

        def receive() -> None:
            for body in receiver.deliveries():
                found.append(time.monotonic() - float(body))
                if len(found) == count:
                    return

        thread = threading.Thread(target=receive)
        thread.start()
        due = time.monotonic()
        for _ in range(count):
            due += 1 / 200
            time.sleep(max(0.0, due - time.monotonic()))
            client.socket.sendall(encode_publish("d", body=b"%.9f" % time.monotonic()))
        thread.join()
    return found


def bench_memory(bench: Recorder, place: Path, quick: bool) -> None:
    bench.part("Memory and start-up: queues that grow, connections that idle")
    with served() as broker, connected(broker.port) as client:
        client.declare("m")
        before = broker.memory
        count = 20_000
        publish(broker.port, count, encode_publish("m"))
        bench.add("memory of a queued message of 245 bytes", (broker.memory - before) / count, "B", at_most(600))  # fmt: skip
        before = broker.memory
        clients = [Client(broker.port) for _ in range(200 if quick else 1_000)]
        each = (broker.memory - before) / len(clients)
        bench.add("memory of 1,000 idle connections", each * 1_000 / 1e6, "MB", at_most(60))
        for one in clients:
            one.close()
    for count in (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000):
        data = place / f"long-{count}"
        with served(data) as broker, connected(broker.port) as client:
            client.declare("long", True)
            publish(broker.port, count, encode_publish("long", durable=True))
            bench.add(f"memory with {count:,} durable messages", broker.memory / 1e6, "MB")
        began = time.monotonic()
        again = Served(data)
        wait_until_open(again.port)
        bound = at_most(5) if count == 1_000_000 else None
        bench.add(f"start-up with {count:,} durable messages", time.monotonic() - began, "s", bound)
        again.end()


def main() -> None:
    given = options(__doc__ or "").parse_args()
    bench = Recorder("amqp")
    with recorded(bench, given), tempfile.TemporaryDirectory() as place:
        bench_throughput(bench, Path(place), given.quick)
        bench_routing(bench, given.quick)
        bench_delay(bench, given.quick)
        bench_memory(bench, Path(place), given.quick)
        from broker_api import bench_api  # which uses the functions above

        bench_api(bench, given.quick)
        from broker_pages import bench_pages

        bench_pages(bench, given.quick)
        from broker_load import bench_load

        bench_load(bench, given.quick)


if __name__ == "__main__":
    main()

"""The broker: messages by the clock and by its CPU time, delays beside a flood, memory, and start-up with a long queue.

AMQP_URL=amqp://guest:guest@127.0.0.1:5672/ names a RabbitMQ that is measured beside it, with fewer messages.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import Process
from pathlib import Path

from amqp_client import BATCH, Client, Place, connected, encode_publish, wait_until_open
from amqp_peer import Peer, cpu_seconds, peers
from figures import CPU_RATE, RATE, Bound, Recorder, at_least, at_most
from reports import options, recorded

SLOWER = 3  # times fewer messages for a peer


class Served:
    """`headgate serve` in a process of its own."""

    def __init__(self, data: Path | None, port: int = 0, more: Sequence[str] = ()) -> None:
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
            *more,
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
    def place(self) -> Place:
        return self.port

    @property
    def cpu_s(self) -> float:
        return cpu_seconds(self.process.pid)

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
def served(data: Path | None = None, *more: str) -> Iterator[Served]:
    broker = Served(data, more=more)
    try:
        yield broker
    finally:
        broker.end()


def in_process(call: Callable[..., None], *arguments: object) -> Process:
    process = Process(target=call, args=arguments)
    process.start()
    return process


def publish(place: Place, count: int, message: bytes, batch: int = BATCH) -> None:
    with connected(place) as client:
        client.publish(count, message, batch)


def bench_throughput(bench: Recorder, data: Path, quick: bool) -> None:
    bench.part("Throughput: 100 bytes and 5 headers a message, confirms for each, one ack for each")
    count = 30_000 if quick else 300_000
    for durable in (False, True):
        name = "durable" if durable else "transient"
        message = encode_publish("q", durable=durable)
        with served(data / name if durable else None) as broker:
            brokers = [broker, *peers()]
            for each in brokers:
                with connected(each.place) as client:
                    client.declare_anew("q", durable)
            rate = partial(_rate, bench, brokers, count)
            bound = at_least(50_000) if durable else None
            rate(
                f"{name}, publish and confirm",
                lambda place, n, m=message: publish(place, n, m),
                bound,
            )
            rate(f"{name}, consume and ack", lambda place, n, m=message: _consume(place, "q", n, m))
            rate(
                f"{name}, publish, confirm, consume and ack at once",
                lambda place, n, m=message: _both(place, n, m),
                at_least(30_000) if durable else None,
                cpu_bound=None if durable else at_least(100_000),
            )


def _consume(place: Place, queue: str, count: int, message: bytes) -> None:
    with connected(place) as client:
        client.consume(queue, count, message)


def _both(place: Place, count: int, message: bytes) -> None:
    publisher = in_process(publish, place, count, message)
    _consume(place, "q", count, message)
    publisher.join()


def _rate(
    bench: Recorder,
    brokers: Sequence[Served | Peer],
    count: int,
    name: str,
    work: Callable[[Place, int], object],
    bound: Bound | None = None,
    *,
    cpu_bound: Bound | None = None,
    slower: int = SLOWER,
) -> None:
    """Measure work with so many messages, on our broker, and with fewer on its peers."""
    ours, *others = brokers
    by_clock, by_cpu = _speed(ours, count, work)
    assert by_cpu is not None
    clock = bench.add(name, by_clock, RATE, bound)
    cpu = bench.add(f"{name}, by CPU", by_cpu, CPU_RATE, cpu_bound)
    for peer in others:
        assert isinstance(peer, Peer)
        by_clock, by_cpu = _speed(peer, count // slower, work)
        bench.versus(clock, peer.name, by_clock)
        if by_cpu is not None:
            bench.versus(cpu, peer.name, by_cpu)


def _speed(
    broker: Served | Peer, count: int, work: Callable[[Place, int], object]
) -> tuple[float, float | None]:
    """Messages a second by the clock and by the broker's CPU time."""
    cpu, began = broker.cpu_s, time.monotonic()
    work(broker.place, count)
    seconds, spent = time.monotonic() - began, broker.cpu_s
    by_cpu = None if cpu is None or spent is None else count / max(spent - cpu, 0.01)
    return count / seconds, by_cpu


def bench_routing(bench: Recorder, quick: bool) -> None:
    bench.part("Routing: a headers exchange, and a fan-out")
    count = 20_000 if quick else 200_000
    with served() as broker:
        brokers = [broker, *peers()]
        for bindings in (10, 100, 1_000):
            exchange = f"headers-{bindings}"
            for each in brokers:
                with connected(each.place) as client:
                    _bind_by_headers(client, exchange, bindings)
            message = encode_publish(
                "", exchange, headers={"region": "EMEA", "tenant": "t7", "n": 1}
            )
            _rate(
                bench,
                brokers,
                count,
                f"headers exchange, {bindings:,} bindings",
                lambda place, n, m=message: publish(place, n, m),
                at_least(80_000) if bindings == 1_000 else None,
                slower=min(bindings, 100),
            )
        for each in brokers:
            with connected(each.place) as client:
                for number in range(100):
                    client.declare_anew(f"f{number}", **{"x-max-length": 1_000})
                    client.call(1, "queue.bind", 0, f"f{number}", "amq.fanout", "", False, {})
        message = encode_publish("", "amq.fanout")
        _rate(bench, brokers, count // 20, "fan-out to 100 queues, publishes", lambda place, n: publish(place, n, message))  # fmt: skip
        for peer in brokers[1:]:
            with connected(peer.place) as client:
                for number in range(1_000):
                    client.delete(f"h{number}")
                    client.delete(f"f{number}")


def _bind_by_headers(client: Client, exchange: str, bindings: int) -> None:
    client.call(1, "exchange.declare", 0, exchange, "headers", False, False, False, False, False, {})  # fmt: skip
    for number in range(bindings):
        client.declare(f"h{number}", **{"x-max-length": 1_000})
        arguments = {"x-match": "all", "tenant": f"t{number}", "region": "EMEA"}
        client.call(1, "queue.bind", 0, f"h{number}", exchange, "", False, arguments)


def bench_delay(bench: Recorder, quick: bool) -> None:
    bench.part(
        "Delay: 200 messages a second, alone, and beside a connection that publishes as fast as it can"
    )
    count = 200 if quick else 2_000
    with served() as broker:
        for name, flood in (("alone", False), ("beside a flood", True)):
            p50, p99 = _delays(broker.place, count, flood)
            figures = (
                bench.add(f"transient, {name}, p50", p50, "ms", None if flood else at_most(1)),
                bench.add(f"transient, {name}, p99", p99, "ms", at_most(5) if flood else None),
            )
            for peer in peers():
                for figure, theirs in zip(figures, _delays(peer.place, count, flood), strict=True):
                    bench.versus(figure, peer.name, theirs)


def _delays(place: Place, count: int, flood: bool) -> tuple[float, float]:
    """Milliseconds from sending a message until it is received: median and 99th percentile."""
    flooding = None
    if flood:
        with connected(place) as client:
            client.declare_anew("flood", **{"x-max-length": 10_000})
        flooding = in_process(publish, place, 1 << 40, encode_publish("flood"))
    try:
        delays = _measure_delays(place, count)
    finally:
        if flooding is not None:
            flooding.kill()
            flooding.join()
    return statistics.median(delays) * 1e3, statistics.quantiles(delays, n=100)[98] * 1e3


def _measure_delays(place: Place, count: int) -> list[float]:
    found: list[float] = []
    with connected(place) as client, connected(place) as receiver:
        client.declare_anew("d")
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


def bench_memory(bench: Recorder, quick: bool) -> None:
    bench.part("Memory: queues that grow, connections that idle")
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


def bench_long_queues(bench: Recorder, place: Path, quick: bool) -> None:
    bench.part(
        "Long queues: durable messages, a restart, and all of them consumed and acknowledged"
    )
    short = 0.0
    for count in (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000, 10_000_000):
        data, message = place / f"long-{count}", encode_publish("long", durable=True)
        with served(data) as broker, connected(broker.port) as client:
            client.declare("long", True)
            publish(broker.port, count, message)
            bench.add(f"memory with {count:,} durable messages", broker.memory / 1e6, "MB")
        began = time.monotonic()
        with served(data) as broker:
            wait_until_open(broker.port)
            bound = at_most(5) if count == 1_000_000 else None
            bench.add(f"start-up with {count:,} durable messages", time.monotonic() - began, "s", bound)  # fmt: skip
            cpu = broker.cpu_s
            _consume(broker.port, "long", count, message)
            rate = count / (broker.cpu_s - cpu)
            goal = at_least(0.8 * short) if count > 100_000 else None
            bench.add(f"{count:,} consumed and acknowledged, by CPU", rate, CPU_RATE, goal)
            bench.add(f"memory after {count:,}", broker.memory / 1e6, "MB")
            short = rate if count == 100_000 else short
        shutil.rmtree(data)


def main() -> None:
    given = options(__doc__ or "").parse_args()
    bench = Recorder("broker")
    with recorded(bench, given), tempfile.TemporaryDirectory() as place:
        bench_throughput(bench, Path(place), given.quick)
        bench_routing(bench, given.quick)
        bench_delay(bench, given.quick)
        bench_memory(bench, given.quick)
        bench_long_queues(bench, Path(place), given.quick)
        from broker_api import bench_api  # which uses the functions above

        bench_api(bench, given.quick)
        from broker_pages import bench_pages

        bench_pages(bench, given.quick)
        from large_pages import bench_large_pages

        bench_large_pages(bench, Path(place) / "large", given.quick)
        from broker_load import bench_load

        bench_load(bench, given.quick)


if __name__ == "__main__":
    main()

"""The broker's HTTP API: what a poll costs with 10,000 queues, and messages beside one poll a second."""

from __future__ import annotations

import base64
import http.client
import multiprocessing
import time
from functools import partial
from multiprocessing.synchronize import Event

from amqp_client import connected, encode_publish
from broker import Served, in_process, publish, served
from figures import CPU_RATE, TIMES, Recorder, at_least, at_most
from reports import options, recorded

GUEST = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
# What a page or a monitor asks once a second: the totals, a page of queues, one queue.
POLL = ("/api/overview", "/api/queues?page=1&page_size=100", "/api/queues/%2F/busy")
PATHS = {
    "overview": "/api/overview",
    "a page of 100 queues": "/api/queues?page=1&page_size=100",
    "a page of 100 queues, sorted by messages": "/api/queues?page=1&page_size=100&sort=messages",
    "one queue": "/api/queues/%2F/busy",
    "all queues": "/api/queues",
    "names and lengths of all queues": "/api/queues?columns=name,messages",
}


def ask(connection: http.client.HTTPConnection, path: str) -> int:
    """Ask once; return the size of the answer."""
    connection.request("GET", path, headers=GUEST)
    answer = connection.getresponse()
    assert answer.status == 200, (path, answer.status)
    return len(answer.read())


def poll(port: int, stop: Event) -> None:
    """Ask what a monitor asks, once a second."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while not stop.wait(1.0):
        for path in POLL:
            ask(connection, path)


def declare_queues(broker: Served, count: int) -> None:
    with connected(broker.port) as client:
        for number in range(count):
            client.declare(f"idle-{number:05}")
        client.declare("busy")


def bench_polls(bench: Recorder, broker: Served, quick: bool) -> None:
    bench.part("CPU of the broker for one request, 10,000 queues; 50 ms would be 5 % of a second")
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port)
    polled = 0.0
    for name, path in PATHS.items():
        ask(connection, path)
        cpu, asked, began = broker.cpu_s, 0, time.monotonic()
        while asked < 3 or time.monotonic() - began < (1 if quick else 4):
            size = ask(connection, path)
            asked += 1
        each = (broker.cpu_s - cpu) / asked * 1e3
        polled += each if path in POLL else 0.0
        bench.add(f"{name}, {size / 1e3:,.0f} kB", each, "ms")
    bench.add("overview, a page and one queue together", polled, "ms", at_most(50))


def bench_beside_polls(bench: Recorder, broker: Served, quick: bool) -> None:
    bench.part("Messages published, confirmed, consumed and acknowledged, beside one poll a second")
    count, rounds = (60_000, 2) if quick else (400_000, 4)
    alone, beside = [], []
    for _ in range(rounds):
        alone.append(_cpu_of_messages(broker, count))
        stop = multiprocessing.Event()
        polling = in_process(poll, broker.http_port, stop)
        try:
            beside.append(_cpu_of_messages(broker, count))
        finally:
            stop.set()
            polling.join()
    bench.add("alone", count / min(alone), CPU_RATE)
    bench.add("polled", count / min(beside), CPU_RATE)
    bench.add("polled to alone", min(alone) / min(beside), TIMES, None if quick else at_least(0.95))


def _cpu_of_messages(broker: Served, count: int) -> float:
    """Seconds of CPU for this many messages."""
    message = encode_publish("busy")
    cpu = broker.cpu_s
    publisher = in_process(partial(publish, broker.port, count, message))
    with connected(broker.port) as client:
        client.consume("busy", count, message)
    publisher.join()
    return broker.cpu_s - cpu


def bench_api(bench: Recorder, quick: bool) -> None:
    with served() as broker:
        declare_queues(broker, 10_000)
        bench_polls(bench, broker, quick)
        bench_beside_polls(bench, broker, quick)


def main() -> None:
    given = options(__doc__ or "").parse_args()
    bench = Recorder("broker")  # whose bench ends with these figures
    with recorded(bench, given):
        bench_api(bench, given.quick)


if __name__ == "__main__":
    main()

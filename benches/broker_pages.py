"""An open page: the CPU time of the broker for each message with the overview open, next to that without it."""

from __future__ import annotations

import http.client
import multiprocessing
import statistics
import time
from multiprocessing.synchronize import Event

from amqp_client import connected, encode_publish
from broker import Served, in_process, publish, served
from broker_api import GUEST
from figures import TIMES, Recorder, at_most
from reports import options, recorded

ROUNDS = 3


def bench_pages(bench: Recorder, quick: bool) -> None:
    bench.part("CPU time of the broker for each message while the overview is open")
    count = 20_000 if quick else 200_000
    spent: dict[bool, list[float]] = {False: [], True: []}
    with served() as broker:
        with connected(broker.port) as client:
            client.declare("q", False)
        for _ in range(ROUNDS):
            for is_open in (False, True):
                spent[is_open].append(_spend(broker, count, is_open))
    ratio = statistics.median(spent[True]) / statistics.median(spent[False])
    bench.add("with a page open / without", ratio, TIMES, None if quick else at_most(1.05))


def _spend(broker: Served, count: int, is_open: bool) -> float:
    """Seconds of CPU time for so many messages in and out."""
    shown, ended = multiprocessing.Event(), multiprocessing.Event()
    page = in_process(watch, broker.http_port, shown, ended) if is_open else None
    if page is not None:
        shown.wait()
    message = encode_publish("q", durable=False)
    before = broker.cpu_s
    publisher = in_process(publish, broker.port, count, message)
    with connected(broker.port) as client:
        client.consume("q", count, message)
    publisher.join()
    spent = broker.cpu_s - before
    if page is not None:
        ended.set()
        page.join()
    return spent


def watch(port: int, shown: Event, ended: Event) -> None:
    """Open the overview, and read its live numbers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/", headers=GUEST)
    connection.getresponse().read()
    connection.request("GET", "/live", headers=GUEST)
    events = connection.getresponse()
    while not ended.is_set():
        events.readline()
        shown.set()
        time.sleep(0.05)
    connection.close()


def main() -> None:
    given = options(__doc__ or "").parse_args()
    bench = Recorder("pages")
    with recorded(bench, given):
        bench_pages(bench, given.quick)


if __name__ == "__main__":
    main()

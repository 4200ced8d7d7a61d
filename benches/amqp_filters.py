"""Filters at the broker: what a consumer does not want is examined, and not sent."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from amqp import Served, served
from amqp_client import Client, connected, encode_publish
from figures import CPU_RATE, RATE, Recorder, at_least
from reports import options, recorded

RABBITMQ_EXAMINED = 38_000  # messages a second that RabbitMQ 4.1 examines for a filter, at best
REGIONS = 100  # one of them is wanted


def bench_stream_queue(bench: Recorder, place: Path, quick: bool) -> None:
    bench.part("A stream queue: 100 bytes and 5 headers a message, one of 100 wanted, exact")
    count = 50_000 if quick else 1_000_000
    with served(place / "stream") as broker:
        with connected(broker.port) as client:
            client.declare("s", True, **{"x-queue-type": "stream"})
            began = time.monotonic()
            client.publish_buffer(count, _mixed("s"), REGIONS)
            bench.add("publish and confirm", count / (time.monotonic() - began), RATE)
        wanted = count // REGIONS
        goal = at_least(10 * RABBITMQ_EXAMINED)
        for name, filter, bound in (
            ("x-filter of an equality, examined", "region = 'r7'", goal),
            ("x-filter with LIKE and a range, examined", "region LIKE '%7' AND n < 8", goal),
            ("x-filter that matches nothing, examined", "region = 'none'", None),
            ("x-filter that matches everything, delivered", "n >= 0", None),
        ):
            matches = 0 if "none" in filter else count if ">=" in filter else wanted
            seconds, cpu = _consume(broker, filter, matches)
            bench.add(name, count / seconds, RATE, bound)
            bench.add(f"{name}, by CPU", count / max(cpu, 0.01), CPU_RATE)


def _mixed(queue: str) -> bytes:
    """One message for each region."""
    return b"".join(
        encode_publish(
            queue,
            headers={"region": f"r{n}", "n": n, "type": "invoice", "vip": True, "tenant": "acme"},
        )
        for n in range(REGIONS)
    )


def _consume(broker: Served, filter: str, matches: int) -> tuple[float, float]:
    """Seconds by the clock, and of the broker's CPU, until all matches are here and the next message is, too."""
    with connected(broker.port) as client, connected(broker.port) as publisher:
        client.call(1, "basic.qos", 0, 60_000, False)
        cpu, began = broker.cpu_s, time.monotonic()
        arguments = {"x-stream-offset": "first", "x-filter": f"({filter}) OR last = true"}
        client.call(1, "basic.consume", 0, "s", "c", False, False, False, False, arguments)
        _take(client, matches)
        publisher.publish(1, encode_publish("s", headers={"last": True}), batch=1)
        _take(client, 1)
        return time.monotonic() - began, broker.cpu_s - cpu


def _take(client: Client, count: int) -> None:
    bodies = client.deliveries()
    for number in range(1, count + 1):
        next(bodies)
        if number % 10_000 == 0:
            client.acknowledge(number)


def main() -> None:
    given = options(__doc__ or "").parse_args()
    bench = Recorder("amqp_filters")
    with recorded(bench, given), tempfile.TemporaryDirectory() as place:
        bench_stream_queue(bench, Path(place), given.quick)


if __name__ == "__main__":
    main()

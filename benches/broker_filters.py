"""Filters at the broker: what a consumer does not want is examined, and not sent."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from amqp_client import BATCH, HEADERS, Client, connected, encode_publish
from broker import Served, in_process, publish, served
from figures import CPU_RATE, RATE, Recorder, at_least, at_most
from reports import options, recorded

from headgate.amqp.methods import method_frame

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
        _consume(broker, "region = 'warm-up'", 0)  # the first consumer loads what filters need
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


def bench_backlog(bench: Recorder, place: Path, quick: bool) -> None:
    bench.part("A classic queue: a filter behind messages that it does not match")
    count, front = (20_000, 100_000) if quick else (200_000, 1_000_000)
    for durable in (False, True):
        name = "durable" if durable else "transient"
        unwanted = encode_publish("q", durable=durable, headers={"region": "US", "n": 1})
        message = encode_publish("q", durable=durable, headers={"region": "EU", "n": 1})
        with served(place / name if durable else None) as broker:
            with connected(broker.port) as client:
                client.declare("q", durable)
            empty = _flow(broker, count, message, {"c0": "region = 'EU'"})
            bench.add(f"{name}, nothing in front, by CPU", empty, CPU_RATE)
            publish(broker.port, front, unwanted)
            before = broker.memory
            behind = _flow(broker, count, message, {"c0": "region = 'EU'"})
            text = f"{name}, behind {front:,} unmatched, by CPU"
            bench.add(text, behind, CPU_RATE, at_least(empty / 2))
            grown = (broker.memory - before) / 1e6
            bench.add(f"{name}, memory that this added", grown, "MB", at_most(40))


def bench_many_filters(bench: Recorder, quick: bool) -> None:
    bench.part("A classic queue: many distinct filters")
    count = 10_000 if quick else 100_000
    messages = [
        encode_publish("q", headers={"tenant": f"t{n:05}", "amount": n}) for n in range(100)
    ]
    costs = {}
    for filters in (1, 1_000, 10_000):
        with served() as broker:
            with connected(broker.port) as client:
                client.declare("q")
            texts = {f"c{n:05}": f"tenant = 't{n:05}'" for n in range(filters)}
            if filters == 1:
                texts = {"c00000": "tenant LIKE 't%'"}
            rate = _flow(broker, count, b"".join(messages), texts, batch=len(messages))
            costs[filters] = rate
            bound = at_least(20_000) if filters == 10_000 else None
            bench.add(f"{filters:,} consumers with distinct filters, by CPU", rate, CPU_RATE, bound)
    bench.add("1,000 filters cost as much as one, times", costs[1] / costs[1_000], "", at_most(3))


def bench_bindings(bench: Recorder, quick: bool) -> None:
    count = 20_000 if quick else 200_000
    for title, distinct in (("equal headers", 1), ("headers that differ in each message", 10_000)):
        bench.part(f"A filter of a binding, {title}")
        messages = [
            encode_publish("orders.new", "amq.topic", headers={**HEADERS, "amount": 200 + n})
            for n in range(distinct)
        ]
        buffer = b"".join(messages * max(1, BATCH // distinct))
        rates = {}
        for name, arguments in (("without", {}), ("with", {"x-filter": "amount > 100"})):
            with served() as broker, connected(broker.port) as client:
                client.declare("b", **{"x-max-length": 1_000})
                client.call(1, "queue.bind", 0, "b", "amq.topic", "orders.#", False, arguments)
                cpu = broker.cpu_s
                _publish_buffer(broker.port, count, buffer, max(BATCH, distinct))
                rates[name] = count / max(broker.cpu_s - cpu, 0.01)
                bench.add(f"topic binding {name} a filter, {title}, by CPU", rates[name], CPU_RATE)
        cost = rates["without"] / rates["with"]
        bench.add(f"a filter of a binding costs, times, {title}", cost, "", at_most(1.3))


def bench_hostile(bench: Recorder, quick: bool) -> None:
    bench.part(
        "Hostile filters: one of 20 wildcards, one of 1,024 items; header of 10,000 characters"
    )
    count = 200 if quick else 2_000
    like = "text LIKE '" + "%a" * 20 + "%b'"
    items = "text IN (" + ", ".join(f"'{n:09}'" for n in range(1_024)) + ")"
    for name, text in (("LIKE", like), ("IN", items)):
        with served() as broker, connected(broker.port) as client, connected(broker.port) as other:
            client.declare("h")
            for size in (1_000, 10_000):
                message = encode_publish("h", headers={"text": "a" * size})
                client.call(1, "basic.consume", 0, "h", f"c{size}", False, True, False, False, {"x-filter": text})  # fmt: skip
                cpu = broker.cpu_s
                load = in_process(publish, broker.port, count, message)
                worst = 0.0
                while load.is_alive():
                    began = time.monotonic()
                    other.call(1, "basic.qos", 0, 1, False)
                    worst = max(worst, time.monotonic() - began)
                spent = (broker.cpu_s - cpu) / count * 1e6
                bench.add(f"{name}, {size:,} characters, CPU of a message", spent, "us")
                bench.add(f"{name}, {size:,} characters, longest wait of another client", worst * 1e3, "ms")  # fmt: skip


def _flow(
    broker: Served,
    count: int,
    buffer: bytes,
    filters: dict[str, str],
    *,
    batch: int = 100,
) -> float:
    """Publish, match, deliver and acknowledge at once; return messages for a second of the broker's CPU."""
    message = buffer if len(buffer) > 1_000 else buffer * batch
    with connected(broker.port) as client:
        client.call(1, "basic.qos", 0, 2_000, True)
        for tag, text in filters.items():
            frame = method_frame(1, "basic.consume", 0, "q", tag, False, False, False, True, {"x-filter": text})  # fmt: skip
            client.socket.sendall(frame)
        client.call(1, "basic.qos", 0, 2_000, True)
        tag = next(iter(filters))
        size = len(message) // batch
        size += len(method_frame(1, "basic.deliver", tag, 1, False, "", "q"))
        size -= len(method_frame(1, "basic.publish", 0, "", "q", False, False))
        publish(broker.port, 1, message[: len(message) // batch], 1)
        received = 0
        while received < size:  # the filters have examined what was there before
            received += len(client.socket.recv(size))
        cpu, count = broker.cpu_s, count + 1
        publisher = in_process(_publish_buffer, broker.port, count - 1, message, batch)
        acked = 0
        while received < count * size:
            received += len(client.socket.recv(1 << 18))
            done = received // size
            if done - acked >= 500 or done == count:
                client.acknowledge(done)
                acked = done
        publisher.join()
        return count / max(broker.cpu_s - cpu, 0.01)


def _publish_buffer(port: int, count: int, buffer: bytes, batch: int) -> None:
    with connected(port) as client:
        client.publish_buffer(count, buffer, batch)


def main() -> None:
    given = options(__doc__ or "").parse_args()
    bench = Recorder("broker_filters")
    with recorded(bench, given), tempfile.TemporaryDirectory() as place:
        bench_stream_queue(bench, Path(place), given.quick)
        bench_backlog(bench, Path(place), given.quick)
        bench_many_filters(bench, given.quick)
        bench_bindings(bench, given.quick)
        bench_hostile(bench, given.quick)


if __name__ == "__main__":
    main()

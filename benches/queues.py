"""What a queue costs: with filters on a long queue, beside the queues people use, and until a consumer wakes.

    python benches/queues.py [--only cliffs|peers|wake] [--engine sqlite|postgres] [--rows N] [--url URL] [--json PATH]
                             [--quick]

Quick means smaller queues and fewer rounds, in about a minute: enough to see that nothing is broken. Bodies are 1 KB. SQLite runs with synchronous=FULL, PostgreSQL with synchronous_commit=on; without --url a private
server is started. Claims are given back after each measurement, so all see the same queue. What is compared ran in
the same run, round by round in turns: on a machine that others use too, only the ratios say something.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import queue_peers as peers

from headgate.check.postgres import private_server
from headgate.message import Message
from headgate.queues.contract import Publication
from headgate.queues.database import connect
from headgate.queues.delivery import Delivery
from headgate.queues.queue import Queue

BODY = b"x" * 1024
REGIONS = ("EU", "US", "APAC")
TWENTY = ", ".join(f"'t{n}'" for n in range(20))
FILTERS = {
    "no filter": None,
    "type = 1 % (declared)": "type = 't7'",
    "type = nothing": "type = 'nothing'",
    "type IN (1 value)": "type IN ('t7')",
    "type IN (20 values)": f"type IN ({TWENTY})",
    "type IN (20, none there)": f"type IN ({TWENTY.replace('t', 'z')})",
    "type AND region": "type = 't7' AND region = 'EU'",
    "type OR region": "type = 't7' OR region = 'EU'",
    "type <>": "type <> 't7'",
    "type LIKE 't7%'": "type LIKE 't7%'",
    "type LIKE 'z%' (none)": "type LIKE 'z%'",
    "undeclared, 1 %": "kind = 'k7'",
    "undeclared, none": "kind = 'nothing'",
}
FIRST = ("type LIKE 'z%' (none)", "undeclared, none")  # dear the first time only
found: dict[str, Any] = {}


def headers_of(n: int) -> dict[str, Any]:
    return {"type": f"t{n % 100}", "region": REGIONS[n % 3], "kind": f"k{n % 100}"}


# ---- cliffs --------------------------------------------------------------------------------------------


def fill(queue: Queue, rows: int, url: str) -> None:
    """`rows` ready messages, of ten priorities."""
    if url.startswith("postgresql"):
        _fill_postgres(queue, rows)
        return
    for start in range(0, rows, 5_000):
        queue.publish_many(
            Message(BODY, "orders", headers_of(n), priority=hash((n, 1)) % 10)
            for n in range(start, min(start + 5_000, rows))
        )


def _fill_postgres(queue: Queue, rows: int) -> None:
    """As publishing would, but made by the server."""
    from headgate.queues.contract import Statement

    text = """
    WITH given AS MATERIALIZED (
        SELECT nextval(pg_get_serial_sequence('message', 'id')) AS id, jsonb_build_object('type', 't' || g % 100,
            'region', (ARRAY['EU', 'US', 'APAC'])[1 + g % 3], 'kind', 'k' || g % 100) AS headers,
            abs(hashint8(g)) % 10 AS priority
        FROM generate_series($2::bigint, $3::bigint) g
    ), stored AS (
        INSERT INTO message (id, topic, headers, properties, priority, timestamp, payload) OVERRIDING SYSTEM VALUE
        SELECT id, 'orders', headers, '{}', priority, now_us(), convert_to(repeat('x', 1024), 'UTF8') FROM given
    )
    INSERT INTO delivery (message, queue, state, rank, visible_at, keys)
    SELECT id, $1, 0, -priority, 0, headers - 'kind' FROM given
    """

    def asked(statement: Statement) -> Any:
        return (yield statement)

    for start in range(1, rows + 1, 50_000):
        end = min(start + 49_999, rows)
        queue._engine.run(asked(Statement(text, (queue.info.id, start, end))))


def give_back(queue: Queue, claimed: list[Delivery]) -> None:
    """All at once: it is not what is measured."""
    operations, receipts = queue._engine.operations, [delivery.receipt for delivery in claimed]
    queue._engine.run(operations.release(queue.info, receipts))


def claim_ms(
    queue: Queue, filter: str | None, rounds: int = 9, limit: int = 10
) -> tuple[float, int]:
    """The median of several claims, each given back; and how many were found."""
    spent, count = [], 0
    for _ in range(rounds):
        began = time.perf_counter()
        claimed = queue.claim(limit, timedelta(minutes=5), filter)
        spent.append((time.perf_counter() - began) * 1e3)
        count = len(claimed)
        give_back(queue, claimed)
        if spent[-1] > 2_000 and len(spent) >= 2:
            break
    return statistics.median(spent), count


def cliffs(engine: str, url: str, rows: int) -> None:
    with connect(url) as db:
        queue = db.queue("orders", filter_headers=["type", "region"], max_attempts=0)
        began = time.perf_counter()
        fill(queue, rows, url)
        print(
            f"\n{engine}: {rows:,} ready messages (filled in {time.perf_counter() - began:.0f} s)"
        )
        figures = {}
        for name, filter in FILTERS.items():
            first, _ = claim_ms(queue, filter, rounds=1)
            if name in FIRST:
                print(f"  claim 10, {name:26} {first:9.2f} ms  the first time")
            figures[name], count = claim_ms(queue, filter)
            ratio = figures[name] / figures["no filter"]
            print(f"  claim 10, {name:26} {figures[name]:9.2f} ms  {ratio:7.1f} ×   found {count}")
        found[f"{engine} cliffs"] = figures
        _judge(engine, figures)
        print("  advice:", queue.index_advise("kind = 'k7'").suggestions)
        _seeds_table(engine, queue)
        _delayed(engine, queue, rows)
        _stats(queue)
        db.drop("orders")


def _judge(engine: str, figures: dict[str, float]) -> None:
    one, none = figures["type = 1 % (declared)"], figures["type = nothing"]
    checks = {
        "1 % filter ≤ 3 × no filter": one / figures["no filter"] <= 3,
        "nothing ≤ 1 % (+ 25 % noise)": none <= one * 1.25,
        "IN 20 ≤ 5 × one value": figures["type IN (20 values)"] / figures["type IN (1 value)"] <= 5,
    }
    for name, holds in checks.items():
        print(f"  {'holds' if holds else 'MISSED'}: {name}")
    found[f"{engine} checks"] = checks


def _seeds_table(engine: str, queue: Queue) -> None:
    """Seed 000's table, measured: 10 messages of a kind that is 1 %."""
    began = time.perf_counter()
    wanted, fetched, held = 0, 0, []
    while wanted < 10:
        claimed = queue.claim(100, timedelta(minutes=5))
        held += claimed
        fetched += len(claimed)
        wanted += sum(d.message.headers["kind"] == "k7" for d in claimed)
    client = (time.perf_counter() - began) * 1e3
    give_back(queue, held)
    rows = [
        ("client-side", client, fetched),
        ("server-side, no index", claim_ms(queue, "kind = 'k7'")[0], 10),
        ("server-side, with index", claim_ms(queue, "type = 't7'")[0], 10),
    ]
    print("  10 messages of 1 %:         time        fetched  bytes over the wire")
    for name, spent, count in rows:
        print(f"    {name:24} {spent:9.2f} ms  {count:6}  {count * 1100 / 1e3:9.0f} KB")
    found[f"{engine} seed table"] = rows


def _delayed(engine: str, queue: Queue, rows: int) -> None:
    before, _ = claim_ms(queue, None)
    count = rows // 5
    for start in range(0, count, 2_000):
        batch = [Publication(Message(b"", priority=255), delay_us=10**12)] * min(
            2_000, count - start
        )
        queue.publish_many(batch)
    after, _ = claim_ms(queue, None)
    print(
        f"  with {count:,} delayed urgent ones: {after:.2f} ms, before {before:.2f} ms, {after / before:.1f} ×"
    )
    found[f"{engine} delayed"] = [before, after]


def _stats(queue: Queue) -> None:
    began = time.perf_counter()
    stats = queue.stats()
    print(
        f"  stats: {stats.ready:,} ready, {stats.delayed:,} delayed, in {time.perf_counter() - began:.2f} s"
    )


# ---- peers ---------------------------------------------------------------------------------------------


def rate(peer: peers.Peer, batch: int, count: int) -> tuple[float, float]:
    """Messages a second put, and taken and finished."""
    began = time.perf_counter()
    for _ in range(count // batch):
        peer.put(batch)
    put = count / (time.perf_counter() - began)
    began, taken = time.perf_counter(), 0
    while taken < count:
        taken += peer.take(batch)
    peer.take(1)  # what was held is acked
    return put, count / (time.perf_counter() - began)


def compare(
    engine: str,
    opened: dict[str, peers.Peer],
    batch: int,
    count: int,
    backlog: int = 0,
    rounds: int = 5,
) -> None:
    for peer in opened.values():
        for _ in range(backlog // 100):
            peer.put(100)
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in opened}
    for _ in range(rounds):
        for name, peer in opened.items():
            rates[name].append(rate(peer, batch, count))
    print(
        f"\n{engine}, batch {batch}, {count} messages a round, backlog {backlog:,}: messages/s, ours ÷ theirs"
    )
    middle = {n: [statistics.median(c) for c in zip(*r, strict=True)] for n, r in rates.items()}
    ours = middle["headgate"]
    for name, (put, take) in middle.items():
        print(
            f"  {name:16} put {put:9,.0f} {ours[0] / put:7.2f} ×   take+finish {take:9,.0f} {ours[1] / take:7.2f} ×"
        )
    found[f"{engine} peers, batch {batch}, backlog {backlog}"] = middle


def _apart(url: str, name: str) -> str:
    """Tables of its own: an index on a declared header is the table's, whichever queue declares it."""
    if url.startswith("sqlite"):
        return url.replace(".db", f"_{name}.db")
    return f"{url}{'&' if '?' in url else '?'}schema=bench_{name}"


@contextmanager
def all_of(engine: str, place: Any, url: str) -> Iterator[dict[str, peers.Peer]]:
    known = peers.ON_POSTGRES if engine == "postgres" else peers.ON_SQLITE
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(peers.ours(of, filtered=filtered))
            for name, of, filtered in (
                ("headgate", _apart(url, "ours"), False),
                ("headgate, filter", _apart(url, "filter"), True),
            )
        }
        for name, open_peer in known.items():
            try:
                opened[name] = stack.enter_context(open_peer(place))
            except ImportError as missing:
                print(f"  left out: {name} ({missing})")
        yield opened


# ---- waking --------------------------------------------------------------------------------------------

WRITER = """
import json, sys, time
from headgate.queues.database import connect
with connect(sys.argv[1]) as db:
    queue = db.queue("wake")
    for n in range(int(sys.argv[2])):
        time.sleep(0.02)
        queue.publish(b"", headers={"n": n})
        print(json.dumps([n, time.clock_gettime_ns(time.CLOCK_MONOTONIC)]), flush=True)
"""


def wake(engine: str, url: str, count: int) -> None:
    seen: dict[int, int] = {}

    def handle(delivery: Any) -> None:
        seen[delivery.message.headers["n"]] = time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    with connect(url) as db:
        queue = db.queue("wake")
        with queue.consumer(handle, mode="notify", batch=1):
            began, cpu = time.monotonic(), time.process_time()
            time.sleep(5)
            idle = (time.process_time() - cpu) / (time.monotonic() - began)
            command = [sys.executable, "-c", WRITER, url, str(count)]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            time.sleep(0.5)
        db.drop("wake")
    sent = dict(json.loads(line) for line in told.splitlines())
    late = sorted((seen[n] - sent[n]) / 1e6 for n in sent if n in seen)
    p50, p95 = statistics.median(late), late[int(len(late) * 0.95)]
    print(
        f"\n{engine}: commit in another process → handler: p50 {p50:.2f} ms, p95 {p95:.2f} ms, idle CPU {idle:.2%}"
    )
    found[f"{engine} wake"] = {
        "p50_ms": p50,
        "p95_ms": p95,
        "idle": idle,
        "woken": len(late),
        "sent": count,
    }


# ---- all of it -----------------------------------------------------------------------------------------


class Size(NamedTuple):
    rows: int  # ready in the long queue
    batches: int  # of 100 messages, a round
    singles: int
    rounds: int
    wakes: int
    backlog: int


FULL = Size(rows=1_000_000, batches=20, singles=100, rounds=5, wakes=200, backlog=20_000)
QUICK = Size(rows=30_000, batches=5, singles=20, rounds=2, wakes=40, backlog=1_000)


def run(engine: str, url: str, place: Any, parts: set[str], size: Size) -> None:
    if "peers" in parts:
        with all_of(engine, place, url) as opened:
            compare(engine, opened, 100, size.batches * 100, rounds=size.rounds)
            compare(engine, opened, 1, size.singles, rounds=size.rounds)
            if engine == "sqlite":
                chosen = {n: p for n, p in opened.items() if n in ("headgate", "litequeue, tx")}
                compare(engine, chosen, 100, 500, size.backlog, rounds=min(size.rounds, 3))
    if "wake" in parts:
        wake(engine, url, size.wakes)
    if "cliffs" in parts:
        cliffs(engine, url, size.rows)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["cliffs", "peers", "wake"], action="append")
    parser.add_argument("--engine", choices=["sqlite", "postgres"], action="append")
    parser.add_argument("--rows", type=int, help=f"ready in the long queue, {FULL.rows:,}")
    parser.add_argument("--quick", action="store_true", help="smaller, in about a minute")
    parser.add_argument("--url", help="of a PostgreSQL database; without it, a private server")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    parts = set(chosen.only or ["cliffs", "peers", "wake"])
    size = QUICK if chosen.quick else FULL
    size = size._replace(rows=chosen.rows or size.rows)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for engine in chosen.engine or ["sqlite", "postgres"]:
            if engine == "sqlite":
                run(engine, f"sqlite:///{directory}/bench.db", directory, parts, size)
            else:
                url = chosen.url or stack.enter_context(private_server())
                run(engine, url, url, parts, size)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

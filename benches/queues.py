"""What a queue costs: with filters on a long queue, beside the queues people use, with several workers, and until one wakes.

    python benches/queues.py [--quick] [--json PATH] [--only PART] [--engine sqlite|postgres] [--rows N] [--url URL]

Quick means smaller queues and fewer rounds, in about a minute: enough to see that nothing is broken. Bodies are 1 KB.
SQLite runs with synchronous=FULL, PostgreSQL with synchronous_commit=on: publishes and acks are synced to disk, a claim's
lease is not. Without --url a private server is started.
Claims are given back after each measurement, so all see the same queue. What is compared ran in the same run, round by
round in turns: on a machine that others use too, only the ratios say something.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import queue_peers as peers
from figures import RATE, TIMES, Recorder, at_least, at_most
from queue_filters import filters_by_size
from queue_growth import behind_snapshot, growth
from queue_workers import workers
from reports import options, recorded

from headgate.check.postgres import private_server
from headgate.message import Message
from headgate.queues.database import connect
from headgate.queues.delivery import Delivery
from headgate.queues.engine import Publication
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
FILTERED = "headgate, filter"
PARTS = ("peers", "workers", "wake", "cliffs", "growth", "filters")


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
    from headgate.queues.engine import Statement

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


def cliffs(bench: Recorder, engine: str, url: str, rows: int) -> None:
    with connect(url) as db:
        queue = db.queue("orders", filter_headers=["type", "region"], max_attempts=0)
        bench.part(f"{engine}: {rows:,} ready messages, ten priorities")
        began = time.perf_counter()
        fill(queue, rows, url)
        print(f"  filled in {time.perf_counter() - began:.0f} s", flush=True)
        found = {name: _claim(bench, engine, queue, name) for name in FILTERS}
        _judge(bench, engine, found)
        print("  advice:", queue.index_advise("kind = 'k7'").suggestions)
        _seeds_table(bench, engine, queue)
        _delayed(bench, engine, queue, rows)
        _stats(bench, engine, queue)
        db.delete("orders")


def _claim(bench: Recorder, engine: str, queue: Queue, name: str) -> float:
    first, _ = claim_ms(queue, FILTERS[name], rounds=1)
    if name in FIRST:
        bench.add(f"{engine}, claim 10, {name}, the first time", first, "ms")
    spent, count = claim_ms(queue, FILTERS[name])
    bench.add(f"{engine}, claim 10, {name}", spent, "ms", note=f"found {count}")
    return spent


def _judge(bench: Recorder, engine: str, found: dict[str, float]) -> None:
    """A filter may cost a little more than none, and nothing found no more than something; 25 % is noise."""
    no_filter, one = found["no filter"], found["type = 1 % (declared)"]
    nothing, twenty = found["type = nothing"], found["type IN (20 values)"]
    many = twenty / found["type IN (1 value)"]
    bench.add(f"{engine}, claim of 1 % / no filter", one / no_filter, TIMES, at_most(3))
    bench.add(f"{engine}, claim of nothing / of 1 %", nothing / one, TIMES, at_most(1))
    bench.add(f"{engine}, claim IN 20 values / one value", many, TIMES, at_most(5))


def _seeds_table(bench: Recorder, engine: str, queue: Queue) -> None:
    """Ten messages of a kind that is 1 %: by a client that looks at all, and by the filter."""
    began = time.perf_counter()
    wanted, fetched, held = 0, 0, []
    while wanted < 10:
        claimed = queue.claim(100, timedelta(minutes=5))
        held += claimed
        fetched += len(claimed)
        wanted += sum(d.message.headers["kind"] == "k7" for d in claimed)
    client = (time.perf_counter() - began) * 1e3
    give_back(queue, held)
    name, note = f"{engine}, 10 of 1 %", f"{fetched:,} fetched, {fetched * 1100 / 1e3:,.0f} KB"
    bench.add(f"{name}, filtered by the client", client, "ms", note=note)
    for how, filter in (("no index", "kind = 'k7'"), ("declared header", "type = 't7'")):
        spent, count = claim_ms(queue, filter)
        note = f"{count} fetched, {count * 1100 / 1e3:.0f} KB"
        ours = bench.add(f"{name}, filtered by the queue, {how}", spent, "ms", note=note)
        bench.versus(ours, "filtered by the client", client)


def _delayed(bench: Recorder, engine: str, queue: Queue, rows: int) -> None:
    before, _ = claim_ms(queue, None)
    count = rows // 5
    for start in range(0, count, 2_000):
        batch = [Publication(Message(b"", priority=255), delay_us=10**12)] * min(
            2_000, count - start
        )
        queue.publish_many(batch)
    after, _ = claim_ms(queue, None)
    note = f"{before:.2f} ms, then {after:.2f} ms with {count:,} delayed"
    name = f"{engine}, claim 10 behind delayed urgent ones / without"
    bench.add(name, after / before, TIMES, note=note)


def _stats(bench: Recorder, engine: str, queue: Queue) -> None:
    began = time.perf_counter()
    stats = queue.stats()
    took = (time.perf_counter() - began) * 1e3
    note = f"{stats.ready:,} ready, {stats.delayed:,} delayed"
    bench.add(f"{engine}, stats", took, "ms", note=note)


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
    bench: Recorder,
    engine: str,
    opened: dict[str, peers.Peer],
    batch: int,
    count: int,
    backlog: int = 0,
    rounds: int = 5,
) -> None:
    waiting = f", {backlog:,} waiting" if backlog else ""
    bench.part(f"{engine}, batches of {batch}, {count:,} messages a round{waiting}")
    for peer in opened.values():
        for _ in range(backlog // 100):
            peer.put(100)
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in opened}
    order = list(opened.items())
    for _ in range(rounds):
        for name, peer in order:
            rates[name].append(rate(peer, batch, count))
        order.reverse()  # the disk still works for whoever was before
    middle = {n: [statistics.median(c) for c in zip(*r, strict=True)] for n, r in rates.items()}
    size = (
        ("one" if batch == 1 else str(batch)) + " at a time" + (", long queue" if backlog else "")
    )
    for at, verb in enumerate(("put", "take and finish")):
        beside(bench, f"{engine}, {verb} {size}", {n: found[at] for n, found in middle.items()})


TIMES_AS_FAST = {
    ("postgres, put 100 at a time", "pgqueuer"): 1.5,
    ("postgres, take and finish 100 at a time", "pgqueuer"): 1.5,
    ("postgres, put 100 at a time", "pgmq"): 1.2,
    ("postgres, take and finish 100 at a time", "pgmq"): 1.2,
    ("sqlite, put one at a time", "litequeue"): 1,
    ("sqlite, take and finish one at a time", "huey"): 1,
    ("sqlite, put 100 at a time", "litequeue"): 5,
    ("sqlite, take and finish 100 at a time, long queue", "litequeue, tx"): 20,
}


def beside(bench: Recorder, name: str, rates: dict[str, float]) -> None:
    """Our rate, ours with a declared header, and ours beside each of the others."""
    ours = bench.add(name, rates["headgate"], RATE)
    if FILTERED in rates:
        bench.add(f"{name}, a declared header", rates[FILTERED], RATE)
    for peer, rate in rates.items():
        if peer not in ("headgate", FILTERED):
            wanted = TIMES_AS_FAST.get((name, peer))
            bench.versus(ours, peer, rate, at_least(wanted) if wanted else None)


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
                (FILTERED, _apart(url, "filter"), True),
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


def wake(bench: Recorder, engine: str, url: str, count: int) -> None:
    bench.part(
        f"{engine}: {count} messages committed in another process, until the handler has them"
    )
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
        db.delete("wake")
    sent = dict(json.loads(line) for line in told.splitlines())
    late = sorted((seen[n] - sent[n]) / 1e6 for n in sent if n in seen)
    p50, p95 = statistics.median(late), late[int(len(late) * 0.95)]
    note = f"{len(late)} of {count} seen"
    soon = at_most({"sqlite": 1, "postgres": 3}[engine])
    bench.add(f"{engine}, commit to handler, p50", p50, "ms", soon, note=note)
    bench.add(f"{engine}, commit to handler, p95", p95, "ms")
    bench.add(f"{engine}, idle consumer", 100 * idle, "% CPU", at_most(0.2))


# ---- all of it -----------------------------------------------------------------------------------------


class Size(NamedTuple):
    rows: int  # ready in the long queue
    batches: int  # of 100 messages, a round
    singles: int  # a round
    rounds: int
    single_rounds: int  # many and short: else the disk's moods decide
    worked: int  # a round and process
    wakes: int
    backlog: int
    stored: tuple[int, int, int]  # before a subscription begins
    subscriptions: tuple[int, int, int]  # beside the one that changes
    ready: tuple[int, int, int]  # while filters claim


FULL = Size(
    rows=1_000_000,
    batches=10,
    singles=20,
    rounds=10,
    single_rounds=125,
    worked=1_000,
    wakes=200,
    backlog=20_000,
    stored=(10_000, 50_000, 200_000),
    subscriptions=(1_000, 5_000, 10_000),
    ready=(10_000, 100_000, 1_000_000),
)
QUICK = Size(
    rows=30_000,
    batches=5,
    singles=20,
    rounds=2,
    single_rounds=10,
    worked=200,
    wakes=40,
    backlog=1_000,
    stored=(1_000, 2_000, 5_000),
    subscriptions=(100, 500, 1_000),
    ready=(2_000, 10_000, 30_000),
)


def run(
    bench: Recorder, engine: str, url: str, place: Any, parts: Collection[str], size: Size
) -> None:
    if "peers" in parts:
        with all_of(engine, place, url) as opened:
            compare(bench, engine, opened, 100, size.batches * 100, rounds=size.rounds)
            compare(bench, engine, opened, 1, size.singles, rounds=size.single_rounds)
            if engine == "sqlite":
                chosen = {n: p for n, p in opened.items() if n in ("headgate", "litequeue, tx")}
                rounds = min(size.rounds, 3)
                compare(bench, engine, chosen, 100, 500, size.backlog, rounds=rounds)
    if "workers" in parts:
        files = place if engine == "sqlite" else None
        workers(bench, engine, _apart(url, "workers"), files, size.worked, size.rounds)
    if "wake" in parts:
        wake(bench, engine, url, size.wakes)
    if "cliffs" in parts:
        cliffs(bench, engine, url, size.rows)
    if "growth" in parts:
        growth(bench, engine, _apart(url, "growth"), size.stored, size.subscriptions)
        if engine == "postgres":
            with all_of(engine, place, url) as opened:
                chosen = {name: opened[name] for name in ("headgate", "pgmq") if name in opened}
                behind_snapshot(bench, url, chosen, size.stored)
    if "filters" in parts:
        filters_by_size(bench, engine, _apart(url, "filters"), size.ready, fill, give_back)
        if engine == "postgres":  # whose planner differs
            with private_server(16) as older:
                filters_by_size(bench, "postgres 16", older, size.ready, fill, give_back)


def main() -> None:
    parser = options(__doc__, parts=PARTS)
    parser.add_argument("--engine", choices=["sqlite", "postgres"], action="append")
    parser.add_argument("--rows", type=int, help=f"ready in the long queue, {FULL.rows:,}")
    parser.add_argument("--url", help="of a PostgreSQL database; without it, a private server")
    given = parser.parse_args()
    size = QUICK if given.quick else FULL
    size = size._replace(rows=given.rows or size.rows)
    bench, parts = Recorder("queues"), given.only or PARTS
    with recorded(bench, given), ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for engine in given.engine or ["sqlite", "postgres"]:
            if engine == "sqlite":
                run(bench, engine, f"sqlite:///{directory}/bench.db", directory, parts, size)
            else:
                url = given.url or stack.enter_context(private_server())
                run(bench, engine, url, url, parts, size)


if __name__ == "__main__":
    main()

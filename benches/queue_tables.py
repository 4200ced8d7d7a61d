"""One table for a message and its delivery, or two? The same work on both shapes, with two filter indexes.

    python benches/queue_tables.py [--messages 50000] [--postgres]

Prints, per message, the client's and server's time and the bytes written to the log (WAL); ratios are two tables to one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from headgate.check.postgres import private_server

BATCH = 100
BODY = os.urandom(1024)
HEADERS = ("type", "region")
REGIONS = ("US", "EU", "APAC")

# {json}: how a dialect reads a header next to the delivery. {id}: what a delivery is known by in this shape.
STATE = "state {small} NOT NULL DEFAULT 0, rank {small} NOT NULL, visible_at {big} NOT NULL, token {big} NOT NULL DEFAULT 0, attempts {small} NOT NULL DEFAULT 0"
CONTENT = "topic text NOT NULL, timestamp {big} NOT NULL, headers {document} NOT NULL, payload {bytes} NOT NULL"
INDEXES = (
    "CREATE INDEX i_ready ON {table} (queue, rank, {id}) WHERE state = 0",
    "CREATE INDEX i_due ON {table} (queue, visible_at) WHERE state IN (1, 2)",
    *(f"CREATE INDEX i_{name} ON {{table}} (queue, {{json_{name}}}, rank, {{id}}) WHERE state = 0" for name in HEADERS),
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    name: str
    tables: tuple[str, ...]
    table: str  # where the state is
    id: str
    document: str  # where the filter headers are
    insert: tuple[str, ...]
    lease: str
    read: str
    ack: tuple[str, ...]


ONE = Shape(
    "one table",
    (f"CREATE TABLE m (id {{serial}}, queue {{small}} NOT NULL, {STATE}, {CONTENT})",),
    "m",
    "id",
    "headers",
    ("INSERT INTO m (queue, rank, visible_at, topic, timestamp, headers, payload) VALUES (1, {rank}, {now}, {topic}, {now}, {headers}, {payload})",),
    "UPDATE m SET state = 2, visible_at = visible_at + 30, token = token + 1, attempts = attempts + 1 WHERE id IN {chosen} AND state = 0",
    "SELECT id, token, headers, payload FROM m WHERE id IN {ids} ORDER BY rank, id",
    ("DELETE FROM m WHERE id IN {ids} AND state = 2",),
)  # fmt: skip
TWO = Shape(
    "two tables",
    (
        f"CREATE TABLE m (id {{serial}}, {CONTENT})",
        f"CREATE TABLE d (message {{big}} NOT NULL, queue {{small}} NOT NULL, {STATE}, keys {{document}} NOT NULL, PRIMARY KEY (message, queue)){{narrow}}",
    ),
    "d",
    "message",
    "keys",
    (
        "INSERT INTO m (topic, timestamp, headers, payload) VALUES ({topic}, {now}, {headers}, {payload})",
        "INSERT INTO d (message, queue, rank, visible_at, keys) VALUES ({last}, 1, {rank}, {now}, {keys})",
    ),
    "UPDATE d SET state = 2, visible_at = visible_at + 30, token = token + 1, attempts = attempts + 1 WHERE queue = 1 AND message IN {chosen} AND state = 0",
    "SELECT d.message, d.token, m.headers, m.payload FROM d JOIN m ON m.id = d.message WHERE d.queue = 1 AND d.message IN {ids} ORDER BY d.rank, d.message",
    (
        "DELETE FROM d WHERE queue = 1 AND message IN {ids} AND state = 2",
        "DELETE FROM m WHERE id IN {ids} AND NOT EXISTS (SELECT 1 FROM d WHERE d.message = m.id)",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Engine:
    """How to say it to one database, how to run it, and how many bytes its log has grown."""

    name: str
    words: dict[str, str]
    run: Callable[..., list[tuple[Any, ...]]]
    many: Callable[[str, list[tuple[Any, ...]]], object]
    written: Callable[[], int]

    def text(self, template: str, shape: Shape, **gaps: str) -> str:
        json_of = {
            f"json_{name}": self.words["json"].format(document=shape.document, name=name)
            for name in HEADERS
        }
        gaps = {**self.words, **json_of, "table": shape.table, "id": shape.id, **gaps}
        for gap, words in gaps.items():
            template = template.replace("{" + gap + "}", words)
        return template


def messages(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "rank": -((at * 7919 // 100) % 10),
            "now": 1_700_000_000_000_000 + at,
            "topic": "orders",
            "headers": json.dumps({"type": f"t{at % 100}", "region": REGIONS[at % 3], "seq": at}),
            "keys": json.dumps({"type": f"t{at % 100}", "region": REGIONS[at % 3]}),
            "payload": BODY,
        }
        for at in range(first, first + count)
    ]


def publish(engine: Engine, shape: Shape, first: int) -> None:
    rows = messages(first, BATCH)
    for template in shape.insert:
        names = [name for name in rows[0] if "{" + name + "}" in template]
        if "{last}" in template:  # ids are consecutive: nobody else writes
            names = ["last", *names]
            rows = [{**row, "last": first + at + 1} for at, row in enumerate(rows)]
        holes = {name: engine.words["hole"].format(at) for at, name in enumerate(names, 1)}
        text = engine.text(template, shape, **holes)
        engine.many(text, [tuple(row[name] for name in names) for row in rows])


def claim(engine: Engine, shape: Shape, kind: str | None, held: list[int]) -> None:
    ids = engine.words["ids"]
    if held:
        for template in shape.ack:
            engine.run(engine.text(template, shape, ids=ids), held)
    wanted = "" if kind is None else " AND {json_type} = " + engine.words["hole"].format(1)
    chosen = f"(SELECT {{id}} FROM {{table}} WHERE queue = 1 AND state = 0{wanted} ORDER BY rank, {{id}} LIMIT {BATCH}{{lock}})"
    find = engine.text(chosen.strip("()"), shape)
    held[:] = [row[0] for row in engine.run(find, *([] if kind is None else [kind]))]
    engine.run(engine.text(shape.lease, shape, chosen=ids), held)
    assert len(engine.run(engine.text(shape.read, shape, ids=ids), held)) == BATCH


def measure(engine: Engine, shape: Shape, count: int) -> dict[str, tuple[float, float]]:
    for template in (*shape.tables, *INDEXES):
        engine.run(engine.text(template, shape))
    held: list[int] = []
    phases: dict[str, tuple[int, Callable[[int], None]]] = {
        "publish": (count // BATCH, lambda at: publish(engine, shape, at * BATCH)),
        "ack + claim": (count // BATCH // 4, lambda at: claim(engine, shape, None, held)),
        "ack + claim, 1 % filter": (40, lambda at: claim(engine, shape, f"t{at + 50}", held)),
    }
    figures = {}
    for name, (times, work) in phases.items():
        began, before = time.perf_counter(), engine.written()
        for at in range(times):
            engine.run("BEGIN")
            work(at)
            engine.run("COMMIT")
        spent = (time.perf_counter() - began) * 1e6 / times / BATCH
        figures[name] = (spent, (engine.written() - before) / times / BATCH)
        engine.run(engine.words["settle"])
    return figures


@contextmanager
def sqlite(directory: Path) -> Iterator[Engine]:
    connection = apsw.Connection(str(directory / "tables.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "NORMAL")

    def run(text: str, *params: Any) -> list[tuple[Any, ...]]:
        bound = tuple(json.dumps(p) if isinstance(p, list) else p for p in params)
        return connection.execute(text, bound).fetchall()

    def written() -> int:
        return int(Path("/proc/self/io").read_text().split()[3])  # wchar

    words = {
        "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "small": "INTEGER",
        "big": "INTEGER",
        "document": "TEXT",
        "bytes": "BLOB",
        "narrow": " WITHOUT ROWID",
        "json": "json_extract({document}, '$.\"{name}\"')",
        "hole": "?{}",
        "ids": "(SELECT value FROM json_each(?1))",
        "lock": "",
        "settle": "SELECT 1",
    }
    many = connection.executemany
    yield Engine("SQLite", words, run, lambda text, rows: list(many(text, rows)), written)
    connection.close()


@contextmanager
def postgres(url: str) -> Iterator[Engine]:
    import psycopg

    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute("DROP TABLE IF EXISTS d, m")

        def run(text: str, *params: Any) -> list[tuple[Any, ...]]:
            cursor = connection.execute(text, params or None)
            return cursor.fetchall() if cursor.description else []

        def written() -> int:
            [(bytes_,)] = run("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
            return int(bytes_)

        def many(text: str, rows: list[tuple[Any, ...]]) -> None:
            with connection.cursor() as cursor:
                cursor.executemany(text, rows)

        words = {
            "serial": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            "small": "int",
            "big": "bigint",
            "document": "jsonb",
            "bytes": "bytea",
            "narrow": "",
            "json": "({document} ->> '{name}')",
            "hole": "${}",
            "ids": "(SELECT unnest($1::bigint[]))",
            "lock": " FOR UPDATE SKIP LOCKED",
            "settle": "VACUUM ANALYZE",  # as autovacuum would, sooner or later
        }
        yield Engine("PostgreSQL", words, run, many, written)


def compare(
    name: str, one: dict[str, tuple[float, float]], two: dict[str, tuple[float, float]]
) -> None:
    print(
        f"\n{name:26}{'one: µs':>10}{'two: µs':>10}{'ratio':>8}{'one: B':>10}{'two: B':>10}{'ratio':>8}"
    )
    for phase, (one_us, one_bytes) in one.items():
        two_us, two_bytes = two[phase]
        print(
            f"{phase:26}{one_us:10.1f}{two_us:10.1f}{two_us / one_us:8.2f}"
            f"{one_bytes:10,.0f}{two_bytes:10,.0f}{two_bytes / one_bytes:8.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--postgres", action="store_true")
    given = parser.parse_args()
    print(
        f"{given.messages:,} messages of 1 KB, batches of {BATCH}, {platform.machine()}, {os.cpu_count()} cores"
    )
    figures = []
    for shape in (ONE, TWO):
        with tempfile.TemporaryDirectory() as directory, sqlite(Path(directory)) as engine:
            figures.append(measure(engine, shape, given.messages))
    compare(f"SQLite {apsw.sqlite_lib_version()}, NORMAL", *figures)
    if given.postgres:
        figures = []
        with private_server() as url:
            for shape in (ONE, TWO):
                with postgres(url) as engine:
                    figures.append(measure(engine, shape, given.messages))
        compare("PostgreSQL", *figures)


if __name__ == "__main__":
    main()

"""Queues people use, behind one small contract: put a batch, take a batch and finish it. One client, 1 KB bodies.

Each peer is imported when asked for; one that is not installed is left out, and the bench says so. All sync their commits
to disk: PostgreSQL with synchronous_commit on, SQLite with synchronous FULL. Headgate does so for publishes and acks, but not
for a claim's lease: losing it only repeats a delivery.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import headgate.queues.database as headgate
from headgate.message import Message

BODY = ("x" * 1024).encode()


class Peer(NamedTuple):
    put: Callable[[int], object]
    take: Callable[[int], int]  # how many were taken and finished


# ---- ours ----------------------------------------------------------------------------------------------


@contextmanager
def ours(url: str, *, filtered: bool = False, **options: Any) -> Iterator[Peer]:
    """Each batch is acked with the claim of the next, as a consumer does.

    Filtered: the queue declares a header, and every message has it; no peer has such a thing.
    """
    with headgate.connect(url, **options) as db:
        queue = db.queue("bench", filter_headers=["type"] if filtered else [])
        body = Message(BODY, "bench", {"type": "created"}) if filtered else BODY
        held: list[Any] = []

        def take(count: int) -> int:
            held[:] = queue.ack_and_claim(held, count)
            return len(held)

        def put(count: int) -> None:
            if count == 1:
                queue.publish(body)
            else:
                queue.publish_many([body] * count)

        yield Peer(put, take)
        db.delete("bench")


# ---- PostgreSQL ----------------------------------------------------------------------------------------


@contextmanager
def pgqueuer(url: str) -> Iterator[Peer]:
    import psycopg
    from pgqueuer.adapters.drivers.psycopg import PsycopgDriver
    from pgqueuer.ports.repository import EntrypointExecutionParameter
    from pgqueuer.queries import Queries

    loop = asyncio.new_event_loop()
    run = loop.run_until_complete
    connection = run(psycopg.AsyncConnection.connect(url, autocommit=True))
    queries = Queries(PsycopgDriver(connection))
    run(queries.install())
    entrypoints = {"bench": EntrypointExecutionParameter(0)}
    manager = uuid.uuid4()

    async def take(count: int) -> int:
        jobs = await queries.dequeue(count, entrypoints, manager, None, timedelta(seconds=30))
        if jobs:
            await queries.log_jobs([(job, "successful", None) for job in jobs])
        return len(jobs)

    try:
        yield Peer(
            lambda n: run(queries.enqueue(["bench"] * n, [BODY] * n, [0] * n)),
            lambda n: run(take(n)),
        )
    finally:
        run(queries.uninstall())
        run(connection.close())
        loop.close()


@contextmanager
def pgmq(url: str) -> Iterator[Peer]:
    """Its SQL functions, from the package that carries them."""
    import psycopg

    text = (files("pgmq") / "sql" / "pgmq.sql").read_text()
    body = json.dumps(BODY.decode())
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        connection.execute("DROP SCHEMA IF EXISTS pgmq CASCADE", prepare=False)
        connection.execute(text, prepare=False)
        connection.execute("SELECT pgmq.create('bench')")

        def put(count: int) -> None:
            connection.execute("SELECT pgmq.send_batch('bench', %s::jsonb[])", ([body] * count,))

        def take(count: int) -> int:
            rows = connection.execute(
                "SELECT msg_id, message FROM pgmq.read('bench', 30, %s)", (count,)
            )
            ids = [row[0] for row in rows.fetchall()]
            connection.execute("SELECT pgmq.delete('bench', %s::bigint[])", (ids,))
            return len(ids)

        yield Peer(put, take)
        connection.execute("DROP SCHEMA pgmq CASCADE", prepare=False)


@contextmanager
def procrastinate(url: str) -> Iterator[Peer]:
    """Takes one job at a time: it has no batches there."""
    import procrastinate
    import psycopg
    from procrastinate.jobs import Status

    schema = "bench_procrastinate"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    options = {"options": f"-c search_path={schema}"}
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(
            conninfo=url, kwargs=options, min_size=1, max_size=1
        )
    )
    task = app.task(name="bench")(print)
    loop = asyncio.new_event_loop()
    run = loop.run_until_complete
    run(app.open_async())
    run(app.schema_manager.apply_schema_async())
    worker = run(app.job_manager.register_worker())
    body = BODY.decode()

    async def take(count: int) -> int:
        for taken in range(count):
            job = await app.job_manager.fetch_job(None, worker)
            if job is None:
                return taken
            await app.job_manager.finish_job(job, Status.SUCCEEDED, delete_job=True)
        return count

    try:
        yield Peer(
            lambda n: run(task.batch_defer_async(*[{"body": body}] * n)), lambda n: run(take(n))
        )
    finally:
        run(app.close_async())
        loop.close()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


# ---- SQLite --------------------------------------------------------------------------------------------


def litequeue(directory: Path) -> AbstractContextManager[Peer]:
    """As its documents show it: one message at a time."""
    return _litequeue(directory / "litequeue.db", together=False)


def litequeue_together(directory: Path) -> AbstractContextManager[Peer]:
    """With a transaction around each batch of puts, which its users may write themselves."""
    return _litequeue(directory / "litequeue_together.db", together=True)


@contextmanager
def _litequeue(path: Path, *, together: bool) -> Iterator[Peer]:
    import litequeue

    queue = litequeue.LiteQueue(str(path))
    queue.conn.execute("PRAGMA synchronous = FULL")
    body = BODY.decode()

    def put(count: int) -> None:
        with queue.transaction(mode="IMMEDIATE") if together else nullcontext():
            for _ in range(count):
                queue.put(body)

    def take(count: int) -> int:
        for taken in range(count):
            message = queue.pop()
            if message is None:
                return taken
            queue.done(message.message_id)
        return count

    with closing(queue):
        yield Peer(put, take)


@contextmanager
def persist_queue(directory: Path) -> Iterator[Peer]:
    import persistqueue

    queue = persistqueue.SQLiteAckQueue(str(directory / "persist"), auto_commit=True)
    queue._putter.execute("PRAGMA synchronous = FULL")

    def put(count: int) -> None:
        for _ in range(count):
            queue.put(BODY)

    def take(count: int) -> int:
        for taken in range(count):
            if not queue.size:
                return taken
            queue.ack(queue.get(block=False))
        return count

    with closing(queue):
        yield Peer(put, take)


@contextmanager
def huey(directory: Path, synchronous: str = "FULL") -> Iterator[Peer]:
    """Its storage: taking deletes, there is no lease."""
    from huey.storage import SqliteStorage

    directory.mkdir(exist_ok=True)
    storage = SqliteStorage(filename=str(directory / "huey.db"))
    storage.conn.execute(f"PRAGMA synchronous = {synchronous}")

    def put(count: int) -> None:
        for _ in range(count):
            storage.enqueue(BODY)

    yield Peer(put, lambda count: sum(storage.dequeue() is not None for _ in range(count)))
    storage.close()


ON_POSTGRES = {"pgqueuer": pgqueuer, "pgmq": pgmq, "procrastinate": procrastinate}
ON_SQLITE = {
    "litequeue": litequeue,
    "litequeue, tx": litequeue_together,
    "persist-queue": persist_queue,
    "huey": huey,
}

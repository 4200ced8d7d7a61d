# Generated from headgate/queues/aio/database.py by tools/generate_sync.py: do not edit, run `make generate`.
"""connect(): a database of queues and subscriptions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Unpack

from headgate.clock import Clock
from headgate.filters import FilterLike
from headgate.message import HeaderValue, Message, MessageDetails
from headgate.queues import arguments, declarations, schedules
from headgate.queues.engine import (
    RESULTS,
    Access,
    Engine,
    JobResult,
    MissedRuns,
    Publication,
    QueueInfo,
    Schedule,
    ScheduleState,
    SubscriptionStart,
)
from headgate.queues.engines import ConnectOptions, Synchronous, open_engine
from headgate.queues.outbox import FileSource, Outbox, Relay, TableSource
from headgate.queues.push import Callbacks
from headgate.queues.queue import Queue, Subscription
from headgate.queues.scheduler import Scheduler
from headgate.queues.threads import Event, setter

RESULT_POLL_S: Final = 0.5  # between two polls for a result: a dead letter sends no wake-up


def connect(
    url: str,
    *,
    clock: Clock | None = None,
    access: Access = "create",
    synchronous: Synchronous | None = None,
    schema: str | None = None,
    most_connections: int | None = None,
) -> Database:
    """Open `sqlite:///orders.db`, `sqlite:////absolute/path.db`, `postgresql://…`, or `memory:` for tests.

    access            create, the default, makes a database that does not exist; change refuses that; look never writes: not
                      even messages that were inserted with plain SQL are passed on to subscriptions
    synchronous       SQLite: with FULL, which is the default, what was confirmed survives a power cut
    schema            PostgreSQL: where the tables are
    most_connections  PostgreSQL: how many connections its pool may open
    clock             takes the place of the machine's clock or the server's, for tests
    """
    options = ConnectOptions(
        clock=clock,
        access=access,
        synchronous=synchronous,
        schema=schema,
        most_connections=most_connections,
    )
    return Database(open_engine(url, options))


class Database:
    """Queues, subscriptions and callbacks in one database.

    from headgate.queues import connect

    with connect("sqlite:///orders.db") as db:
        large = db.subscription("large", "amount > 1000")  # its own copy of what matches
        db.publish(b"order 1", topic="orders.eu", headers={"amount": 1200})
        assert (large.stats()).ready == 1
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._operations = engine.operations
        self._callbacks = Callbacks(engine)

    # -- queues --

    def queue(
        self,
        name: str,
        *,
        filter_headers: Iterable[str] | None = None,
        max_attempts: int | None = None,
        dedup_window: timedelta | None = None,
        archive: bool | None = None,
    ) -> Queue:
        """Return the queue of that name, created when there is none. Options that are given change it, the others stay.

        filter_headers  copied next to each delivery and indexed, so that claims look them up; only ever added
        max_attempts    claims after which a failed message is a dead letter (5); 0: never
        dedup_window    how long a dedup key is remembered (5 minutes)
        archive         acked messages are kept until pruned
        """
        operation = declarations.declare(
            self._operations, name, filter_headers, max_attempts, dedup_window, archive
        )
        return self._wrap(self.engine.run(operation))

    def find(self, name: str) -> Queue:
        """Return the queue or subscription of that name; QueueNotFound if there is none."""
        return self._wrap(self.engine.run(self._operations.find(name)))

    def queues(self) -> list[QueueInfo]:
        """Return all queues and durable subscriptions, in the order of their names."""
        infos = self.engine.run(self._operations.queues())
        return [info for info in infos if info.kind != "push"]

    def delete(self, name: str) -> None:
        """Delete the queue or subscription of that name with everything in it."""
        self.engine.run(self._operations.delete(name))

    def publish(
        self,
        payload: bytes | Message,
        *,
        topic: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = 0,
        delay: timedelta | None = None,
        group: str | None = None,
        **fields: Unpack[MessageDetails],
    ) -> int:
        """Publish to all subscriptions that match and to no queue; return the id, or 0 if no subscription matches."""
        publication = arguments.publication(
            payload,
            topic=topic,
            headers=headers,
            priority=priority,
            delay=delay,
            dedup_key=None,
            group=group,
            default_topic="",
            fields=fields,
        )
        return self._publish(publication)

    def _publish(self, publication: Publication) -> int:
        [id] = self.engine.run(self._operations.publish(None, [publication]))
        return id

    def result(self, id: int, *, wait: timedelta | None = None) -> JobResult | None:
        """Return what became of a message that was published with `result`: its state, and what the handler returned.

        With `wait`, wait up to that time until it is done or has failed. None if no result was asked for, or it has expired.
        """
        [checked] = arguments.message_ids([id])
        found = self.engine.run(self._operations.result(checked))
        if wait is None or found is None or found.state != "pending":
            return found
        return self._wait_for_result(checked, arguments.microseconds("wait", wait) / 1e6)

    def _wait_for_result(self, id: int, seconds: float) -> JobResult | None:
        """Read the result whenever results were stored, and every RESULT_POLL_S, until the message is settled or the time is up."""
        deadline, woken = time.monotonic() + seconds, Event()
        wake = setter(woken)
        watch = self.engine.watch(
            lambda queues: wake() if queues is None or RESULTS in queues else None
        )
        try:
            while True:
                woken.clear()
                found = self.engine.run(self._operations.result(id))
                left = deadline - time.monotonic()
                if found is None or found.state != "pending" or left <= 0:
                    return found
                woken.wait(min(RESULT_POLL_S, left))
        finally:
            watch.close()

    # -- subscriptions --

    def subscription(
        self,
        name: str,
        filter: FilterLike | None = None,
        *,
        pattern: str | None = None,
        queue: str | None = None,
        start: SubscriptionStart = "next",
        filter_headers: Iterable[str] | None = None,
        max_attempts: int | None = None,
        archive: bool | None = None,
    ) -> Subscription:
        """Return a durable subscription, which receives its own delivery of every message that matches.

        It is created when there is none of that name; an existing one gets the new filter. Messages are claimed from it as
        from a queue. With `queue`, it receives only what is published there; with `start="first"`, also the messages that
        are stored already. Without filter and pattern, the subscription must exist.
        """
        operation = declarations.subscription(
            self._operations,
            name,
            filter,
            pattern,
            queue=queue,
            start=start,
            filter_headers=filter_headers,
            max_attempts=max_attempts,
            archive=archive,
        )
        return Subscription(self.engine, self.engine.run(operation))

    # -- callbacks --

    def add_callback(self, pattern: str, callback: Callable[[Message], object], *, id: str) -> bool:
        """Call `callback` for every message published from now on, by any program, whose topic matches the pattern, for as long
        as this database is open; in a thread of its own. Return False if that id has a callback for that pattern already."""
        return self._callbacks.add(pattern, callback, id)

    def delete_callback(self, pattern: str, id: str) -> bool:
        """Stop calling the callback of that pattern and id; return whether there was one."""
        return self._callbacks.delete(pattern, id)

    def delete_callbacks(self, id: str) -> int:
        """Stop calling the callbacks of that id; return their number."""
        return self._callbacks.delete_all(id)

    # The names these verbs have in MiniQ.
    subscribe, unsubscribe, unsubscribe_all = add_callback, delete_callback, delete_callbacks

    # -- the outbox --

    def outbox(self, connection: Any) -> Outbox:
        """Return an outbox, which publishes inside the transaction of your connection: psycopg or apsw to this database, sqlite3
        to a file of your own, or SQLAlchemy on them. A relay moves the messages on once you have committed."""
        return Outbox(self.engine, connection)

    def relay(
        self, file: Path | str | None = None, *, poll: timedelta = timedelta(seconds=5)
    ) -> Relay:
        """Return a relay, which moves what is committed in this database's outbox, or in your SQLite file, into the queues."""
        source = TableSource(self.engine) if file is None else FileSource(file, self.engine)
        return Relay(source, poll=poll)

    # -- schedules --

    def schedule(
        self,
        name: str,
        cron: str,
        payload: bytes | Message = b"",
        *,
        queue: str | None = None,
        topic: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = 0,
        group: str | None = None,
        timezone: str = "UTC",
        missed: MissedRuns = "one",
        **fields: Unpack[MessageDetails],
    ) -> None:
        """Publish a message repeatedly, while a scheduler or a worker runs; an existing schedule of that name is changed.

        cron      minute, hour, day, month, weekday: "30 4 * * 1-5"; with seconds before them; or "@hourly", "@daily", …
        queue     where to publish; without it, to all subscriptions that match
        missed    what to do about runs that were due while no scheduler ran: skip them, publish one for all, or publish all
        The message has the headers schedule, scheduled_at (microseconds since 1970) and missed_runs.
        """
        publication = arguments.publication(
            payload,
            topic=topic,
            headers=headers,
            priority=priority,
            delay=None,
            dedup_key=None,
            group=group,
            default_topic=queue or "",
            fields=fields,
        )
        schedule = Schedule(
            name=arguments.storable_text("the name of a schedule", name),
            cron=cron,
            timezone=timezone,
            missed=missed,
            queue=queue,
            publication=publication,
        )
        self.engine.run(schedules.declare(self._operations, schedule))

    def schedules(self) -> list[ScheduleState]:
        """Return all schedules in the order of their names: when they run next, and what became of their runs."""
        states, _ = self.engine.run(self._operations.schedules())
        return states

    def delete_schedule(self, name: str) -> bool:
        """Delete a schedule; return whether there was one."""
        return self.engine.run(self._operations.delete_schedule(name))

    def scheduler(self, *, poll: timedelta = timedelta(seconds=5)) -> Scheduler:
        """Return a scheduler, which publishes what is due while it is open: `with db.scheduler(): …`.

        `headgate work` runs one.
        """
        return Scheduler(self.engine, poll=poll)

    # -- closing --

    def close(self) -> None:
        """Call callbacks for what was published so far, then close the connections."""
        self._callbacks.close()
        self.engine.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _wrap(self, info: QueueInfo) -> Queue:
        kind = Queue if info.kind == "queue" else Subscription
        return kind(self.engine, info)

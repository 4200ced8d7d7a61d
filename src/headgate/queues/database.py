"""connect(): a database of queues and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, get_args
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from headgate.clock import Clock
from headgate.errors import DatabaseNotFound, MissingExtra, QueueOptionsError
from headgate.filters import FilterLike
from headgate.message import HeaderValue, Message
from headgate.queues import arguments, requests
from headgate.queues.engine import Access, Engine, QueueInfo, Start
from headgate.queues.outbox import Outbox
from headgate.queues.push import Pushes
from headgate.queues.queue import Queue, Subscription
from headgate.queues.relay import FileOutbox, OwnOutbox, Relay

_SYNCHRONOUS: Final = ("FULL", "NORMAL", "EXTRA", "OFF")


def connect(url: str, **options: Any) -> Database:
    """`sqlite:///orders.db`, `sqlite:////absolute/path.db`, `postgresql://…`, or `memory:` for tests.

    SQLite takes `synchronous="FULL" | "NORMAL"`: with FULL, what was confirmed survives a power cut. With
    `access="change"` the database must be there, and with `access="look"` nothing is ever written to it: not even
    what came through the SQL door is passed on to subscriptions.
    """
    return Database(open_engine(url, **options))


def open_engine(url: str, *, clock: Clock | None = None, **options: Any) -> Engine:
    """The engine a URL names."""
    parts = _split(url)
    if options.get("access", "create") not in get_args(Access):
        raise QueueOptionsError(
            f"access is {', '.join(get_args(Access))}, not {options['access']!r}"
        )
    if parts.scheme == "memory":
        from headgate.queues.memory.engine import MemoryEngine

        if options.pop("access", "create") != "create":
            raise DatabaseNotFound("memory: begins empty, so there is nothing to look at or change")
        return MemoryEngine(clock=clock, **options)
    if parts.scheme == "sqlite":
        from headgate.queues.sqlite.engine import SqliteEngine

        return SqliteEngine(
            sqlite_path(url), clock=clock, **{**_sqlite_options(url, parts.query), **options}
        )
    if parts.scheme in ("postgresql", "postgres"):
        return _open_postgres(url, clock, options)
    raise QueueOptionsError(
        f"cannot connect to {url!r}; use sqlite:///path.db, postgresql://host/name or memory:"
    )


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as problem:
        raise QueueOptionsError(f"{url!r} is no URL: {problem}") from problem


def _sqlite_options(url: str, query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    level = given.get("synchronous", "FULL").upper()
    if not given.keys() <= {"synchronous"} or level not in _SYNCHRONOUS:
        raise QueueOptionsError(
            f"{url!r}: behind the question mark may stand synchronous=FULL or another of {', '.join(_SYNCHRONOUS)}"
        )
    return given


def sqlite_path(url: str) -> Path:
    """The file a sqlite URL names: three slashes before a relative path, four before an absolute one."""
    parts = urlsplit(url)
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path:
        raise QueueOptionsError(f"{url!r} names no file; write sqlite:///orders.db")
    if "#" in url:
        raise QueueOptionsError(
            f"{url!r}: a queue is named apart from its database; for a # in the name of a file write %23"
        )
    if "\0" in path:
        raise QueueOptionsError(f"{url!r}: the name of a file cannot hold NUL")
    if path == ":memory:":
        raise QueueOptionsError("SQLite in memory cannot be shared by connections; use memory:")
    return Path(path)


def _open_postgres(url: str, clock: Clock | None, options: Mapping[str, Any]) -> Engine:
    try:
        from headgate.queues.postgres.engine import PostgresEngine
    except ImportError as missing:
        if missing.name is not None and missing.name.split(".")[0] != "psycopg":
            raise
        raise MissingExtra("postgres", "PostgreSQL") from missing
    return PostgresEngine(url, clock=clock, **options)


class Database:
    """Queues, subscriptions and callbacks in one database. Safe to use from several threads."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._operations = engine.operations
        self._pushes = Pushes(engine)

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
        """The queue of that name, created when there is none; options given change it, the others stay.

        filter_headers  copied next to each delivery and indexed, so that claims look them up; only ever added
        max_attempts    claims after which a failed message is a dead letter (5); 0: never
        dedup_window    how long a dedup key is remembered (5 minutes)
        archive         acked messages are kept until pruned
        """
        operation = requests.declare(
            self._operations, name, filter_headers, max_attempts, dedup_window, archive
        )
        return self._face(self.engine.run(operation))

    def find(self, name: str) -> Queue:
        """The queue or subscription of that name; QueueNotFound when there is none."""
        return self._face(self.engine.run(self._operations.find(name)))

    def queues(self) -> list[QueueInfo]:
        """All queues and durable subscriptions, by name."""
        infos = self.engine.run(self._operations.queues())
        return [info for info in infos if info.kind != "push"]

    def drop(self, name: str) -> None:
        """The queue or subscription, with everything in it."""
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
        **fields: Any,
    ) -> int:
        """To whoever subscribes, and to no queue; its id, or 0 when nobody wants it."""
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
        [id] = self.engine.run(self._operations.publish(None, [publication]))
        return id

    # -- subscriptions --

    def subscription(
        self,
        name: str,
        filter: FilterLike | None = None,
        *,
        pattern: str | None = None,
        queue: str | None = None,
        start: Start = "next",
        filter_headers: Iterable[str] | None = None,
        max_attempts: int | None = None,
        archive: bool | None = None,
    ) -> Subscription:
        """A durable subscription: a delivery of its own of every message that matches, whoever else consumes it.

        `queue` takes only what is published there; `start="first"` also what is stored already. One of that
        name gets the new filter in place. With neither filter nor pattern: the one that exists.
        """
        operation = requests.subscription(
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

    def subscribe(self, pattern: str, callback: Callable[[Message], object], *, id: str) -> bool:
        """Call it for every message published from now on whose topic matches, by whatever program; False when
        that id has that pattern already. Each subscriber is called in a thread of its own."""
        return self._pushes.subscribe(pattern, callback, id)

    def unsubscribe(self, pattern: str, id: str) -> bool:
        """No more calls for that pattern; whether there was such a subscription."""
        return self._pushes.unsubscribe(pattern, id)

    def unsubscribe_all(self, id: str) -> int:
        """No more calls to that subscriber; how many subscriptions it had."""
        return self._pushes.unsubscribe_all(id)

    # -- the outbox --

    def outbox(self, connection: Any) -> Outbox:
        """Publishes inside the transaction of a connection of yours: psycopg or apsw to this database, or sqlite3 to a
        file of your own, or SQLAlchemy on them. A relay moves it on once you have committed."""
        return Outbox(self.engine, connection)

    def relay(
        self, file: Path | str | None = None, *, poll: timedelta = timedelta(seconds=5)
    ) -> Relay:
        """Moves what is committed in this database's outbox, or in that of your SQLite file, into the queues."""
        source = OwnOutbox(self.engine) if file is None else FileOutbox(file, self.engine)
        return Relay(source, poll=poll)

    # -- closing --

    def close(self) -> None:
        self._pushes.close()
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

    def _face(self, info: QueueInfo) -> Queue:
        return Queue(self.engine, info) if info.kind == "queue" else Subscription(self.engine, info)

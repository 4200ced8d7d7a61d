"""connect(), awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any

from headgate.filters import FilterLike
from headgate.message import HeaderValue, Message
from headgate.queues import arguments, requests
from headgate.queues.aio.engines import AsyncEngine, open_async_engine
from headgate.queues.aio.outbox import Outbox, Relay
from headgate.queues.aio.push import Pushes
from headgate.queues.aio.queue import Queue, Subscription
from headgate.queues.engine import Publication, QueueInfo, Start


async def connect(url: str, **options: Any) -> Database:
    """`sqlite:///orders.db`, `postgresql://…` or `memory:`; see headgate.connect."""
    return Database(await open_async_engine(url, **options))


class Database:
    """Queues, subscriptions and callbacks in one database, for the tasks of one event loop."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self._operations = engine.operations
        self._pushes = Pushes(engine)

    # -- queues --

    async def queue(
        self,
        name: str,
        *,
        filter_headers: Iterable[str] | None = None,
        max_attempts: int | None = None,
        dedup_window: timedelta | None = None,
        archive: bool | None = None,
    ) -> Queue:
        """The queue of that name, created when there is none; options given change it, the others stay."""
        operation = requests.declare(
            self._operations, name, filter_headers, max_attempts, dedup_window, archive
        )
        return self._face(await self.engine.run(operation))

    async def find(self, name: str) -> Queue:
        """The queue or subscription of that name; QueueNotFound when there is none."""
        return self._face(await self.engine.run(self._operations.find(name)))

    async def queues(self) -> list[QueueInfo]:
        """All queues and durable subscriptions, by name."""
        infos = await self.engine.run(self._operations.queues())
        return [info for info in infos if info.kind != "push"]

    async def drop(self, name: str) -> None:
        """The queue or subscription, with everything in it."""
        await self.engine.run(self._operations.delete(name))

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
    ) -> Coroutine[Any, Any, int]:
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
        return self._publish(publication)

    async def _publish(self, publication: Publication) -> int:
        [id] = await self.engine.run(self._operations.publish(None, [publication]))
        return id

    # -- subscriptions --

    async def subscription(
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
        return Subscription(self.engine, await self.engine.run(operation))

    async def subscribe(
        self, pattern: str, callback: Callable[[Message], object], *, id: str
    ) -> bool:
        """Call or await it for every message published from now on whose topic matches, by whatever program; False
        when that id has that pattern already. Each subscriber is told in a task of its own."""
        return await self._pushes.subscribe(pattern, callback, id)

    async def unsubscribe(self, pattern: str, id: str) -> bool:
        """No more calls for that pattern; whether there was such a subscription."""
        return await self._pushes.unsubscribe(pattern, id)

    async def unsubscribe_all(self, id: str) -> int:
        """No more calls to that subscriber; how many subscriptions it had."""
        return await self._pushes.unsubscribe_all(id)

    # -- the outbox --

    def outbox(self, connection: Any) -> Outbox:
        """Publishes inside the transaction of a connection of yours to this database: psycopg or SQLAlchemy."""
        return Outbox(self.engine, connection)

    def relay(self, *, poll: timedelta = timedelta(seconds=5)) -> Relay:
        """Moves what is committed in the outbox into the queues while it is open."""
        return Relay(self.engine, poll=poll)

    # -- closing --

    async def close(self) -> None:
        await self._pushes.close()
        await self.engine.close()

    async def __aenter__(self) -> Database:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _face(self, info: QueueInfo) -> Queue:
        return Queue(self.engine, info) if info.kind == "queue" else Subscription(self.engine, info)

"""A queue whose verbs are awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from headgate.filters import FilterLike, as_filter
from headgate.message import HeaderValue, Message
from headgate.queues import arguments, requests
from headgate.queues.aio.consumer import Consumer
from headgate.queues.aio.delivery import Delivery
from headgate.queues.aio.engines import AsyncEngine
from headgate.queues.consumer import Member, Mode, Retry, Strategy
from headgate.queues.engine import (
    ClaimedMessage,
    DeliverySnapshot,
    IndexAdvice,
    Publication,
    QueueInfo,
    QueueStats,
    State,
)
from headgate.queues.queue import LEASE


class Queue:
    """A work queue, or a durable subscription: everything claimed is leased until it is settled."""

    def __init__(self, engine: AsyncEngine, info: QueueInfo) -> None:
        self._engine, self._operations, self.info = engine, engine.operations, info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def name(self) -> str:
        return self.info.name

    # -- publishing --

    # Neither waits to be awaited before it takes the message in: a dict of headers may be used again after the call.

    def publish(
        self,
        payload: bytes | Message,
        *,
        topic: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = 0,
        delay: timedelta | None = None,
        dedup_key: str | None = None,
        group: str | None = None,
        **fields: Any,
    ) -> Coroutine[Any, Any, int]:
        """Store it durably; its id. The topic is the queue's name unless given; `fields` are Message's others.

        A dedup key seen within the queue's window publishes nothing and gives the first message's id.
        """
        publication = arguments.publication(
            payload,
            topic=topic,
            headers=headers,
            priority=priority,
            delay=delay,
            dedup_key=dedup_key,
            group=group,
            default_topic=self.name,
            fields=fields,
        )
        return self._engine.publish_one(self.info, publication)

    def publish_many(
        self, messages: Iterable[bytes | Message | Publication]
    ) -> Coroutine[Any, Any, list[int]]:
        """All of them or none, in one transaction; their ids."""
        return self._publish_many(arguments.publications(messages, self.name))

    async def _publish_many(self, publications: list[Publication]) -> list[int]:
        if len(publications) == 1:
            return [await self._engine.publish_one(self.info, publications[0])]
        return await self._engine.run(self._operations.publish(self.info, publications))

    # -- claiming --

    async def claim(
        self,
        limit: int = 1,
        lease: timedelta = LEASE,
        filter: FilterLike | None = None,
        *,
        skip: Iterable[int] = (),
    ) -> list[Delivery]:
        """Up to `limit` messages that match, most urgent first, leased to the caller."""
        return await self.ack_and_claim((), limit, lease, filter, skip=skip)

    async def ack_and_claim(
        self,
        done: Iterable[Delivery],
        limit: int = 1,
        lease: timedelta = LEASE,
        filter: FilterLike | None = None,
        *,
        skip: Iterable[int] = (),
    ) -> list[Delivery]:
        """Ack those and claim the next, in one transaction. Those that were stale raise after the claim was
        given back."""
        claimed = await self._engine.run(
            requests.ack_and_claim(self._operations, self.info, done, limit, lease, filter, skip)
        )
        return [Delivery(self._engine, self.info, one) for one in claimed]

    def delivery(self, id: int, token: int) -> Delivery:
        """What was claimed elsewhere (another process, the command line), to be settled here."""
        arguments.message_ids((id, token))
        return Delivery(self._engine, self.info, ClaimedMessage(id, token, 0, Message()))

    def consumer(
        self,
        handler: Callable[[Delivery], object],
        *,
        filter: FilterLike | None = None,
        predicate: Callable[[Message], bool] | None = None,
        **settings: Any,
    ) -> Consumer:
        """Calls the handler, or awaits it, for each message while it is open: `async with queue.consumer(f):`.

        A handler that returns acks, one that raises nacks. `predicate` is asked after the filter; what it does not
        want is given back and not counted. For `settings`, see Consumer.
        """
        return self.consumer_group([Member("0", handler, filter, predicate)], **settings)

    def consumer_group(
        self,
        members: Sequence[Member[Delivery]],
        *,
        strategy: Strategy = "round_robin",
        mode: Mode = "hybrid",
        tasks: int = 1,
        batch: int = 10,
        lease: timedelta = LEASE,
        poll: timedelta = timedelta(seconds=5),
        retry: Retry | None = None,
        renew: bool = True,
        name: str = "consumer",
    ) -> Consumer:
        """Several handlers that share what is claimed: each message goes to one that wants it."""
        return Consumer(
            self._engine,
            self.info,
            members,
            strategy=strategy,
            mode=mode,
            tasks=tasks,
            batch=batch,
            lease=lease,
            poll=poll,
            retry=retry or Retry(),
            renew=renew,
            name=name,
        )

    # -- looking and tidying --

    async def peek(
        self, limit: int = 10, filter: FilterLike | None = None
    ) -> list[DeliverySnapshot]:
        """What a claim would take first; nothing changes."""
        chosen = arguments.optional_filter(filter)
        operation = self._operations.peek(self.info, arguments.limited(limit), chosen)
        return await self._engine.run(operation)

    async def browse(
        self, state: State | None = None, filter: FilterLike | None = None, *, page: int = 100
    ) -> AsyncIterator[DeliverySnapshot]:
        """Every delivery by id, whatever its state, or those in one; read page by page."""
        arguments.limited(page)
        chosen, after = arguments.optional_filter(filter), 0
        while True:
            operation = self._operations.browse(
                self.info, page, after=after, state=state, filter=chosen
            )
            found = await self._engine.run(operation)
            for standing in found:
                yield standing
            if len(found) < page:
                return
            after = found[-1].id

    def dead(self, filter: FilterLike | None = None) -> AsyncIterator[DeliverySnapshot]:
        """The dead letters."""
        return self.browse(State.DEAD, filter)

    async def requeue(self, ids: Iterable[int] | None = None) -> int:
        """Give dead letters another life: those named, or all; how many."""
        chosen = None if ids is None else arguments.message_ids(ids)
        return await self._engine.run(self._operations.requeue(self.info, chosen))

    async def archived(self, *, page: int = 100) -> AsyncIterator[DeliverySnapshot]:
        """What was acked, where the queue keeps an archive."""
        arguments.limited(page)
        after = 0
        while found := await self._engine.run(
            self._operations.archived(self.info, page, after=after)
        ):
            for standing in found:
                yield standing
            after = found[-1].id

    async def purge(self, state: State | None = None) -> int:
        """Delete what waits, or everything in one state; how many."""
        return await self._engine.run(self._operations.purge(self.info, state))

    async def prune(self, older_than: timedelta) -> int:
        """Delete what was published longer ago, except what is leased; how many."""
        span = arguments.microseconds(older_than)
        return await self._engine.run(self._operations.prune(self.info, span))

    async def pause(self) -> None:
        """Claims find nothing until `resume`; messages keep arriving."""
        self.info = await self._engine.run(self._operations.pause(self.name, paused=True))

    async def resume(self) -> None:
        self.info = await self._engine.run(self._operations.pause(self.name, paused=False))

    # -- numbers and indexes --

    async def stats(self) -> QueueStats:
        return await self._engine.run(self._operations.stats(self.info))

    async def index_add(self, header: str) -> None:
        """Declare one more filter header: it is copied for what is there, and indexed."""
        operation = requests.add_filter_header(self._operations, self.name, header)
        self.info = await self._engine.run(operation)

    async def index_advise(self, filter: FilterLike) -> IndexAdvice:
        """How a claim with this filter is answered, and which headers to declare."""
        return await self._engine.run(self._operations.advise(self.info, as_filter(filter)))


class Subscription(Queue):
    """A durable subscription: a queue that gets what its filter matches."""

    @property
    def filter(self) -> str:
        return self.info.filter

    async def set_filter(
        self, filter: FilterLike | None = None, *, pattern: str | None = None
    ) -> None:
        """Another filter from now on. What it holds stays; each message is judged by one version."""
        operation = requests.set_filter(self._operations, self.info, filter, pattern)
        self.info = await self._engine.run(operation)

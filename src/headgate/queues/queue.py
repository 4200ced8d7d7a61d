"""A queue: publish to it, claim from it, look at it, tidy it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from headgate.filters import FilterLike, as_filter
from headgate.message import HeaderValue, Message
from headgate.queues import arguments, requests
from headgate.queues.consumer import Consumer, Member, Mode, Retry, Strategy
from headgate.queues.delivery import Delivery
from headgate.queues.engine import (
    ClaimedMessage,
    DeliverySnapshot,
    Engine,
    IndexAdvice,
    Publication,
    QueueInfo,
    QueueStats,
    State,
)

LEASE: Final = timedelta(seconds=30)


class Queue:
    """A work queue, or a durable subscription: everything claimed is leased until it is settled."""

    def __init__(self, engine: Engine, info: QueueInfo) -> None:
        self._engine, self._operations, self.info = engine, engine.operations, info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def name(self) -> str:
        return self.info.name

    # -- publishing --

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
    ) -> int:
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

    def publish_many(self, messages: Iterable[bytes | Message | Publication]) -> list[int]:
        """All of them or none, in one transaction; their ids."""
        publications = arguments.publications(messages, self.name)
        if len(publications) == 1:
            return [self._engine.publish_one(self.info, publications[0])]
        return self._engine.run(self._operations.publish(self.info, publications))

    # -- claiming --

    def claim(
        self,
        limit: int = 1,
        lease: timedelta = LEASE,
        filter: FilterLike | None = None,
        *,
        skip: Iterable[int] = (),
    ) -> list[Delivery]:
        """Up to `limit` messages that match, most urgent first, leased to the caller."""
        return self.ack_and_claim((), limit, lease, filter, skip=skip)

    def ack_and_claim(
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
        claimed = self._engine.run(
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
        """Calls the handler for each message, in threads of its own, while it is open: `with queue.consumer(f):`.

        A handler that returns acks, one that raises nacks. `predicate` is asked in Python, after the filter; what it
        does not want is given back and not counted. For `settings`, see Consumer.
        """
        return self.consumer_group([Member("0", handler, filter, predicate)], **settings)

    def consumer_group(
        self,
        members: Sequence[Member[Delivery]],
        *,
        strategy: Strategy = "round_robin",
        mode: Mode = "hybrid",
        threads: int = 1,
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
            threads=threads,
            batch=batch,
            lease=lease,
            poll=poll,
            retry=retry or Retry(),
            renew=renew,
            name=name,
        )

    # -- looking and tidying --

    def peek(self, limit: int = 10, filter: FilterLike | None = None) -> list[DeliverySnapshot]:
        """What a claim would take first; nothing changes."""
        chosen = arguments.optional_filter(filter)
        return self._engine.run(self._operations.peek(self.info, arguments.limited(limit), chosen))

    def browse(
        self, state: State | None = None, filter: FilterLike | None = None, *, page: int = 100
    ) -> Iterator[DeliverySnapshot]:
        """Every delivery by id, whatever its state, or those in one; read page by page."""
        arguments.limited(page)
        chosen, after = arguments.optional_filter(filter), 0
        while True:
            operation = self._operations.browse(
                self.info, page, after=after, state=state, filter=chosen
            )
            found = self._engine.run(operation)
            yield from found
            if len(found) < page:
                return
            after = found[-1].id

    def dead(self, filter: FilterLike | None = None) -> Iterator[DeliverySnapshot]:
        """The dead letters."""
        return self.browse(State.DEAD, filter)

    def requeue(self, ids: Iterable[int] | None = None) -> int:
        """Give dead letters another life: those named, or all; how many."""
        chosen = None if ids is None else arguments.message_ids(ids)
        return self._engine.run(self._operations.requeue(self.info, chosen))

    def archived(self, *, page: int = 100) -> Iterator[DeliverySnapshot]:
        """What was acked, where the queue keeps an archive."""
        arguments.limited(page)
        after = 0
        while found := self._engine.run(self._operations.archived(self.info, page, after=after)):
            yield from found
            after = found[-1].id

    def purge(self, state: State | None = None) -> int:
        """Delete what waits, or everything in one state; how many."""
        return self._engine.run(self._operations.purge(self.info, state))

    def prune(self, older_than: timedelta) -> int:
        """Delete what was published longer ago, except what is leased; how many."""
        span = arguments.microseconds(older_than)
        return self._engine.run(self._operations.prune(self.info, span))

    def pause(self) -> None:
        """Claims find nothing until `resume`; messages keep arriving."""
        self.info = self._engine.run(self._operations.pause(self.name, paused=True))

    def resume(self) -> None:
        self.info = self._engine.run(self._operations.pause(self.name, paused=False))

    # -- numbers and indexes --

    def stats(self) -> QueueStats:
        return self._engine.run(self._operations.stats(self.info))

    def index_add(self, header: str) -> None:
        """Declare one more filter header: it is copied for what is there, and indexed."""
        operation = requests.add_filter_header(self._operations, self.name, header)
        self.info = self._engine.run(operation)

    def index_advise(self, filter: FilterLike) -> IndexAdvice:
        """How a claim with this filter is answered, and which headers to declare."""
        return self._engine.run(self._operations.advise(self.info, as_filter(filter)))


class Subscription(Queue):
    """A durable subscription: a queue that gets what its filter matches."""

    @property
    def filter(self) -> str:
        return self.info.filter

    def set_filter(self, filter: FilterLike | None = None, *, pattern: str | None = None) -> None:
        """Another filter from now on. What it holds stays; each message is judged by one version."""
        operation = requests.set_filter(self._operations, self.info, filter, pattern)
        self.info = self._engine.run(operation)

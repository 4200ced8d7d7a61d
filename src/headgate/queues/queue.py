# Generated from headgate/queues/aio/queue.py by tools/generate_sync.py: do not edit, run `make generate`.
"""A queue: publish to it, claim from it, browse it, tidy it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Unpack

from headgate.filters import FilterLike, as_filter
from headgate.message import INT64_MAX, HeaderValue, Message, MessageDetails
from headgate.queues import arguments, declarations, policies
from headgate.queues.arguments import LEASE
from headgate.queues.consumer import Consumer
from headgate.queues.consumer_options import Member, Mode, Observer, Retry, Strategy
from headgate.queues.delivery import Delivery
from headgate.queues.engine import (
    ClaimedMessage,
    ClaimRequest,
    DeliverySnapshot,
    Engine,
    IndexAdvice,
    Outcome,
    Publication,
    QueueInfo,
    QueueStats,
    RateLimit,
    Receipt,
    State,
)


class Queue:
    """A work queue, or a durable subscription: everything claimed is leased until it is settled.

    from datetime import timedelta

    with connect("sqlite:///orders.db") as db:
        orders = db.queue("orders", filter_headers=["region"], max_attempts=3)
        orders.publish(b"order 1", headers={"region": "EU"}, priority=5)
        lease = timedelta(seconds=30)
        for delivery in orders.claim(limit=10, lease=lease, filter="region = 'EU'"):
            assert delivery.message.payload == b"order 1"
            delivery.ack()
    """

    def __init__(self, engine: Engine, info: QueueInfo) -> None:
        self._engine, self._operations, self.info = engine, engine.operations, info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def name(self) -> str:
        return self.info.name

    # -- publishing --

    # The call itself copies the message: a dict of headers may be used again as soon as it has returned.

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
        ttl: timedelta | None = None,
        unique: str | None = None,
        result: bool | timedelta = False,
        **fields: Unpack[MessageDetails],
    ) -> int:
        """Store a message durably; return its id. The topic is by default the queue's name; `fields` are the others of Message.

        With a dedup key seen within the queue's window, nothing is published, and the id is that of the first message.

        ttl     the message is deleted unless it was claimed within this time
        unique  while a message with this key is pending, another is not published, and the id is that of the first
        result  what the handler returns is kept, for a day or that long, see Database.result
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
        if ttl is not None or unique is not None or result is not False:
            publication = arguments.ask_for_more(publication, ttl, unique, result)
        return self._engine.publish_one(self.info, publication)

    def publish_many(self, messages: Iterable[bytes | Message | Publication]) -> list[int]:
        """Store all messages or none, in one transaction; return their ids."""
        return self._publish_many(arguments.publications(messages, self.name))

    def _publish_many(self, publications: list[Publication]) -> list[int]:
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
        """Lease up to `limit` messages that match the filter, most urgent first; those with ids in `skip` are not taken."""
        claimed, _ = self._claim((), limit, lease, filter, skip)
        return claimed

    def ack_and_claim(
        self,
        done: Iterable[Delivery],
        limit: int = 1,
        lease: timedelta = LEASE,
        filter: FilterLike | None = None,
        *,
        skip: Iterable[int] = (),
    ) -> list[Delivery]:
        """Ack deliveries and claim the next messages in one transaction. When a lease had ended, the claimed messages are
        released and StaleLease is raised."""
        acked = [delivery for delivery in done if delivery.settled != "acked"]
        receipts = [delivery.receipt for delivery in acked]
        claimed, outcomes = self._claim(receipts, limit, lease, filter, skip)
        for delivery, outcome in zip(acked, outcomes, strict=True):
            delivery.settled = "acked" if outcome is Outcome.DONE else None
        if outcomes.count(Outcome.DONE) < len(outcomes):
            leased = [delivery.receipt for delivery in claimed]
            self._engine.run(self._operations.release(self.info, leased))
            arguments.check_settled(self.name, receipts, outcomes, "ack")
        return claimed

    def _claim(
        self,
        acks: Sequence[Receipt],
        limit: int,
        lease: timedelta,
        filter: FilterLike | None,
        skip: Iterable[int],
    ) -> tuple[list[Delivery], list[Outcome]]:
        """Claim messages, and ack receipts; return the deliveries, and the outcome of each ack."""
        limit, lease_us = arguments.check_limit(limit), arguments.lease_us(lease)
        wanted = None if filter is None else as_filter(filter)
        skipped = frozenset(arguments.message_ids(skip)) if skip else ()
        if skipped:
            operation = self._operations.claim(
                self.info, limit, lease_us, filter=wanted, skip=skipped, acks=acks
            )
            claimed, outcomes = self._engine.run(operation)
        else:
            request = ClaimRequest(limit, lease_us)
            claimed, outcomes = self._engine.claim(self.info, request, wanted, acks)
        return [Delivery(self._engine, self.info, one) for one in claimed], outcomes

    def delivery(self, id: int, token: int) -> Delivery:
        """Return a delivery that was claimed elsewhere (another process, the command line), to settle it here.

        Its `message` is empty.
        """
        arguments.message_ids((id, token))
        return Delivery(self._engine, self.info, ClaimedMessage(id, token, 0, Message()))

    def consumer(
        self,
        handler: Callable[[Delivery], object],
        *,
        filter: FilterLike | None = None,
        predicate: Callable[[Message], bool] | None = None,
        mode: Mode = "hybrid",
        threads: int = 1,
        batch: int = 10,
        lease: timedelta = LEASE,
        poll: timedelta = timedelta(seconds=5),
        retry: Retry | None = None,
        renew: bool = True,
        timeout: timedelta | None = None,
        observer: Observer | None = None,
        name: str = "consumer",
    ) -> Consumer:
        """Return a consumer, which calls the handler for each message, in threads of its own: `with queue.consumer(f):`.

        A message is acked when its handler returns, and nacked when it raises. `predicate` is asked in Python, after the
        filter; a message that it rejects is released, and the claim is not counted. Consumer explains the other settings.
        """
        return self.consumer_group(
            [Member("0", handler, filter, predicate)],
            mode=mode,
            threads=threads,
            batch=batch,
            lease=lease,
            poll=poll,
            retry=retry,
            renew=renew,
            timeout=timeout,
            observer=observer,
            name=name,
        )

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
        timeout: timedelta | None = None,
        observer: Observer | None = None,
        name: str = "consumer",
    ) -> Consumer:
        """Return a consumer with several handlers: each message goes to one member that accepts it."""
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
            timeout=timeout,
            observer=observer,
            name=name,
        )

    # -- browsing --

    def peek(self, limit: int = 10, filter: FilterLike | None = None) -> list[DeliverySnapshot]:
        """Return the messages that a claim would take first, without claiming them."""
        operation = self._operations.peek(
            self.info, arguments.check_limit(limit), arguments.optional_filter(filter)
        )
        return self._engine.run(operation)

    def browse(
        self, state: State | None = None, filter: FilterLike | None = None, *, page: int = 100
    ) -> Iterator[DeliverySnapshot]:
        """Yield every delivery in the order of ids, in all states or one; they are read page by page."""
        arguments.check_limit(page, "page")
        arguments.check_state(state)
        tree, after = arguments.optional_filter(filter), 0
        while True:
            operation = self._operations.browse(
                self.info, page, after=after, state=state, filter=tree
            )
            found = self._engine.run(operation)
            yield from found
            if len(found) < page:
                return
            after = found[-1].id

    def latest(
        self, limit: int = 10, *, before: int | None = None, state: State | None = None
    ) -> list[DeliverySnapshot]:
        """Return the deliveries with the highest ids, the highest first, in all states or one, and only ids below `before`."""
        arguments.check_state(state)
        operation = self._operations.latest(
            self.info,
            arguments.check_limit(limit),
            before=INT64_MAX if before is None else before,
            state=state,
        )
        return self._engine.run(operation)

    def dead(self, filter: FilterLike | None = None) -> Iterator[DeliverySnapshot]:
        """Yield the dead letters, in the order of ids."""
        return self.browse(State.DEAD, filter)

    def archived(self, *, page: int = 100) -> Iterator[DeliverySnapshot]:
        """Yield the acked messages in the order of ids, if the queue keeps an archive."""
        arguments.check_limit(page, "page")
        after = 0
        while found := self._engine.run(self._operations.archived(self.info, page, after=after)):
            yield from found
            after = found[-1].id

    # -- tidying --

    def requeue(self, ids: Iterable[int] | None = None) -> int:
        """Make dead letters claimable again, those with these ids or all; return their number."""
        listed = None if ids is None else arguments.message_ids(ids)
        return self._engine.run(self._operations.requeue(self.info, listed))

    def purge(self, state: State | None = None) -> int:
        """Delete the messages that are ready or delayed, or all in one state; return their number."""
        return self._engine.run(self._operations.purge(self.info, arguments.check_state(state)))

    def prune(self, older_than: timedelta) -> int:
        """Delete messages that were published longer ago than that, except leased ones; return their number."""
        span_us = arguments.microseconds("older_than", older_than)
        return self._engine.run(self._operations.prune(self.info, span_us))

    def pause(self) -> None:
        """Let claims find nothing until `resume`; messages keep arriving."""
        self.info = self._engine.run(self._operations.pause(self.name, paused=True))

    def resume(self) -> None:
        """Let claims find messages again."""
        self.info = self._engine.run(self._operations.pause(self.name, paused=False))

    def limit_rate(self, count: int | None, per: timedelta = timedelta(seconds=1)) -> None:
        """Let all consumers together claim this many messages per time span, on average, and at most as many at once; a count of
        None removes the limit."""
        limit = policies.rate_limit(count, per)
        self.info = self._engine.run(self._operations.set_rate(self.info, limit))

    def rate_limit(self) -> RateLimit | None:
        """Return the limit that `limit_rate` has set; None if there is none."""
        return self._engine.run(self._operations.rate(self.info))

    def delete(self) -> None:
        """Delete this queue or subscription with everything in it."""
        self._engine.run(self._operations.delete(self.name))

    # -- statistics and indexes --

    def stats(self) -> QueueStats:
        """Return the number of messages in each state, and the statistics of the consumers."""
        return self._engine.run(self._operations.stats(self.info))

    def index_add(self, header: str) -> None:
        """Declare one more filter header: its values are indexed, also those of the messages in the queue."""
        operation = declarations.add_filter_header(self._operations, self.name, header)
        self.info = self._engine.run(operation)

    def index_advise(self, filter: FilterLike) -> IndexAdvice:
        """Explain how a claim with this filter is answered, and advise which headers to declare."""
        return self._engine.run(self._operations.advise(self.info, as_filter(filter)))


class Subscription(Queue):
    """A durable subscription: a queue that receives what its filter matches."""

    @property
    def filter(self) -> str:
        return self.info.filter

    def set_filter(self, filter: FilterLike | None = None, *, pattern: str | None = None) -> None:
        """Change the filter from now on. What the subscription holds stays; each message is judged by one version of it."""
        operation = declarations.set_filter(self._operations, self.info, filter, pattern)
        self.info = self._engine.run(operation)

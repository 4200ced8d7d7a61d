"""The operations that every queue engine offers; their values, and the rules they share, are in `queues.engine`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

from headgate.filters import Filter
from headgate.message import INT64_MAX
from headgate.queues.engine import (
    ClaimedMessage,
    DeliverySnapshot,
    IndexAdvice,
    JobResult,
    Operation,
    Outcome,
    Publication,
    QueueInfo,
    QueueOptions,
    QueueStats,
    RateLimit,
    Receipt,
    Schedule,
    ScheduleState,
    State,
    SubscriptionStart,
    Usage,
)

T = TypeVar("T")


class Operations(Protocol):
    """All operations on the queues of one database. Unknown names raise QueueNotFound."""

    # -- queues --

    def declare(self, name: str, options: QueueOptions | None) -> Operation[QueueInfo]:
        """Create the queue, or change the options of an existing one; None keeps them.

        Filter headers are only added; new ones are copied for older messages and indexed before this returns.
        """
        ...

    def find(self, name: str) -> Operation[QueueInfo]:
        """Return the queue or subscription of that name."""
        ...

    def find_or_none(self, name: str) -> Operation[QueueInfo | None]:
        """Return the queue or subscription of that name; None if there is none, without a search for similar names."""
        ...

    def queues(self) -> Operation[list[QueueInfo]]:
        """Return all queues and subscriptions, in the order of their names."""
        ...

    def last_known(self, queue: QueueInfo) -> QueueInfo:
        """Return the queue of that name as the last operation read it, without asking the database."""
        ...

    def delete(self, name: str) -> Operation[None]:
        """Delete the queue with everything in it: dead letters, archive and statistics too."""
        ...

    def pause(self, name: str, *, paused: bool) -> Operation[QueueInfo]:
        """Pause or resume the queue. Claims on a paused queue find nothing; messages are still published to it."""
        ...

    # -- subscriptions --

    def subscribe(
        self,
        name: str,
        filter: Filter,
        *,
        source: str | None = None,
        options: QueueOptions | None = None,
        start: SubscriptionStart = "next",
        lease_us: int | None = None,
    ) -> Operation[QueueInfo]:
        """Create a durable subscription, which gets its own delivery of every message its filter matches.

        The filter is evaluated when a message is published. An existing subscription of that name gets the new filter:
        it keeps its deliveries, and each message is judged by exactly one version of the filter. `start="first"` also
        delivers stored messages. With `lease_us` it is a push subscription, which is deleted unless its owner calls
        `keep_alive` in time. UTC() in the filter is the time of publishing.
        """
        ...

    def keep_alive(self, name: str, lease_us: int) -> Operation[bool]:
        """Extend the lease of a push subscription; return False if it was deleted already."""
        ...

    def route(self) -> Operation[int]:
        """Deliver messages from the `inbox` view to the subscriptions, and delete expired push subscriptions. Return the
        number of deliveries that were made. Claims on subscriptions begin with it."""
        ...

    # -- publishing and consuming --

    def publish(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[list[int]]:
        """Store all publications durably, or none; return their ids. Without a queue, only subscriptions receive them.

        A message whose dedup key the queue has seen within its window is not published, and gets the id of the first message.
        A message without receivers is not stored, and gets the id 0. A message whose unique key a pending message has (READY,
        DELAYED or LEASED) is not published, and gets the id of that message.
        """
        ...

    def claim(
        self,
        queue: QueueInfo,
        limit: int,
        lease_us: int,
        *,
        filter: Filter | None = None,
        skip: Collection[int] = (),
        acks: Sequence[Receipt] = (),
        together: bool = False,
    ) -> Operation[tuple[list[ClaimedMessage], list[Outcome]]]:
        """Lease up to `limit` READY deliveries that match, in order, and ack `acks`; return the messages, and the outcomes.

        It may return fewer than there are (groups, concurrent claims), but none only if none was claimable. Ids in `skip`
        are not claimed. The acks and the claim are one transaction, on PostgreSQL one statement. `together`: one
        consumer handles the messages one after the other; see the rule on attempts.
        """
        ...

    def ack(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        """Delete the deliveries, which are done; archive them if the queue keeps an archive."""
        ...

    def nack(
        self, queue: QueueInfo, receipts: Sequence[Receipt], delay_us: int, reason: str | None
    ) -> Operation[list[Outcome]]:
        """Make failed deliveries READY again, after the delay if there is one, or DEAD when their attempts are used up."""
        ...

    def bury(
        self, queue: QueueInfo, receipts: Sequence[Receipt], reason: str | None
    ) -> Operation[list[Outcome]]:
        """Make failed deliveries DEAD, whatever their attempts (nack with requeue=False)."""
        ...

    def extend(
        self, queue: QueueInfo, receipts: Sequence[Receipt], lease_us: int
    ) -> Operation[list[Outcome]]:
        """Extend the leases to `lease_us` from now; longer ones are not shortened."""
        ...

    def release(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        """Make the deliveries READY again at once, without counting the claim."""
        ...

    def promote(self, queue: QueueInfo) -> Operation[int]:
        """Make due deliveries READY or DEAD; return their number. Claims begin with it."""
        ...

    def next_due(self, queue: QueueInfo) -> Operation[int | None]:
        """Return the microseconds until a DELAYED or LEASED delivery falls due, 0 if one is due; None if there is none, or if
        the queue is paused. What falls due may also be the rest of a backlog, see sql.backlog."""
        ...

    def has_ready(self, queue: QueueInfo) -> Operation[bool]:
        """Return whether a claim may find something; also True if the queue was deleted."""
        ...

    # -- browsing, deleting, requeueing --

    def peek(
        self, queue: QueueInfo, limit: int, filter: Filter | None = None
    ) -> Operation[list[DeliverySnapshot]]:
        """Return the READY deliveries that a claim could take, in order, also several of one group, without claiming them."""
        ...

    def browse(
        self,
        queue: QueueInfo,
        limit: int,
        *,
        after: int = 0,
        state: State | None = None,
        filter: Filter | None = None,
    ) -> Operation[list[DeliverySnapshot]]:
        """Return deliveries in the order of their ids, from the one after `after`, in all states or one."""
        ...

    def latest(
        self,
        queue: QueueInfo,
        limit: int,
        *,
        before: int = INT64_MAX,
        state: State | None = None,
    ) -> Operation[list[DeliverySnapshot]]:
        """Return the deliveries with the highest ids below `before`, the highest first, in all states or one."""
        ...

    def archived(
        self, queue: QueueInfo, limit: int, *, after: int = 0
    ) -> Operation[list[DeliverySnapshot]]:
        """Return archived messages in the order of their ids; their state is READY, `visible_at` is the time of the ack."""
        ...

    def purge(self, queue: QueueInfo, state: State | None = None) -> Operation[int]:
        """Delete READY and DELAYED deliveries, or those in `state`; return their number. LEASED ones only with `state`."""
        ...

    def prune(self, queue: QueueInfo, older_than_us: int) -> Operation[int]:
        """Delete READY, DELAYED, DEAD and archived messages that were published longer ago than that; return their number."""
        ...

    def requeue(self, queue: QueueInfo, ids: Sequence[int] | None = None) -> Operation[int]:
        """Make dead letters READY, with no attempts: those with the ids, or all; return their number."""
        ...

    # -- statistics and indexes --

    def stats(self, queue: QueueInfo) -> Operation[QueueStats]:
        """Count the deliveries by state, and read the statistics of the consumers."""
        ...

    def add_usage(self, queue: QueueInfo, consumer: str, usage: Usage) -> Operation[None]:
        """Add to the statistics of a consumer."""
        ...

    def advise(self, queue: QueueInfo, filter: Filter) -> Operation[IndexAdvice]:
        """Explain a claim with this filter, and advise which headers to declare."""
        ...

    # -- policies: see queues.policies --

    def set_rate(self, queue: QueueInfo, limit: RateLimit | None) -> Operation[QueueInfo]:
        """Limit the rate at which the messages of a queue are claimed; None removes the limit."""
        ...

    def rate(self, queue: QueueInfo) -> Operation[RateLimit | None]:
        """Return the limit of the rate of claims; None if there is none."""
        ...

    def ack_with_result(
        self, queue: QueueInfo, receipt: Receipt, value: str
    ) -> Operation[list[Outcome]]:
        """Ack a delivery, and store what its handler returned, as JSON, if the publisher asked for it."""
        ...

    def result(self, id: int) -> Operation[JobResult | None]:
        """Return the result of a message; None if none was asked for, or it has expired."""
        ...

    # -- transactions, schedules --

    def atomically(self, body: Callable[[], Operation[T]]) -> Operation[T]:
        """Run the operations of which `body` consists in one transaction."""
        ...

    def schedules(self, name: str | None = None) -> Operation[tuple[list[ScheduleState], int]]:
        """Return all schedules, or the one of that name, and the time: microseconds since 1970 UTC."""
        ...

    def due_schedules(self, limit: int) -> Operation[tuple[list[ScheduleState], int]]:
        """Return schedules that are due, locked until the end of the transaction, and the time. Schedules that another
        transaction has locked are left out."""
        ...

    def next_schedule(self) -> Operation[int | None]:
        """Return the microseconds until the next run, 0 if one is due; None without schedules."""
        ...

    def declare_schedule(self, schedule: Schedule, next_at: int) -> Operation[None]:
        """Insert or change a schedule; an existing one keeps its next run, unless its times change."""
        ...

    def note_run(self, state: ScheduleState) -> Operation[None]:
        """Store what became of the runs of a schedule."""
        ...

    def delete_schedule(self, name: str) -> Operation[bool]:
        """Delete a schedule; return whether there was one."""
        ...

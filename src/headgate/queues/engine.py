"""The contract of every queue engine: steps, values, operations.

An operation is a generator: it yields steps (statements), is sent the rows of each step, and returns its result. An
engine runs it: apsw directly, psycopg directly or awaited. Operations that consist of several others are generators as
well, see requests. So the sync and the asyncio API share every rule. The operations of the in-memory reference yield
no steps.

The life of a delivery (one message in one queue):

    publish ──► READY ──claim──► LEASED ──ack──► deleted (archived, if the queue keeps an archive)
      │           ▲  ▲              │
      │ delay     │  └── release ───┤ the claim is not counted
      ▼           │                 │
    DELAYED ──────┘ ◄──── nack ─────┤ attempts < max_attempts: READY, or DELAYED with a delay
                                    └──► DEAD: attempts ≥ max_attempts, at nack or when the lease ends

Rules all engines share:

- Times are integers, microseconds. "Now" is the database's clock on PostgreSQL, and on SQLite a clock that is
  independent of changes to the wall clock.
- The order of a queue is priority descending, then id ascending. A group (`Publication.group`) has at most one
  delivery in progress: no member is claimed while another is LEASED, or DELAYED after a nack. A claim considers
  the first `limit` deliveries that match and whose group is free, and takes the first of each group.
- A claim increments `attempts`. When the lease of several deliveries that were claimed `together` ends, it is unknown
  which of them were handled and which one stopped the consumer: all of them get the attempt back, and from then on a
  claim `together` takes each of them alone (it ends before the first such delivery, or takes only that one). So a message
  that kills its consumers is counted, and its neighbours are not.
- DELAYED and LEASED deliveries that fall due become READY, or DEAD, at the beginning of the next claim on their queue
  (and by `promote`), never by themselves. Deliveries that another transaction has locked at that moment are skipped.
- A receipt is (id, token); the receipts of one call belong to different deliveries. The token changes with every claim.
  A receipt is valid as long as its delivery is LEASED with that token, also after the end of the lease until it is
  promoted.
- A message row is stored once; it is deleted with its last delivery.
- A QueueInfo identifies a queue by its name. Its other fields may be outdated: operations use what the database
  says of the queue of that name now, and raise QueueNotFound when there is none.
- A publisher compares the catalog version inside its transaction (CatalogCache.read), so that it never uses an old
  list of subscriptions or filter headers once a change to them is committed. Where transactions overlap
  (PostgreSQL), declare and subscribe wait for those that began before: FOR SHARE / FOR UPDATE on the catalog row.
- One SQLite file must never be opened by two SQLite libraries in one process (apsw has its own, the standard
  library's sqlite3 another): each ignores the locks of the other and releases them when it closes the file, closing
  deletes the WAL, and messages are lost (observed: a segfault). So an outbox on a sqlite3 connection is in another file
  than the queues, read by a relay through sqlite3; the queues' own file is refused, see outbox and sqlite.file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar
from typing import Literal as OneOf

from headgate.errors import QueueError
from headgate.filters import Filter
from headgate.message import Message

T = TypeVar("T")

# ---- steps: what an operation asks of its engine -------------------------------------------------------

# A list is an array: JSON text on SQLite (`json_each(?1)`), an array on PostgreSQL (`unnest($1::bigint[])`).
SqlValue: TypeAlias = str | int | float | bytes | list[Any] | None
Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = Sequence[Row]


class Statement(NamedTuple):
    """One statement; the reply is its rows."""

    text: str
    params: tuple[SqlValue, ...] = ()


class ForEach(NamedTuple):
    """One statement for every row of parameters, in order; the reply is the rows they return, in that order.

    SQLite runs it once per row. PostgreSQL gets one array per column and its statement unnests them. So a row
    holds no lists.
    """

    text: str
    rows: tuple[tuple[SqlValue, ...], ...]


class TransactionMode(Enum):
    READ = "read"  # a snapshot; never waits for writers
    WRITE = "write"  # BEGIN IMMEDIATE on SQLite
    LEASE = (
        "lease"  # a WRITE that may be lost in a power failure: then the messages are claimed again
    )


class Transaction(NamedTuple):
    """Run the operation that `body` makes in one transaction; the reply is its result.

    An exception rolls back. After a TransactionConflict the engine calls `body` again. Steps outside of a transaction
    are transactions of their own.
    """

    mode: TransactionMode
    body: Callable[[], Operation[Any]]


class Notify(NamedTuple):
    """These queues may have something to claim, or a new due time. In a transaction, it is sent at the commit.

    It wakes watches in this process at once. An engine whose database notifies every process may ignore it.
    """

    queues: tuple[int, ...]


Step: TypeAlias = Statement | ForEach | Transaction | Notify
Operation: TypeAlias = Generator[Step, Any, T]


class TransactionConflict(QueueError):
    """Another transaction changed the same rows; this one was rolled back. Engines try again."""


def run_inline(operation: Operation[T]) -> Operation[T]:
    """Run the operation inside the transaction of the caller: its own transactions neither begin nor commit."""
    try:
        step = next(operation)
        while True:
            try:
                if isinstance(step, Transaction):
                    reply = yield from run_inline(step.body())
                else:
                    reply = yield step
            except GeneratorExit:
                operation.close()
                raise
            except BaseException as problem:
                step = operation.throw(problem)
            else:
                step = operation.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


# ---- values --------------------------------------------------------------------------------------------


class State(IntEnum):
    READY = 0
    DELAYED = 1
    LEASED = 2
    DEAD = 3


class Outcome(Enum):
    """What became of a receipt."""

    DONE = "done"
    STALE = "stale"  # the delivery is there, but no longer leased with this token
    GONE = "gone"  # there is no such delivery: acked before, purged, or never


QueueKind: TypeAlias = OneOf["queue", "subscription", "push"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    filter_headers: tuple[str, ...] = ()  # copied next to the delivery and indexed
    max_attempts: int = 5  # claims, after which a failed delivery is dead; 0: no limit
    dedup_window_us: int = 300_000_000
    archive: bool = False  # acked messages are kept in the archive until pruned


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue, or a durable subscription, which is a queue that is fed by a filter."""

    id: int
    name: str
    options: QueueOptions = field(default_factory=QueueOptions)
    kind: QueueKind = "queue"
    # Those filter headers whose copy is complete: claims may use them.
    indexed: tuple[str, ...] = ()
    filter: str = ""  # of a subscription: its text in canonical form
    source: int | None = None  # of a subscription: only what is published to this queue
    version: int = 1  # of the filter
    paused: bool = False  # nothing is claimed; messages keep arriving
    expires_at: int | None = None  # of a push subscription: when its owner counts as dead


@dataclass(frozen=True, slots=True)
class Publication:
    """A valid message (see message.validate) and what only the queue needs to know."""

    message: Message
    delay_us: int = 0
    dedup_key: str | None = None
    group: str | None = None


class Receipt(NamedTuple):
    id: int
    token: int


class ClaimedMessage(NamedTuple):
    """What a claim hands out. `message.timestamp` is set; `message.id` is the publisher's, or None."""

    id: int
    token: int
    attempts: int  # including this one
    message: Message
    group: str | None = None

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.id, self.token)


@dataclass(frozen=True, slots=True)
class DeliverySnapshot:
    """A delivery as it stands, for those who only look."""

    id: int
    state: State
    attempts: int
    # When it becomes READY (DELAYED), when its lease ends (LEASED), when it died (DEAD).
    visible_at: int
    message: Message
    group: str | None = None
    reason: str | None = None  # of the last nack, or why it is dead


@dataclass(frozen=True, slots=True)
class Usage:
    """What a consumer did since it last said so; added up in the database."""

    claims: int = 0
    empty_claims: int = 0
    rows: int = 0
    claim_us: int = 0  # time spent in claims
    unmatched: int = 0  # claimed, and given back because no predicate wanted it
    acked: int = 0
    nacked: int = 0
    failures: int = 0  # handlers that raised


@dataclass(frozen=True, slots=True)
class QueueStats:
    info: QueueInfo
    ready: int
    delayed: int
    leased: int
    dead: int
    oldest_ready_us: int | None  # age of the READY message with the lowest id
    usage: Mapping[str, Usage]  # by consumer name


@dataclass(frozen=True, slots=True)
class IndexAdvice:
    """How a claim with this filter would be answered, and what would make it cheaper."""

    plan: tuple[str, ...]  # the engine's own words, EXPLAIN
    scans: bool  # whether it reads the READY deliveries in order until enough match
    suggestions: tuple[str, ...]  # headers to declare
    residual: tuple[str, ...] = ()  # what only Python can decide, and why


Start: TypeAlias = OneOf["next", "first"]
# What a database is opened for: make it if need be, change what is there, or look and never write.
Access: TypeAlias = OneOf["create", "change", "look"]


# ---- the operations ------------------------------------------------------------------------------------


class Operations(Protocol):
    """Everything that can be done to the queues of one database. Names not found raise QueueNotFound."""

    # -- queues --

    def declare(self, name: str, options: QueueOptions | None) -> Operation[QueueInfo]:
        """The queue, created when there is none; other options than before change it. With None, they stay.

        Filter headers are only ever added; the new ones are backfilled and indexed before this returns.
        """
        ...

    def find(self, name: str) -> Operation[QueueInfo]:
        """The queue or subscription of that name; QueueNotFound if there is none."""
        ...

    def queues(self) -> Operation[list[QueueInfo]]:
        """All queues and subscriptions, by name."""
        ...

    def last_known(self, queue: QueueInfo) -> QueueInfo:
        """The queue of that name as the last operation saw it; the database is not asked."""
        ...

    def delete(self, name: str) -> Operation[None]:
        """Delete the queue with everything in it: dead letters, archive and statistics too."""
        ...

    def pause(self, name: str, *, paused: bool) -> Operation[QueueInfo]:
        """Claims on a paused queue find nothing; messages keep arriving."""
        ...

    # -- subscriptions --

    def subscribe(
        self,
        name: str,
        filter: Filter,
        *,
        source: str | None = None,
        options: QueueOptions | None = None,
        start: Start = "next",
        lease_us: int | None = None,
    ) -> Operation[QueueInfo]:
        """A durable subscription: it gets a delivery of its own of every message its filter matches.

        The filter is asked when a message is published. One of that name that exists gets the filter in place:
        what it holds stays, and every message is judged by exactly one version. `start="first"` also
        takes what is stored already. With a lease it is a push subscription, and it is dropped when its owner
        does not `keep_alive` it in time. UTC() in its filter is the moment of publishing.
        """
        ...

    def keep_alive(self, name: str, lease_us: int) -> Operation[bool]:
        """The push subscription lives on; False when it has been dropped already."""
        ...

    def route(self) -> Operation[int]:
        """Give what came through the SQL door to the subscriptions, drop expired push subscriptions; how many
        deliveries were made. Claims on subscriptions do it first."""
        ...

    # -- publishing and consuming --

    def publish(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[list[int]]:
        """All of them or none, durably; their ids. Without a queue, subscriptions alone receive them.

        A dedup key seen in this queue within its window gives the id of the first message, and publishes nothing.
        A message that nobody receives is not stored, and has the id 0.
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
        """Up to `limit` READY deliveries that match, in order, leased; and what became of `acks`.

        It may find fewer than there are (groups, races), but nothing only when nothing was claimable. `skip` are ids
        not to take. The acks and the claim are one transaction, on PostgreSQL one statement. `together`: one consumer
        handles them, one after the other; see the rule on attempts.
        """
        ...

    def ack(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        """Finished: the deliveries are gone, and archived if the queue says so."""
        ...

    def nack(
        self, queue: QueueInfo, receipts: Sequence[Receipt], delay_us: int, reason: str | None
    ) -> Operation[list[Outcome]]:
        """Failed: READY again, after the delay if there is one, or DEAD when attempts are used up."""
        ...

    def bury(
        self, queue: QueueInfo, receipts: Sequence[Receipt], reason: str | None
    ) -> Operation[list[Outcome]]:
        """Failed for good: DEAD, whatever the attempts (nack with requeue=False)."""
        ...

    def extend(
        self, queue: QueueInfo, receipts: Sequence[Receipt], lease_us: int
    ) -> Operation[list[Outcome]]:
        """The leases end `lease_us` from now; those that last longer stay as they are."""
        ...

    def release(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        """Never mind: READY again at once, and the claim is not counted."""
        ...

    def promote(self, queue: QueueInfo) -> Operation[int]:
        """What is due becomes READY or DEAD; how many. Claims do it first."""
        ...

    def next_due(self, queue: QueueInfo) -> Operation[int | None]:
        """Microseconds until something DELAYED or LEASED falls due, 0 when it is; None when there is no such, or when
        the queue is paused."""
        ...

    # -- looking and tidying --

    def peek(
        self, queue: QueueInfo, limit: int, filter: Filter | None = None
    ) -> Operation[list[DeliverySnapshot]]:
        """The READY deliveries a claim could take, in order, also several of one group; nothing changes."""
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
        """Deliveries by id, from the one after `after` on, in whatever state or in the one given."""
        ...

    def archived(
        self, queue: QueueInfo, limit: int, *, after: int = 0
    ) -> Operation[list[DeliverySnapshot]]:
        """Acked messages, by id; their state is READY, `visible_at` the time of the ack."""
        ...

    def purge(self, queue: QueueInfo, state: State | None = None) -> Operation[int]:
        """Delete READY and DELAYED deliveries, or all in one state; how many. LEASED ones only when asked for."""
        ...

    def prune(self, queue: QueueInfo, older_than_us: int) -> Operation[int]:
        """Delete READY, DELAYED, DEAD and archived messages published longer ago than that; how many."""
        ...

    def requeue(self, queue: QueueInfo, ids: Sequence[int] | None = None) -> Operation[int]:
        """Dead letters become READY with no attempts: those named, or all; how many."""
        ...

    # -- numbers and indexes --

    def stats(self, queue: QueueInfo) -> Operation[QueueStats]: ...

    def add_usage(self, queue: QueueInfo, consumer: str, usage: Usage) -> Operation[None]: ...

    def advise(self, queue: QueueInfo, filter: Filter) -> Operation[IndexAdvice]:
        """What EXPLAIN says of a claim with this filter, and which headers to declare."""
        ...


class CommitWatch(Protocol):
    """Until closed, wakes somebody."""

    def close(self) -> None: ...


class Wake(Protocol):
    def __call__(self, queues: frozenset[int] | None) -> object:
        """These queues may have something to claim; None: any of them. From any thread; returns at once."""
        ...


class Engine(Protocol):
    """Runs operations against one database. Safe to use from several threads."""

    @property
    def operations(self) -> Operations: ...

    def run(self, operation: Operation[T]) -> T:
        """Run it to its end; on an exception, roll back and raise (DatabaseUnavailable when the database is
        out of reach, so that the caller may try a new operation)."""
        ...

    def publish_one(self, queue: QueueInfo, publication: Publication) -> int:
        """What `operations.publish` does with a single publication, by the engine's shortest way; its id."""
        ...

    def watch(self, wake: Wake) -> CommitWatch:
        """Call `wake` after every commit that may have made something claimable, from any connection or process,
        also by plain SQL, and never for a rollback; also when a lost connection is back."""
        ...

    def close(self) -> None:
        """Idempotent; operations afterwards raise DatabaseClosed."""
        ...


class AsyncEngine(Protocol):
    """An Engine whose verbs are awaited. `watch` calls back from another thread."""

    @property
    def operations(self) -> Operations: ...

    async def run(self, operation: Operation[T]) -> T: ...

    async def publish_one(self, queue: QueueInfo, publication: Publication) -> int: ...

    def watch(self, wake: Wake) -> CommitWatch: ...

    async def close(self) -> None: ...

"""The contract of every queue engine: steps and values. Its operations are in `queues.operations`.

An operation is a generator: it yields steps (statements), is sent the rows of each step, and returns its result. An
engine runs it: apsw directly, psycopg directly or awaited. Operations that consist of several others are generators as
well, see declarations. So the sync and the asyncio API share every rule. The operations of the in-memory reference yield
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
- Whatever makes a delivery claimable wakes a consumer that waits: a publish, a nack, a release, a promotion, and what ends
  the lease of a group's member, an ack or a dead letter.
- A receipt is (id, token); the receipts of one call belong to different deliveries. The token changes with every claim.
  A receipt is valid as long as its delivery is LEASED with that token, also after the end of the lease until it is
  promoted.
- A message row is stored once; it is deleted with its last delivery.
- A READY or DELAYED delivery whose time to live is over is deleted at the beginning of the next claim on its queue, never by
  itself.
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

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast
from typing import Literal as OneOf

from headgate.errors import QueueError
from headgate.message import Message

if TYPE_CHECKING:
    from headgate.filters import Filter
    from headgate.queues.operations import Operations
    from headgate.queues.wakers import Waiter

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
    # A WRITE that a power failure may lose: its messages are claimed again.
    LEASE = "lease"


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
    """The state of a delivery, as stored."""

    READY = 0
    DELAYED = 1
    LEASED = 2
    DEAD = 3


class Outcome(Enum):
    """The result of settling a receipt."""

    DONE = "done"
    STALE = "stale"  # the delivery exists, but is no longer leased with this token
    GONE = "gone"  # the delivery does not exist: it was acked before or purged


QueueKind: TypeAlias = OneOf["queue", "subscription", "push"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """How a queue treats its messages."""

    filter_headers: tuple[str, ...] = ()  # copied next to the delivery and indexed
    max_attempts: int = 5  # claims after which a failed delivery is dead; 0: no limit
    dedup_window_us: int = 300_000_000
    archive: bool = False  # acked messages are kept in the archive until pruned


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue, or a durable subscription: a queue that receives what its filter matches."""

    id: int
    name: str
    options: QueueOptions = field(default_factory=QueueOptions)
    kind: QueueKind = "queue"
    indexed: tuple[str, ...] = ()  # the filter headers whose index is complete: claims may use it
    filter: str = ""  # of a subscription, as text in canonical form
    source: int | None = None  # of a subscription: the only queue it receives from
    version: int = 1  # of the filter
    paused: bool = False  # claims find nothing; messages are still published to it
    # When a push subscription is deleted unless its owner extends it.
    expires_at: int | None = None
    policies: int = 0  # whether claims are limited, or messages may expire: see queues.policies


@dataclass(frozen=True, slots=True)
class Publication:
    """A valid message (see message.validate), and how the queue is to deliver it."""

    message: Message
    delay_us: int = 0
    dedup_key: str | None = None
    group: str | None = None
    ttl_us: int | None = None  # it is deleted unless it was claimed within this time
    unique: str | None = None  # published only if no message with this key is pending
    result_us: int | None = None  # what its handler returns is kept this long

    @property
    def asks_for_more(self) -> bool:
        """Whether it has a time to live, a unique key or a request for a result."""
        return not (self.ttl_us is None and self.unique is None and self.result_us is None)


class _Draft:
    """A publication that is being made: with the slots of one, but not frozen."""

    __slots__ = Publication.__slots__


def publication_of(message: Message) -> Publication:
    """Make a publication without any option, in a fifth of the time of Publication()."""
    draft: Any = _Draft()
    draft.message = message
    draft.delay_us = 0
    draft.dedup_key = draft.group = draft.ttl_us = draft.unique = draft.result_us = None
    draft.__class__ = Publication  # frozen from here on
    return cast(Publication, draft)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The limit of claims on a queue: `count` messages within each period on average, and at most `count` at once."""

    count: int
    period_us: int


@dataclass(frozen=True, slots=True)
class JobResult:
    """What became of a message whose publisher asked for a result."""

    # Failed: a dead letter; gone: deleted, or acked without a result.
    state: OneOf["pending", "done", "failed", "gone"]
    value: Any = None  # what the handler returned
    reason: str | None = None  # of the last failure


class Receipt(NamedTuple):
    """A lease of a delivery."""

    id: int
    token: int


class ClaimedMessage(NamedTuple):
    """A message that a claim has leased. `message.timestamp` is set; `message.id` is the publisher's, or None."""

    id: int
    token: int
    attempts: int  # including this one
    message: Message
    group: str | None = None

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.id, self.token)


class ClaimRequest(NamedTuple):
    """How many deliveries, for how long, and whether one consumer handles them one after the other."""

    limit: int
    lease_us: int
    together: bool = False

    def operation(
        self,
        operations: Operations,
        queue: QueueInfo,
        filter: Filter | None,
        acks: Sequence[Receipt],
    ) -> Operation[Claims]:
        """The claim as an operation."""
        limit, lease_us, together = self
        return operations.claim(queue, limit, lease_us, filter=filter, acks=acks, together=together)


Claims: TypeAlias = tuple[list[ClaimedMessage], list[Outcome]]  # and what became of the acks


@dataclass(frozen=True, slots=True)
class DeliverySnapshot:
    """A delivery as it was when it was read, without a lease."""

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
    """The statistics of a consumer since its last report; the database adds them up."""

    claims: int = 0
    empty_claims: int = 0
    rows: int = 0
    claim_us: int = 0  # time spent in claims
    unmatched: int = 0  # claimed, and released because no predicate accepted it
    acked: int = 0
    nacked: int = 0
    failures: int = 0  # handlers that raised
    filter: str | None = None  # of the claims, as last reported


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How many deliveries a queue has in each state, and the statistics of its consumers."""

    info: QueueInfo
    ready: int
    delayed: int
    leased: int
    dead: int
    oldest_ready_us: int | None  # age of the READY message with the lowest id
    usage: Mapping[str, Usage]  # by consumer name


@dataclass(frozen=True, slots=True)
class IndexAdvice:
    """How a claim with this filter is answered, and which headers to index for it."""

    plan: tuple[str, ...]  # the lines of EXPLAIN
    scans: bool  # whether it reads READY deliveries in order until enough match
    suggestions: tuple[str, ...]  # headers to declare
    residual: tuple[str, ...] = ()  # the parts that only Python can evaluate, and why


MissedRuns: TypeAlias = OneOf["skip", "one", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What is published, where, and when."""

    name: str
    cron: str
    timezone: str = "UTC"
    missed: MissedRuns = "one"
    queue: str | None = None  # None: to all subscriptions that match
    publication: Publication = Publication(Message())


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleState:
    """A schedule, when it runs next (microseconds since 1970 UTC), and what became of its runs so far."""

    schedule: Schedule
    next_at: int
    last_at: int | None = None  # the time of the last run that was published
    runs: int = 0
    # Runs that were not published: the scheduler came too late, or the queue was missing.
    missed_runs: int = 0
    problem: str | None = None  # why the last run could not be published


SubscriptionStart: TypeAlias = OneOf["next", "first"]
# Create the database unless it exists, change an existing one, or only read it.
Access: TypeAlias = OneOf["create", "change", "look"]


# ---- engines -------------------------------------------------------------------------------------------


# The queue id under which waiters for a result are woken.
RESULTS: Final = 999_999_999_999_999_999


class CommitWatch(Protocol):
    """A registered `wake`, until it is closed."""

    def close(self) -> None: ...


class Wake(Protocol):
    def __call__(self, queues: frozenset[int] | None) -> object:
        """Called from any thread when these queues, or with None all, may have something to claim; must not block."""
        ...


class Engine(Protocol):
    """Runs operations against one database. Safe to use from several threads."""

    @property
    def operations(self) -> Operations: ...

    def run(self, operation: Operation[T]) -> T:
        """Run the operation; on an exception, roll back and raise it. DatabaseUnavailable if the database cannot be
        reached: then the caller may try a new operation."""
        ...

    def publish_one(self, queue: QueueInfo, publication: Publication) -> int:
        """Publish a single message, as `operations.publish` does, but in the fastest way of the engine; return its id."""
        ...

    def claim(
        self,
        queue: QueueInfo,
        request: ClaimRequest,
        filter: Filter | None,
        acks: Sequence[Receipt],
    ) -> Claims:
        """Claim messages after acks, as `operations.claim` does, but in the fastest way of the engine."""
        ...

    def watch(self, wake: Wake) -> CommitWatch:
        """Call `wake` after every commit, of any connection or process, also of plain SQL, that may have made something
        claimable, and when a lost connection is up again; never after a rollback. For commits of other processes, an engine
        may call it only for the queues that its own consumers wait for, and for the outbox, which is queue 0."""
        ...

    def join(
        self, line: Hashable, queue_id: Callable[[], int], wake: Callable[[], object]
    ) -> Waiter:
        """Join a line of consumers that would claim the same messages from the queue `queue_id()`, and return the waiter. A
        commit wakes one consumer of the line, otherwise as in `watch`. See queues.wakers."""
        ...

    def close(self) -> None:
        """Close the database. Idempotent; later operations raise DatabaseClosed."""
        ...


class AsyncEngine(Protocol):
    """An Engine whose verbs are awaited. `watch` calls back from another thread."""

    @property
    def operations(self) -> Operations: ...

    async def run(self, operation: Operation[T]) -> T: ...

    async def publish_one(self, queue: QueueInfo, publication: Publication) -> int: ...

    async def claim(
        self,
        queue: QueueInfo,
        request: ClaimRequest,
        filter: Filter | None,
        acks: Sequence[Receipt],
    ) -> Claims: ...

    def watch(self, wake: Wake) -> CommitWatch: ...

    def join(
        self, line: Hashable, queue_id: Callable[[], int], wake: Callable[[], object]
    ) -> Waiter: ...

    async def close(self) -> None: ...

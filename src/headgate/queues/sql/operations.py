"""All operations on a SQL database, put together from the objects that do them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from headgate.errors import QueueOptionsError
from headgate.filters import Filter
from headgate.queues.engine import (
    Claims,
    Engine,
    Operation,
    Publication,
    QueueInfo,
    Receipt,
    Rows,
    TransactionMode,
    run_inline,
)
from headgate.queues.sql.browse import Browser, BulkChanges
from headgate.queues.sql.catalog import CatalogCache
from headgate.queues.sql.claim import ScanMemory
from headgate.queues.sql.declare import Declarations
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.lease import Acks, Leases, Settlement
from headgate.queues.sql.policies import PolicyClaimer, PolicyPublisher, Results
from headgate.queues.sql.publish import Publisher
from headgate.queues.sql.route import SubscriptionRouter
from headgate.queues.sql.schedules import SqlSchedules
from headgate.queues.sql.search import Planner

T = TypeVar("T")


class Claimer(Protocol):
    """How a database claims: in one statement or in a transaction, after a scan where no index answers the filter."""

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
    ) -> Operation[Claims]:
        """See Operations.claim."""
        ...


class SqlOperations:
    """The operations of the contract (queues.operations.Operations); each is a method of one of the given objects."""

    def __init__(
        self,
        dialect: QueueDialect,
        *,
        catalog: CatalogCache,
        declarations: Declarations,
        router: SubscriptionRouter,
        publisher: Publisher,
        claimer: Claimer,
        leases: Leases,
        settlement: Settlement,
        acks: Acks,
        browser: Browser,
        planner: Planner,
        scan_memory: ScanMemory,
    ) -> None:
        self.dialect, self.catalog = dialect, catalog
        self.planner, self.scan_memory = planner, scan_memory
        self.find, self.find_or_none, self.queues = (
            catalog.find,
            catalog.find_or_none,
            catalog.queues,
        )
        self.last_known = catalog.last_known
        self.declare, self.delete = declarations.declare, declarations.delete
        self.pause = declarations.pause
        self.subscribe, self.keep_alive = declarations.subscribe, declarations.keep_alive
        self.route = router.route
        self.publish = PolicyPublisher(dialect, catalog, publisher).publish
        policies = PolicyClaimer(dialect, catalog, claimer, leases, settlement, acks)
        self.claimer, self.claim = claimer, policies.claim
        self.promote, self.next_due = leases.promote, policies.next_due
        self.has_ready = leases.has_ready
        self.set_rate, self.rate = policies.set_rate, policies.rate
        results = Results(dialect, catalog, acks)
        self.ack_with_result, self.result = results.ack_with_result, results.result
        self.ack = acks.ack
        self.nack, self.bury = settlement.nack, settlement.bury
        self.extend, self.release = settlement.extend, settlement.release
        self.peek, self.browse, self.archived = browser.peek, browser.browse, browser.archived
        self.latest = browser.latest
        changes = BulkChanges(dialect, catalog)
        self.purge, self.prune, self.requeue = changes.purge, changes.prune, changes.requeue
        self.stats, self.add_usage, self.advise = browser.stats, browser.add_usage, browser.advise
        stored = SqlSchedules(dialect)
        self.schedules, self.due_schedules = stored.schedules, stored.due_schedules
        self.next_schedule, self.note_run = stored.next_schedule, stored.note_run
        self.declare_schedule, self.delete_schedule = (
            stored.declare_schedule,
            stored.delete_schedule,
        )

    def atomically(self, body: Callable[[], Operation[T]]) -> Operation[T]:
        """Run the operations of which `body` consists in one transaction."""
        return self.catalog.transact(TransactionMode.WRITE, lambda: run_inline(body()))


Slices = Callable[[], Iterable[Sequence[Publication]]]


def publish_once(engine: Engine, queue: str, source: str, batch: int, slices: Slices) -> bool:
    """Publish a batch of a source in one transaction; False if this batch or a later one was published before.

    The number of the last batch of each source is stored in that transaction. Numbers only grow, so a repeated batch
    is recognized however old it is, unlike a dedup key, which expires.
    """
    operations = engine.operations
    if not isinstance(operations, SqlOperations):
        raise QueueOptionsError(
            "to publish a batch exactly once needs SQLite or PostgreSQL, not memory"
        )

    def publish() -> Operation[bool]:
        info = yield from operations.find(queue)
        # First, so that a second publisher of the batch waits here until this transaction has ended.
        marked: Rows = yield operations.dialect.statement("mark_batch", info.id, source, batch)
        for publications in slices() if marked else ():
            yield from operations.publish(info, publications)
        return bool(marked)

    return engine.run(operations.atomically(publish))

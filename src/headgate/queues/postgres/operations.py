"""The operations on PostgreSQL, put together, and what only PostgreSQL does.

Several transactions write at the same time here. So a transaction that changes the catalog waits for those that publish
by it, and an id is not final until all older transactions have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.queues.engine import Operation, Outcome, QueueInfo, Receipt, TransactionConflict
from headgate.queues.postgres.claim import PostgresClaimer
from headgate.queues.postgres.dialect import index_name, key_expression
from headgate.queues.postgres.publish import PostgresPublisher
from headgate.queues.sql.backlog import Backlogs
from headgate.queues.sql.browse import Browser
from headgate.queues.sql.catalog import CatalogCache
from headgate.queues.sql.claim import ScanClaims, ScanMemory, ScanRecord
from headgate.queues.sql.declare import Declarations, backfill
from headgate.queues.sql.delete import QueueDeletion
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.lease import Leases, Settlement
from headgate.queues.sql.operations import SqlOperations
from headgate.queues.sql.route import SubscriptionRouter
from headgate.queues.sql.search import Candidates, Planner

_MOST_ATTEMPTS: Final = 20


def postgres_operations(dialect: QueueDialect) -> SqlOperations:
    """The operations on PostgreSQL."""
    catalog, deletion = CatalogCache(dialect), QueueDeletion(dialect)
    share, lock = dialect.statement("share_catalog"), dialect.statement("lock_catalog")
    backlogs = Backlogs(dialect, catalog, share)
    router = SubscriptionRouter(dialect, catalog, deletion, backlogs, share)
    indexes = PostgresIndexes(dialect)
    planner, candidates = Planner(dialect), Candidates(dialect)
    leases, settlement = Leases(dialect, catalog), Settlement(dialect, catalog)
    acks = PostgresAcks(dialect, settlement)
    scan_memory = ScanMemory(dialect, candidates, OverlappingScans(dialect).record)
    scans = ScanClaims(dialect, leases, acks, scan_memory)
    return SqlOperations(
        dialect,
        catalog=catalog,
        declarations=Declarations(dialect, catalog, router, deletion, backlogs, indexes, lock),
        router=router,
        publisher=PostgresPublisher(dialect, catalog),
        claimer=PostgresClaimer(dialect, catalog, router, planner, leases, settlement, scans),
        leases=leases,
        settlement=settlement,
        acks=acks,
        browser=Browser(dialect, catalog, router, planner.choose, candidates),
        planner=planner,
        scan_memory=scan_memory,
    )


class PostgresAcks:
    """Acks in one statement that archives exactly what it acks: between two statements a lease could end."""

    def __init__(self, dialect: QueueDialect, settlement: Settlement) -> None:
        self._dialect, self._settlement = dialect, settlement

    def ack(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        return self._settlement.settle("ack", queue, receipts, self._dialect.now_us())

    def ack_within(self, queue: QueueInfo, receipts: Sequence[Receipt]) -> Operation[list[Outcome]]:
        return self.ack(queue, receipts)


class OverlappingScans:
    """Records scans where ids become visible out of order."""

    def __init__(self, dialect: QueueDialect) -> None:
        self._dialect = dialect

    def record(
        self, before: ScanRecord, last: int, matches: Sequence[int]
    ) -> Operation[ScanRecord]:
        """The record after a scan. It reaches up to an id only when all transactions that ran as the id was seen have ended."""
        [(oldest, next)] = yield self._dialect.statement("running_transactions")
        upto = before.upto
        if oldest == next:  # no other transaction is running
            upto = last
        elif before.ending and oldest >= before.ending:
            upto = before.seen
        return ScanRecord(upto, tuple(id for id in matches if id <= upto), last, next)


class PostgresIndexes:
    """Builds the indexes on filter headers without blocking publishers; one builder at a time."""

    def __init__(self, dialect: QueueDialect) -> None:
        self._dialect = dialect

    def build(self, info: QueueInfo, headers: Sequence[str]) -> Operation[None]:
        while (yield self._dialect.statement("lock_indexes")) != [(True,)]:
            pass
        try:
            for header in headers:
                yield from self._build_index(index_name(header), key_expression(header))
            yield from backfill(self._dialect, info)
        finally:
            yield self._dialect.statement("unlock_indexes")

    def _build_index(self, index: str, expression: str) -> Operation[None]:
        """Build the index, unless it exists; an invalid one, which an interrupted build leaves, is dropped first."""
        for attempt in range(_MOST_ATTEMPTS):
            found = yield self._dialect.statement("filter_index", index)
            if found and found[0][0]:
                return
            if found:
                yield self._dialect.statement("drop_filter_index", index=index)
            try:
                yield self._dialect.statement(
                    "create_filter_index", index=index, expression=expression
                )
            except TransactionConflict:
                if attempt == _MOST_ATTEMPTS - 1:
                    raise

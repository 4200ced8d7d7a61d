"""The stored messages on their way to a subscription that starts with the first.

They are delivered in pages, each a short transaction, so that publishers and consumers of other queues do not wait. The
position of each subscription is stored: if the process that created it is killed, the next process that routes continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headgate.filters import parse_stored
from headgate.filters.compile import compile_predicate
from headgate.queues.engine import (
    Notify,
    Operation,
    Publication,
    QueueInfo,
    Statement,
    Transaction,
    TransactionMode,
)
from headgate.queues.sql.catalog import CatalogCache
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.message_rows import MessageRow, read_messages
from headgate.queues.sql.publish import DeliveryRow, delivery_row

_AT_ONCE: Final = 500
_LEASE_US: Final = 10_000_000  # after that long without a page, others continue


class Backlogs:
    """Delivers stored messages to new subscriptions.

    `lock` is a statement that keeps the catalog from changing until a transaction ends, where transactions overlap.
    """

    def __init__(
        self, dialect: QueueDialect, catalog: CatalogCache, lock: Statement | None = None
    ) -> None:
        self._dialect, self._catalog, self._lock = dialect, catalog, lock

    def begin(self, name: str) -> Operation[None]:
        """Note that the subscription is to get the stored messages; in the transaction that creates it."""
        yield self._dialect.statement("begin_backlog", name, self._dialect.now_us(), _LEASE_US)

    def deliver_all(self, id: int) -> Operation[None]:
        """Deliver all pages that are left."""
        while (yield from self._deliver_page(id, _LEASE_US)) is not None:
            pass

    def deliver_some(self, id: int) -> Operation[int]:
        """Deliver pages until one contains a match; how many messages were delivered, 0 if no page is left."""
        while (made := (yield from self._deliver_page(id, 0))) == 0:
            pass
        return made or 0

    def _deliver_page(self, id: int, lease_us: int) -> Operation[int | None]:
        """Deliver the next page; the number of deliveries, or None if no page was left. After the lease, other processes may
        deliver the page after it."""
        made: int | None = yield Transaction(
            TransactionMode.WRITE, lambda: self._deliver(id, lease_us)
        )
        return made

    def _deliver(self, id: int, lease_us: int) -> Operation[int | None]:
        if self._lock is not None:
            yield self._lock
        found = yield self._dialect.statement("backlog", id)
        if not found:
            return None
        info = (yield from self._catalog.read()).by_id.get(id)
        rows = [] if info is None else (yield from self._read_page(info, *found[0]))
        if info is None or not rows:
            yield self._dialect.statement("delete_backlog", id)
            return None
        made = yield from self._insert(info, rows)
        queue, message, *_ = rows[-1].prefix
        now = self._dialect.now_us()
        yield self._dialect.statement("move_backlog", id, queue, message, now, lease_us)
        return made

    def _read_page(
        self, info: QueueInfo, upto: int, after_queue: int, after_message: int
    ) -> Operation[list[MessageRow]]:
        bounds = (after_queue, after_message, upto, _AT_ONCE)
        now = self._dialect.now_us()
        return read_messages(self._dialect, "backlog_page", info.id, *bounds, info.source, now)

    def _insert(self, info: QueueInfo, rows: Sequence[MessageRow]) -> Operation[int]:
        """Insert deliveries of the messages that match; return their number."""
        matching = list(self._matching(info, rows))
        if not matching:
            return 0
        if self._dialect.has("share_delivery"):
            yield self._dialect.for_each("share_delivery", [row.prefix[:2] for row in matching])
        now = self._dialect.now_us()
        yield self._dialect.for_each(
            "insert_delivery", [_delivery(info, row, now) for row in matching]
        )
        ends = [(row.prefix[1], info.id, row.prefix[5]) for row in matching if row.prefix[5]]
        yield self._dialect.for_each("set_end", ends)
        yield Notify((info.id,))
        return len(matching)

    def _matching(self, info: QueueInfo, rows: Sequence[MessageRow]) -> Iterator[MessageRow]:
        matches = compile_predicate(parse_stored(info.filter), self._dialect.wall_us)
        for row in rows:
            is_deliverable = row.prefix[2] and row.problem is None
            if is_deliverable and matches(row.message):
                yield row


def _delivery(info: QueueInfo, row: MessageRow, now_us: int | None) -> DeliveryRow:
    _, id, _, delay_us, group, _ = row.prefix
    return delivery_row(id, info, Publication(row.message, delay_us, None, group), now_us)

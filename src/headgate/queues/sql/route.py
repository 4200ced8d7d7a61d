"""Messages from the SQL door on their way to the subscriptions, and queues that are deleted.

A plain INSERT into the inbox view stores a message without asking the subscriptions' filters. It stands in a list of
unrouted messages until the next claim on a subscription.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, cast

from headgate.queues.engine import (
    Notify,
    Operation,
    Publication,
    Statement,
    Transaction,
    TransactionMode,
)
from headgate.queues.sql.catalog import CatalogCache, QueueCatalog
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.message_rows import MessageRow, read_messages
from headgate.queues.sql.publish import DeliveryRow, delivery_row

_ROUTED_AT_ONCE: Final = 500
# What is left of a queue without deliveries; the entry that says it was deleted is the last.
_LEFTOVERS: Final = (
    "delete_dedup_keys",
    "delete_batches",
    "delete_archive",
    "delete_usage",
    "forget_deleted_queue",
)


class QueueDeletion:
    """Deletes queues with everything in them, in pieces."""

    def __init__(self, dialect: QueueDialect) -> None:
        self._dialect = dialect

    def delete(self, id: int) -> Operation[None]:
        """Delete the queue, so that nothing more arrives; then what it holds."""
        yield self._dialect.statement("delete_queue", id)
        yield Notify((id,))  # its consumers find out that it was deleted
        yield from self.finish()

    def finish(self) -> Operation[None]:
        """Delete what deleted queues hold, also where a process was killed before it was done.

        Messages from the SQL door that are not yet routed stay: the subscriptions get them although their queue was
        deleted.
        """
        for (id,) in (yield self._dialect.statement("deleted_queues")):
            while (yield self._dialect.statement("delete_deliveries", id)):
                pass
            for name in _LEFTOVERS:
                yield self._dialect.statement(name, id)


class SubscriptionRouter:
    """Routes unrouted messages, and deletes push subscriptions whose owner is gone.

    `lock` is a statement that keeps the catalog from changing until a transaction ends, where transactions overlap.
    """

    def __init__(
        self,
        dialect: QueueDialect,
        catalog: CatalogCache,
        deletion: QueueDeletion,
        lock: Statement | None = None,
    ) -> None:
        self._dialect, self._catalog, self._deletion = dialect, catalog, deletion
        self._lock = lock

    def route(self) -> Operation[int]:
        """Make deliveries of all unrouted messages for the subscriptions that match them; how many."""
        if self._dialect.is_read_only:
            return 0
        for id, _ in (yield self._dialect.statement("expired_queues", self._dialect.now_us())):
            yield from self._deletion.delete(id)
        made = 0
        while (yield self._dialect.statement("has_unrouted")):
            made += yield Transaction(TransactionMode.WRITE, self._route_some)
        return made

    def _route_some(self) -> Operation[int]:
        if self._lock is not None:
            yield self._lock
        catalog = yield from self._catalog.read()
        now = self._dialect.now_us()
        unrouted = read_messages(self._dialect, "unrouted_messages", _ROUTED_AT_ONCE, now)
        rows = yield from unrouted
        deliveries = list(_deliveries_of(rows, catalog, now))
        if deliveries:
            yield self._dialect.for_each("insert_delivery", deliveries)
            yield Notify(tuple({cast(int, delivery[1]) for delivery in deliveries}))
        yield self._dialect.statement("delete_unrouted", [row.prefix[0] for row in rows])
        return len(deliveries)


def _deliveries_of(
    rows: Iterable[MessageRow], catalog: QueueCatalog, now_us: int | None
) -> Iterator[DeliveryRow]:
    """The deliveries for matching subscriptions; none for messages that cannot be decoded."""
    for (id, source, delay_us, group), message, problem in rows:
        receivers = catalog.matching_subscriptions(message, source) if problem is None else ()
        for queue in receivers:
            yield delivery_row(id, queue, Publication(message, delay_us, None, group), now_us)

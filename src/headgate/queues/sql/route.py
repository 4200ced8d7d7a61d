"""Routing messages from the `inbox` view to the subscriptions.

A plain INSERT into the view stores a message without evaluating the subscriptions' filters. The message is listed as
unrouted until the next claim on a subscription.
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
from headgate.queues.sql.backlog import Backlogs
from headgate.queues.sql.catalog import CatalogCache, QueueCatalog
from headgate.queues.sql.delete import QueueDeletion
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.message_rows import MessageRow, read_messages
from headgate.queues.sql.publish import DeliveryRow, delivery_row

_ROUTED_AT_ONCE: Final = 500


class SubscriptionRouter:
    """Routes unrouted messages, and deletes push subscriptions whose owner is gone.

    `lock` is a statement that keeps the catalog from changing until a transaction ends, where transactions overlap.
    """

    def __init__(
        self,
        dialect: QueueDialect,
        catalog: CatalogCache,
        deletion: QueueDeletion,
        backlogs: Backlogs,
        lock: Statement | None = None,
    ) -> None:
        self._dialect, self._catalog, self._deletion = dialect, catalog, deletion
        self._backlogs, self._lock = backlogs, lock

    def route(self) -> Operation[int]:
        """Make deliveries of all unrouted messages for the subscriptions that match them; return their number.

        It also continues backlogs that no process is delivering any more.
        """
        if self._dialect.is_read_only:
            return 0
        made = 0
        for kind, id in (yield self._dialect.statement("upkeep", self._dialect.now_us())):
            if kind == "expired":
                yield from self._deletion.delete_expired(id)
            else:
                made += yield from self._backlogs.deliver_some(id)
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

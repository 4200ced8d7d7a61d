"""Deleting queues with everything in them, in short transactions."""

from __future__ import annotations

from typing import Final

from headgate.queues.engine import Notify, Operation
from headgate.queues.sql.dialect import QueueDialect

# Statements that delete the other rows of a queue. The last deletes the entry that says that the queue was deleted.
_LEFTOVERS: Final = (
    "delete_dedup_keys",
    "delete_batches",
    "delete_archive",
    "delete_usage",
    "delete_backlog",
    "delete_rate",
    "delete_unique_keys",
    "delete_results",
    "forget_deleted_queue",
)


class QueueDeletion:
    """Deletes queues with everything in them, in pieces."""

    def __init__(self, dialect: QueueDialect) -> None:
        self._dialect = dialect

    def delete(self, id: int) -> Operation[None]:
        """Delete the queue, so that no more messages arrive; then everything that it holds."""
        yield self._dialect.statement("delete_queue", id)
        yield from self._tell_and_finish(id)

    def delete_expired(self, id: int) -> Operation[None]:
        """Delete a push subscription, unless its owner has extended its lease meanwhile."""
        yield self._dialect.statement("delete_expired_queue", id, self._dialect.now_us())
        yield from self._tell_and_finish(id)

    def _tell_and_finish(self, id: int) -> Operation[None]:
        yield Notify((id,))  # its consumers find out that it was deleted
        yield from self.finish()

    def finish(self) -> Operation[None]:
        """Delete what deleted queues hold, also if the process that deleted them was killed meanwhile.

        Messages from the `inbox` view that are not yet routed stay: the subscriptions get them although their queue was
        deleted.
        """
        for (id,) in (yield self._dialect.statement("deleted_queues")):
            while (yield self._dialect.statement("delete_deliveries", id)):
                pass
            for name in _LEFTOVERS:
                yield self._dialect.statement(name, id)

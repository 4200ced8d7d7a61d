"""Publishing batches that may come twice: a batch and the memory of it are committed together.

Of each source only the number of its last batch is kept, for the numbers only grow; so one that comes again is known
however long ago it was, unlike a dedup key, which is forgotten after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headgate.errors import QueueOptionsError
from headgate.queues.engine import Engine, Operation, Publication, Transaction
from headgate.queues.sql.core import without_transaction
from headgate.queues.sql.operations import SqlOperations

Slices = Callable[[], Iterable[Sequence[Publication]]]


def publish_once(engine: Engine, queue: str, source: str, batch: int, slices: Slices) -> bool:
    """All of it or nothing, in one transaction; False when this batch of the source, or a later one, was here before."""
    operations = engine.operations
    if not isinstance(operations, SqlOperations):
        raise QueueOptionsError("batches are published once to SQLite or PostgreSQL, not to memory")
    return engine.run(publishing_once(operations, queue, source, batch, slices))


def publishing_once(
    operations: SqlOperations, queue: str, source: str, batch: int, slices: Slices
) -> Operation[bool]:
    """The same, for an engine to run."""
    yield Transaction.WRITE
    info = yield from operations.find(queue)
    # First, so that a second one with the same batch waits here until this one has decided.
    marked = yield operations.dialect.statement("mark_batch", info.id, source, batch)
    if marked:
        for publications in slices():
            yield from without_transaction(operations.publish(info, publications))
    yield Transaction.COMMIT
    return bool(marked)

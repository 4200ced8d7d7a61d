"""The micro-batch reader of a queue: its archive followed as it grows, or its current messages read once in batches.

An offset holds the number of the queue, the key at which the next batch begins and how many messages were scanned so far.
When the queue is read once it also holds the end, so that a restarted query ends there too. The key is always the one after
an existing message: a database that loses transactions which were not durable yet does not assign that turn again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headgate.clock import now_us
from headgate.errors import DataLost
from headgate.pipelines import MESSAGES
from headgate.spark.options import QueueRead
from headgate.spark.schema import SchemaColumn, arrow_schema, queue_columns
from headgate.spark.source.projection import Projection, even_batches
from headgate.spark.source.queue_batch import BORDER_STEP, worthwhile_tasks
from headgate.spark.source.queue_rows import QueueRows, open_rows, queue_id
from headgate.spark.source.queue_scan import (
    Key,
    Order,
    borders_of,
    count_of,
    end_of,
    key_at,
    matches,
    order_of,
    scan_of,
    split_range,
    turns_end,
)
from headgate.spark.source.ranges import LOSS_HINT, report_loss

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Position(NamedTuple):
    """A query's position in a queue."""

    queue: int
    next: Key
    messages: int = 0  # scanned so far
    until: Key | None = None  # the end of a queue that is read once

    def offset(self) -> dict[str, int]:
        """The position as Spark stores it."""
        names = ("turn", "id")[-len(self.next) :]
        end = {} if self.until is None else {"until": self.until[-1]}
        counted = {"queue": self.queue, MESSAGES: self.messages}
        return {**counted, **dict(zip(names, self.next, strict=True)), **end}


def position_of(offset: Mapping[str, Any]) -> Position:
    """The position of an offset that Spark stored."""
    key = tuple(offset[name] for name in ("turn", "id") if name in offset)
    until = (offset["until"],) if "until" in offset else None
    return Position(offset["queue"], key, offset[MESSAGES], until)


class QueueShare(NamedTuple):
    """The range that one task of a micro-batch reads; the first share also says how many messages the batch scans."""

    queue: int
    low: Key
    high: Key
    now_us: int
    messages: int  # in the range of an archive; 0 for other states
    scanned: int = 0


class QueueMicroReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads each message once, in the order of keys within each task. `UTC()` is the moment at which a batch is planned."""

    columns: Sequence[SchemaColumn] | None
    arrow: pa.Schema

    def __init__(
        self, schema: StructType, options: QueueRead, clock: Callable[[], int] = now_us
    ) -> None:
        self.columns, self.arrow = queue_columns(schema), arrow_schema(schema)
        self.options, self._clock = options, clock
        self.order: Order = order_of(options.states)
        self._last: Key | None = None  # where an availableNow query ends
        self._newest: Position | None = None

    # ---- offsets -------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:
        with self._rows() as rows:
            queue = queue_id(rows, self.options.place.name)
            until = end_of(rows, self.order, queue) if self.options.states else None
            return Position(queue, self.order.first, until=until).offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        with self._rows() as rows:
            self._last = end_of(rows, self.order, queue_id(rows, self.options.place.name))

    def reportLatestOffset(self) -> dict[str, int] | None:
        return None if self._newest is None else self._newest.offset()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        begin = position_of(start)
        with self._rows() as rows:
            self._check_queue(rows, begin)
            newest = self._newest = self._newest_position(rows, begin)
            if isinstance(limit, ReadMaxRows):
                return self._limit_position(rows, begin, newest, limit.max_rows).offset()
        return newest.offset()

    def _newest_position(self, rows: QueueRows, begin: Position) -> Position:
        """The newest position that can be read. Messages counted for the last batch are not counted again."""
        known = self._newest
        if known is None or known.next < begin.next:
            known = begin
        end = begin.until or self._last or end_of(rows, self.order, begin.queue)
        more = count_of(rows, self.order, begin.queue, known.next, end) if known.next < end else 0
        if not more:
            return known
        return known._replace(next=end, messages=known.messages + more)

    def _limit_position(
        self, rows: QueueRows, begin: Position, newest: Position, most: int
    ) -> Position:
        if newest.messages - begin.messages <= most:
            return newest
        key = key_at(rows, self.order, begin.queue, begin.next, newest.next, most)
        return newest if key is None else begin._replace(next=key, messages=begin.messages + most)

    # ---- one batch -----------------------------------------------------------------------------------

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        begin, until = position_of(start), position_of(end)
        moment, scanned = self._clock(), until.messages - begin.messages
        with self._rows() as rows:
            self._check_queue(rows, begin)
            shares = [
                QueueShare(
                    begin.queue, *keys, moment, self._count_archived(rows, begin.queue, *keys)
                )
                for keys in self._ranges(rows, begin, until)
            ]
        self._check_pruned(scanned, sum(share.messages for share in shares))
        shares[0] = shares[0]._replace(scanned=scanned)
        return [InputPartition(share) for share in shares]

    def _ranges(self, rows: QueueRows, begin: Position, until: Position) -> list[tuple[Key, Key]]:
        whole = [(begin.next, until.next)]
        worth = worthwhile_tasks(until.messages - begin.messages, self.options.cores)
        tasks = self.options.partitions or worth
        if tasks == 1:
            return whole
        borders = borders_of(rows, self.order, begin.queue, begin.next, until.next, BORDER_STEP)
        return split_range(borders, until.next, tasks) or whole

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert self.columns is not None
        projection, shown = Projection(self.columns, self.arrow), self.options.place.shown
        batches = self.messages(partition.value)
        return even_batches(projection.batch(batch, shown) for batch in batches)

    def messages(self, share: QueueShare) -> Iterator[pa.RecordBatch]:
        """The matches of a task's share, as stream columns."""
        options = self.options
        with self._rows() as rows:
            self._check_queue(rows, Position(share.queue, share.high))
            scan = scan_of(
                share.queue,
                options.states,
                options.filter,
                self.columns,
                rows.dialect,
                share.now_us,
                in_turn=not options.states,
            )
            yield from matches(rows, scan, share.low, share.high)
            # Counted after reading: a prune may have happened between two pages.
            left = self._count_archived(rows, share.queue, share.low, share.high)
        self._check_pruned(share.messages, left)

    def _rows(self) -> Any:
        return open_rows(self.options.place)

    # ---- lost data -----------------------------------------------------------------------------------

    def _check_queue(self, rows: QueueRows, begin: Position) -> None:
        """Raise when the queue was created again under its name, or the database is an older copy.

        Tasks check this too, since they may reach another server.
        """
        place = self.options.place
        if queue_id(rows, place.name) != begin.queue:
            raise DataLost(
                f"{place.shown}: the queue was deleted and created again since the query started; start the query with a new "
                "checkpoint"
            )
        if not self.options.states and turns_end(rows, begin.queue) <= begin.next[0]:
            raise DataLost(
                f"{place.shown}: the query is at turn {begin.next[0]}, which the database has not reached: it is an older copy "
                "(start the query with a new checkpoint), or a replica that lags behind (name the primary)"
            )

    def _count_archived(self, rows: QueueRows, queue: int, low: Key, high: Key) -> int:
        """Count the messages that a range of the archive has now; other states are not counted, since consumers take messages."""
        return 0 if self.options.states else count_of(rows, self.order, queue, low, high)

    def _check_pruned(self, planned: int, left: int) -> None:
        """Report messages that were pruned since planning: they may or may not have been read before."""
        if left < planned and not self.options.states:
            report_loss(
                f"{self.options.place.shown}: {planned - left} of {planned} archived messages were pruned before the query had "
                "read them",
                f"prune later, or {LOSS_HINT}",
                fail=self.options.fail_on_data_loss,
            )

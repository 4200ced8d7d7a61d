"""The stream reader of a queue: its archive followed as it grows, or what it holds looked at once, batch by batch.

An offset says which queue it is in, at which key the next batch begins and how many messages were come by until there;
that of a look also says where it ends, so that a query that starts again ends there too. It only ever stands behind a
message that was there: a database that forgets what it had not yet made durable does not give out that turn again.
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
from headgate.spark.schema import Column, arrow_schema, queue_columns
from headgate.spark.source.planned import GO_ON, report_loss
from headgate.spark.source.projection import Projection, evened
from headgate.spark.source.queue_batch import BETWEEN_BORDERS, worthwhile
from headgate.spark.source.queue_options import QueueRead
from headgate.spark.source.queue_orders import (
    Order,
    borders_of,
    count_of,
    end_of,
    key_at,
    order_of,
    turns_end,
)
from headgate.spark.source.queue_rows import Rows, open_rows, queue_id
from headgate.spark.source.queue_scan import Key, matches, scan_of, spans

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Position(NamedTuple):
    """Where a query stands in a queue."""

    queue: int
    next: Key
    messages: int = 0  # come by until there
    until: Key | None = None  # of a look

    def offset(self) -> dict[str, int]:
        """As Spark keeps it."""
        names = ("turn", "id")[-len(self.next) :]
        end = {} if self.until is None else {"until": self.until[-1]}
        counted = {"queue": self.queue, MESSAGES: self.messages}
        return {**counted, **dict(zip(names, self.next, strict=True)), **end}


def position_of(offset: Mapping[str, Any]) -> Position:
    """The position that Spark kept."""
    key = tuple(offset[name] for name in ("turn", "id") if name in offset)
    until = (offset["until"],) if "until" in offset else None
    return Position(offset["queue"], key, offset[MESSAGES], until)


class Share(NamedTuple):
    """What one task of a micro-batch reads; the first one also tells how many messages the batch comes by."""

    queue: int
    low: Key
    high: Key
    now_us: int
    messages: int  # archived in it
    came_by: int = 0


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Each message once, in the order of keys within each task. `UTC()` is the moment at which a batch is planned."""

    columns: Sequence[Column] | None
    arrow: pa.Schema

    def __init__(
        self, schema: StructType, asked: QueueRead, clock: Callable[[], int] = now_us
    ) -> None:
        self.columns, self.arrow = queue_columns(schema), arrow_schema(schema)
        self.asked, self._clock = asked, clock
        self.order: Order = order_of(asked.states)
        self._last: Key | None = None  # where a query ends that reads what is there now
        self._newest: Position | None = None

    # ---- how far -------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:
        with self._rows() as rows:
            queue = queue_id(rows, self.asked.place.name)
            until = end_of(rows, self.order, queue) if self.asked.states else None
            return Position(queue, self.order.first, until=until).offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.asked.max_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        with self._rows() as rows:
            self._last = end_of(rows, self.order, queue_id(rows, self.asked.place.name))

    def reportLatestOffset(self) -> dict[str, int] | None:
        return None if self._newest is None else self._newest.offset()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        begin = position_of(start)
        with self._rows() as rows:
            self._check_there(rows, begin)
            newest = self._newest = self._reached(rows, begin)
            if isinstance(limit, ReadMaxRows):
                return self._limited(rows, begin, newest, limit.max_rows).offset()
        return newest.offset()

    def _reached(self, rows: Rows, begin: Position) -> Position:
        """How far one could read. What was counted for the last batch is not counted again."""
        known = self._newest
        if known is None or known.next < begin.next:
            known = begin
        end = begin.until or self._last or end_of(rows, self.order, begin.queue)
        more = count_of(rows, self.order, begin.queue, known.next, end) if known.next < end else 0
        if not more:
            return known
        return known._replace(next=end, messages=known.messages + more)

    def _limited(self, rows: Rows, begin: Position, newest: Position, most: int) -> Position:
        if newest.messages - begin.messages <= most:
            return newest
        key = key_at(rows, self.order, begin.queue, begin.next, newest.next, most)
        return newest if key is None else begin._replace(next=key, messages=begin.messages + most)

    # ---- one batch -----------------------------------------------------------------------------------

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        begin, until = position_of(start), position_of(end)
        moment, came_by = self._clock(), until.messages - begin.messages
        with self._rows() as rows:
            self._check_there(rows, begin)
            shares = [
                Share(begin.queue, *span, moment, self._archived(rows, begin.queue, *span))
                for span in self._spans(rows, begin, until)
            ]
        self._check_kept(came_by, sum(share.messages for share in shares))
        shares[0] = shares[0]._replace(came_by=came_by)
        return [InputPartition(share) for share in shares]

    def _spans(self, rows: Rows, begin: Position, until: Position) -> list[tuple[Key, Key]]:
        whole = [(begin.next, until.next)]
        worth = worthwhile(until.messages - begin.messages, self.asked.cores)
        parts = self.asked.partitions or worth
        if parts == 1:
            return whole
        borders = borders_of(rows, self.order, begin.queue, begin.next, until.next, BETWEEN_BORDERS)
        return spans(borders, until.next, parts) or whole

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert self.columns is not None
        projection, shown = Projection(self.columns, self.arrow), self.asked.place.shown
        found = self.messages(partition.value)
        return evened(projection.batch(batch, shown) for batch in found)

    def messages(self, share: Share) -> Iterator[pa.RecordBatch]:
        """What matches of a task's share, as stream columns."""
        asked = self.asked
        with self._rows() as rows:
            self._check_there(rows, Position(share.queue, share.high))
            scan = scan_of(
                share.queue,
                asked.states,
                asked.filter,
                self.columns,
                rows.dialect,
                share.now_us,
                in_turn=not asked.states,
            )
            yield from matches(rows, scan, share.low, share.high)
            # Not before: a prune may have come between two pages.
            left = self._archived(rows, share.queue, share.low, share.high)
        self._check_kept(share.messages, left)

    def _rows(self) -> Any:
        return open_rows(self.asked.place)

    # ---- what is gone --------------------------------------------------------------------------------

    def _check_there(self, rows: Rows, begin: Position) -> None:
        """Every task asks, too: it may have got through to another server."""
        place = self.asked.place
        if queue_id(rows, place.name) != begin.queue:
            raise DataLost(
                f"{place.shown}: the queue the query stands in was deleted, and another one made of that name; start the "
                "query with a new checkpoint"
            )
        if not self.asked.states and turns_end(rows, begin.queue) <= begin.next[0]:
            raise DataLost(
                f"{place.shown}: the query stands at turn {begin.next[0]}, which has not been yet: the database is an older "
                "copy, for which start the query with a new checkpoint, or a replica that is behind: name the primary"
            )

    def _archived(self, rows: Rows, queue: int, low: Key, high: Key) -> int:
        """How many messages the range of an archive has now; of a look nothing is counted, as consumers take from it."""
        return 0 if self.asked.states else count_of(rows, self.order, queue, low, high)

    def _check_kept(self, planned: int, left: int) -> None:
        """Refuse what has become less since it was planned: nobody knows whether it was read before it was pruned."""
        if left < planned and not self.asked.states:
            report_loss(
                f"{self.asked.place.shown}: {planned - left} of {planned} archived messages were pruned before the query was "
                "done with them",
                f"prune later, or {GO_ON}",
                fail=self.asked.fail_on_data_loss,
            )

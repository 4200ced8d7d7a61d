"""The reader of a queue: ranges of ids are planned on the driver, each is asked of the database by a task.

The newest id at the moment of planning bounds all ranges: what is published later is in none of them. Within it, a task
sees what is committed when it looks, as everything it does not claim may be taken away at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headgate.clock import now_us
from headgate.spark.datasource import plainly
from headgate.spark.schema import arrow_schema, queue_columns
from headgate.spark.source.answering import AnsweringReader
from headgate.spark.source.projection import evened
from headgate.spark.source.queue_options import QueueRead
from headgate.spark.source.queue_rows import Rows, column, open_rows, queue_id
from headgate.spark.source.queue_scan import listed, matches, scan_of, spans

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BETWEEN_BORDERS: Final = 256  # messages
_SMALLEST_PART: Final = 20_000  # messages; fewer are not worth a task of their own
_LARGEST_PART: Final = 1_000_000


class QueueReader(AnsweringReader):
    """Reads what a queue holds, and leaves it there. `UTC()` is the moment at which the reader is made."""

    def __init__(
        self, schema: StructType, read: QueueRead, clock: Callable[[], int] = now_us
    ) -> None:
        super().__init__(queue_columns(schema), arrow_schema(schema), clock())
        self.asked = read
        with open_rows(read.place) as rows:
            self.queue = queue_id(rows, read.place.name)

    @plainly
    def partitions(self) -> list[InputPartition]:
        with open_rows(self.asked.place) as rows:
            return [InputPartition(span) for span in self._spans(rows)]

    def _spans(self, rows: Rows) -> list[tuple[int, int]]:
        last, borders = (
            ("last_delivery", "delivery_borders")
            if self.asked.states
            else ("last_archived", "archive_borders")
        )
        states = listed(self.asked.states)
        newest = column(rows, last, self.queue, states=states)
        end = min(newest[0].as_py() + 1 if len(newest) else 0, self.pushed.high)
        if end <= self.pushed.low:
            return []
        if self.asked.partitions == 1:
            return [(self.pushed.low, end)]
        params = (self.queue, self.pushed.low, end, BETWEEN_BORDERS)
        found = column(rows, borders, *params, states=states).to_pylist()
        worth = worthwhile(len(found) * BETWEEN_BORDERS, self.asked.cores)
        return spans(found, end, self.asked.partitions or worth)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # there was nothing to plan
            return
        projection, shown = self.projection(), self.asked.place.shown
        with open_rows(self.asked.place) as rows:
            asked, whole = self.asked, self.whole(self.asked.filter)
            scan = scan_of(self.queue, asked.states, whole, self.columns, rows.dialect, self.now_us)
            low, high = partition.value
            found = matches(rows, scan, (low,), (high,))
            yield from evened(projection.batch(batch, shown) for batch in found)


def worthwhile(messages: int, cores: int = 0) -> int:
    """How many tasks so many messages are worth on so many cores; 0 for those of this machine."""
    cores = cores or os.cpu_count() or 1
    return max(1, min(cores, messages // _SMALLEST_PART), messages // _LARGEST_PART)

"""The batch reader of a queue: the driver plans ranges of ids, and each task selects one range from the database.

The newest id at the time of planning is the end of all ranges: later messages are in none of them. A task reads what is
committed when it selects; since nothing is claimed, consumers may take messages at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headgate.clock import now_us
from headgate.spark.datasource import hide_traceback
from headgate.spark.options import QueueRead
from headgate.spark.pushdown import PushdownReader
from headgate.spark.schema import arrow_schema, queue_columns
from headgate.spark.source.projection import even_batches
from headgate.spark.source.queue_rows import QueueRows, open_rows, queue_id, select_column
from headgate.spark.source.queue_scan import matches, scan_of, split_range, state_list

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BORDER_STEP: Final = 256  # messages
_SMALLEST_TASK: Final = 20_000  # messages; fewer are not worth a task of their own
_LARGEST_TASK: Final = 1_000_000


class QueueBatchReader(PushdownReader):
    """Reads the messages of a queue without claiming them. `UTC()` is the moment at which the reader is made."""

    def __init__(
        self, schema: StructType, options: QueueRead, clock: Callable[[], int] = now_us
    ) -> None:
        super().__init__(queue_columns(schema), arrow_schema(schema), clock())
        self.options = options
        with open_rows(options.place) as rows:
            self.queue = queue_id(rows, options.place.name)

    @hide_traceback
    def partitions(self) -> list[InputPartition]:
        with open_rows(self.options.place) as rows:
            return [InputPartition(ids) for ids in self._ranges(rows)]

    def _ranges(self, rows: QueueRows) -> list[tuple[int, int]]:
        last, borders = (
            ("last_delivery", "delivery_borders")
            if self.options.states
            else ("last_archived", "archive_borders")
        )
        states = state_list(self.options.states)
        newest = select_column(rows, last, self.queue, states=states)
        end = min(newest[0].as_py() + 1 if len(newest) else 0, self.pushed.high)
        if end <= self.pushed.low:
            return []
        if self.options.partitions == 1:
            return [(self.pushed.low, end)]
        params = (self.queue, self.pushed.low, end, BORDER_STEP)
        ids = select_column(rows, borders, *params, states=states).to_pylist()
        tasks = worthwhile_tasks(len(ids) * BORDER_STEP, self.options.cores)
        return split_range(ids, end, self.options.partitions or tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # nothing was planned
            return
        options, projection = self.options, self.projection()
        filter, shown = self.add_pushed(options.filter), options.place.shown
        with open_rows(options.place) as rows:
            scan = scan_of(
                self.queue, options.states, filter, self.columns, rows.dialect, self.now_us
            )
            low, high = partition.value
            batches = matches(rows, scan, (low,), (high,))
            yield from even_batches(projection.batch(batch, shown) for batch in batches)


def worthwhile_tasks(messages: int, cores: int = 0) -> int:
    """Choose the number of tasks to read this many messages on this many cores (0: those of this machine)."""
    cores = cores or os.cpu_count() or 1
    return max(1, min(cores, messages // _SMALLEST_TASK), messages // _LARGEST_TASK)

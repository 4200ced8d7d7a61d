"""Route and stage: what a task does with the messages it reads, on an executor.

No message crosses into the JVM. A window of rows is routed, the rows of every place are written into a file staged
there, and all that goes on is a *descriptor* of each file and one line of counters a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.clock import now_us
from headgate.columns import BatchColumns
from headgate.filters import normalize, parse
from headgate.filters.compile.arrow import compile_mask
from headgate.pipelines import Counters, to_text
from headgate.routing import RoutedBatch
from headgate.spark.pipeline.plan import RoutingPlan, destinations_of, load_plan, topology_of
from headgate.spark.pipeline.windows import windows
from headgate.spark.sink.staging import Staged, stage

Rows = npt.NDArray[np.intp]

HELD_BYTES: Final = 128 << 20  # of rows that wait to be written: fewer, larger files
WRITERS: Final = 8

# The columns of `source.EMITTED`.
_ARROW: Final = pa.schema(
    {
        "destination": pa.int32(),
        "file": pa.string(),
        "rows": pa.int64(),
        "nbytes": pa.int64(),
        "crc": pa.int64(),
        "counters": pa.string(),
    }
)


class Router:
    """The routing plan with its index: batches of stream columns in, staged files out."""

    def __init__(self, plan: RoutingPlan) -> None:
        self.plan = plan
        self._topology = topology_of(plan.topology)
        self._folders = [
            destination.staging for destination in destinations_of(plan.places, plan.checkpoint)
        ]

    def stage(self, batches: Iterable[pa.RecordBatch], counters: Counters) -> Iterator[Staged]:
        """Route every batch and write what each place gets; count it all."""
        held, weight = self._nothing(), 0
        for window in windows(batches):
            routed = self._topology.route_batch(self.plan.exchange, window)
            counters.add_routed(routed)
            for number, rows in enumerate(self.rows_by_place(routed)):
                if len(rows):
                    part = _taken(window, rows)
                    held[number].append(part)
                    weight += part.nbytes
            if weight >= HELD_BYTES:
                yield from self._written(held)
                held, weight = self._nothing(), 0
        yield from self._written(held)

    def stage_letters(self, letters: Sequence[pa.RecordBatch]) -> list[Staged]:
        """Write dead letters that are not to be routed, if there is a place for them."""
        number = self.plan.unroutable
        if number is None or not letters:
            return []
        made = stage(self._folders[number], letters, number)
        return [] if made is None else [made]

    def _nothing(self) -> list[list[pa.RecordBatch]]:
        return [[] for _ in self._folders]

    def _written(self, held: list[list[pa.RecordBatch]]) -> list[Staged]:
        """A file for each place that gets something; the disk makes many durable in the time of a few."""
        filled = [number for number, parts in enumerate(held) if parts]
        if not filled:
            return []
        with ThreadPoolExecutor(min(len(filled), WRITERS)) as pool:
            staged = pool.map(
                lambda number: stage(self._folders[number], held[number], number), filled
            )
            return [one for one in staged if one is not None]

    def rows_by_place(self, routed: RoutedBatch) -> list[Rows]:
        """For each place its rows in order; a message that two queues send there is there twice."""
        parts: list[list[Rows]] = [[] for _ in self._folders]
        for queue, rows in routed.selections().items():
            for number in self.plan.outlets.get(queue, ()):
                parts[number].append(rows)
        if self.plan.unroutable is not None:
            parts[self.plan.unroutable].append(routed.unroutable)
        return [in_order(found) for found in parts]

    def passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What passes the filter the source could not apply itself."""
        if self.plan.filter is None:
            yield from batches
            return
        mask = compile_mask(normalize(parse(self.plan.filter)).at(now_us()))
        for batch in batches:
            yield batch.filter(pa.array(mask(BatchColumns(batch))))


def in_order(parts: Sequence[Rows]) -> Rows:
    """All the rows, lowest first."""
    if len(parts) == 1:
        return parts[0]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.intp)


def _taken(window: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
    return window if len(rows) == window.num_rows else window.take(pa.array(rows))


@lru_cache(maxsize=4)
def router(plan_file: str) -> Router:
    """The router of a plan; its file is named by its content, so a worker builds it once."""
    return Router(load_plan(plan_file))


def descriptors(staged: Iterable[Staged], counters: Counters) -> pa.RecordBatch:
    """One row for each staged file, and the task's counters in a row of their own."""
    rows = [{name: getattr(one, name) for name in _ARROW.names[:-1]} for one in staged]
    return pa.RecordBatch.from_pylist([*rows, {"counters": to_text(counters)}], _ARROW)

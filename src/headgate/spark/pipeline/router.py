"""Route and stage: what a task does with the messages it reads, on an executor.

No message crosses into the JVM. A window of rows is routed, the rows of every place are written to a file staged there,
and only a *descriptor* of each file and one line of counters for each task are passed on.

The routing plan is a file beside the checkpoint. Spark passes only options to its workers, and options are text: they carry
the name of the file. It is named by the digest of its content, so that a worker builds each index once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.clock import now_us
from headgate.columns import BatchColumns
from headgate.errors import PipelineError
from headgate.files import replace_file
from headgate.filters import normalize, parse
from headgate.filters.compile.arrow import compile_mask
from headgate.pipelines import (
    FAIL,
    NOWHERE,
    Counters,
    FormatSource,
    Pipeline,
    counters_to_json,
)
from headgate.routing import RoutedBatch, Topology, from_toml, to_toml
from headgate.spark.sink.destination import Destination, destination_of, owner_of
from headgate.spark.sink.staging import StagedPart, stage

_RowNumbers = npt.NDArray[np.intp]

HELD_BYTES: Final = 128 << 20  # of rows that wait to be written: fewer and larger files
WRITER_THREADS: Final = 8
WINDOW_ROWS: Final = 1 << 18
WINDOW_BYTES: Final = 64 << 20

# The columns of `source.DESCRIPTORS`.
_DESCRIPTORS: Final = pa.schema(
    {
        "destination": pa.int32(),
        "file": pa.string(),
        "rows": pa.int64(),
        "nbytes": pa.int64(),
        "crc": pa.int64(),
        "counters": pa.string(),
    }
)


# ---- the plan ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RoutingPlan:
    """What a task must know to route: the queues of a message, and the places of a queue."""

    topology: str  # as TOML
    exchange: str
    places: Sequence[str]
    outlets: Mapping[str, Sequence[int]]  # by queue, the numbers of its places
    checkpoint: str
    unroutable: int | None = None  # the place for dead letters
    filter: str | None = None  # applied by the task, where the source cannot apply it
    malformed: str = FAIL  # what to do with records that are no messages


def plan_of(pipeline: Pipeline) -> RoutingPlan:
    """The routing plan of a pipeline."""
    last, source = pipeline.dead_letter, pipeline.source
    return RoutingPlan(
        to_toml(pipeline.topology.definitions()),
        pipeline.exchange,
        pipeline.places(),
        pipeline.outlets(),
        str(pipeline.checkpoint),
        None if last is None or last == NOWHERE else pipeline.places().index(last),
        source.filter if isinstance(source, FormatSource) and not pipeline.reading else None,
        pipeline.malformed,
    )


def save_plan(plan: RoutingPlan, folder: Path) -> Path:
    """Write the plan into the folder, to a file named by its digest."""
    text = json.dumps(asdict(plan), sort_keys=True)
    path = folder / f"plan-{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode())
    return path


def load_plan(path: str | Path) -> RoutingPlan:
    """Read the plan in that file."""
    try:
        return RoutingPlan(**json.loads(Path(path).read_text()))
    except (OSError, ValueError, TypeError) as problem:
        raise PipelineError(
            str(path),
            (
                f"the routing plan cannot be read here: {problem}; driver and executors must share "
                "the file system the checkpoint is on",
            ),
        ) from problem


@lru_cache(maxsize=4)
def _build_topology(text: str) -> Topology:
    """Build the topology of a plan, which is most of the work of a new worker."""
    return Topology.from_definitions(from_toml(text))


def destinations_of(places: Iterable[str], checkpoint: str) -> list[Destination]:
    """The destination of each place, which knows the folder for its staged files."""
    owner = owner_of(checkpoint)
    return [destination_of(place, "", owner) for place in places]


# ---- routing -----------------------------------------------------------------------------------------


class PipelineRouter:
    """A routing plan with its index: it takes batches of stream columns and returns staged files."""

    def __init__(self, plan: RoutingPlan) -> None:
        self.plan = plan
        self._topology = _build_topology(plan.topology)
        self.folders = [
            destination.staging for destination in destinations_of(plan.places, plan.checkpoint)
        ]

    def stage(self, batches: Iterable[pa.RecordBatch], counters: Counters) -> Iterator[StagedPart]:
        """Route and count every batch, and write the rows of each place."""
        held, weight = self._empty(), 0
        for window in windows(batches):
            routed = self._topology.route_batch(self.plan.exchange, window)
            counters.add_routed(routed)
            for number, rows in enumerate(self.rows_by_place(routed)):
                if len(rows):
                    part = _take(window, rows)
                    held[number].append(part)
                    weight += part.nbytes
            if weight >= HELD_BYTES:
                yield from self._write(held)
                held, weight = self._empty(), 0
        yield from self._write(held)

    def stage_letters(self, letters: Sequence[pa.RecordBatch]) -> list[StagedPart]:
        """Stage the dead letters of malformed records, if there is a place for them."""
        number = self.plan.unroutable
        if number is None or not letters:
            return []
        staged = stage(self.folders[number], letters, number)
        return [] if staged is None else [staged]

    def _empty(self) -> list[list[pa.RecordBatch]]:
        return [[] for _ in self.folders]

    def _write(self, held: list[list[pa.RecordBatch]]) -> list[StagedPart]:
        """Write a file for each place that gets rows. In parallel: a disk syncs many files in the time of a few."""
        filled = [number for number, parts in enumerate(held) if parts]
        if not filled:
            return []
        with ThreadPoolExecutor(min(len(filled), WRITER_THREADS)) as pool:
            staged = pool.map(
                lambda number: stage(self.folders[number], held[number], number), filled
            )
            return [one for one in staged if one is not None]

    def rows_by_place(self, routed: RoutedBatch) -> list[_RowNumbers]:
        """For each place its rows in order; a row that two queues send there occurs twice."""
        parts: list[list[_RowNumbers]] = [[] for _ in self.folders]
        for queue, rows in routed.selections().items():
            for number in self.plan.outlets.get(queue, ()):
                parts[number].append(rows)
        if self.plan.unroutable is not None:
            parts[self.plan.unroutable].append(routed.unroutable)
        return [merge_rows(rows) for rows in parts]

    def apply_filter(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Apply the filter that the source could not apply itself."""
        if self.plan.filter is None:
            yield from batches
            return
        mask = compile_mask(normalize(parse(self.plan.filter)).at(now_us()))
        for batch in batches:
            yield batch.filter(pa.array(mask(BatchColumns(batch))))


def merge_rows(parts: Sequence[_RowNumbers]) -> _RowNumbers:
    """Merge the row numbers of all parts, sorted."""
    if len(parts) == 1:
        return parts[0]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.intp)


def _take(window: pa.RecordBatch, rows: _RowNumbers) -> pa.RecordBatch:
    return window if len(rows) == window.num_rows else window.take(pa.array(rows))


@lru_cache(maxsize=4)
def load_router(plan_file: str) -> PipelineRouter:
    """Load the plan and build its router, once in a worker."""
    return PipelineRouter(load_plan(plan_file))


def descriptors(staged: Iterable[StagedPart], counters: Counters) -> pa.RecordBatch:
    """Make a row for each staged file, and a row with the task's counters."""
    rows = [{name: getattr(one, name) for name in _DESCRIPTORS.names[:-1]} for one in staged]
    return pa.RecordBatch.from_pylist(
        [*rows, {"counters": counters_to_json(counters)}], _DESCRIPTORS
    )


# ---- windows -----------------------------------------------------------------------------------------
# The chunks of a stream may differ: one has a header that another lacks, one has its texts in a dictionary and another does
# not, or has wider codes. In a window each column has one type.


def windows(
    batches: Iterable[pa.RecordBatch], rows: int = WINDOW_ROWS, nbytes: int = WINDOW_BYTES
) -> Iterator[pa.RecordBatch]:
    """Join batches, in order, into larger ones that reach `rows` or `nbytes`, except for the last."""
    waiting: list[pa.RecordBatch] = []
    held = weight = 0
    for batch in batches:
        waiting.append(batch)
        held += batch.num_rows
        weight += batch.nbytes
        if held >= rows or weight >= nbytes:
            yield combine(waiting)
            waiting, held, weight = [], 0, 0
    if held:
        yield combine(waiting)


def combine(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join batches into one with the columns of all, null where a batch lacks one."""
    if len(batches) == 1:
        return batches[0]
    schema = _common_schema(batches)
    table = pa.Table.from_batches([_convert(batch, schema) for batch in batches], schema)
    combined = table.unify_dictionaries().combine_chunks().to_batches()
    return combined[0] if combined else pa.RecordBatch.from_pylist([], schema)


def _common_schema(batches: Sequence[pa.RecordBatch]) -> pa.Schema:
    types: dict[str, pa.DataType] = {}
    for schema in {batch.schema for batch in batches}:
        for field in schema:
            types[field.name] = _wider_type(types.get(field.name), field.type)
    first = batches[0].schema.names
    order = [*first, *sorted(types.keys() - set(first))]
    return pa.schema([(name, types[name]) for name in order])


def _wider_type(known: pa.DataType | None, new: pa.DataType) -> pa.DataType:
    """A type for both; dictionaries get 32-bit codes, since one holds the words of a whole window."""
    if pa.types.is_dictionary(new):
        new = pa.dictionary(pa.int32(), new.value_type)
    if known is None or known == new or pa.types.is_null(new):
        return known or new
    return known if pa.types.is_dictionary(known) else new


def _convert(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [_column(batch, field.name, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    at = batch.schema.get_field_index(name)
    if at < 0:
        return pa.nulls(batch.num_rows, kind)
    array = batch.column(at)
    if array.type == kind:
        return array
    if not pa.types.is_dictionary(kind):
        return array.cast(kind)
    if not pa.types.is_dictionary(array.type):
        return array.cast(kind.value_type).dictionary_encode()
    return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), array.dictionary)

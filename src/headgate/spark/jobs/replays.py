"""Replay the history of a stream into any destination: every message that matches, in order, and once for each run id.

    <stream>/replays/<run id>/plan.json     the filter, the borders of its batches, and how many of them are done
                              lock          held while it runs
                              staged/       files for a database server

The first run with an id decides which messages are replayed. A later run with that id continues where the last one
stopped, and a destination ignores a batch that it has; messages published since then need another id.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from headgate.clock import now_us
from headgate.errors import SparkOptionsError, StreamWriteError
from headgate.files import replace_file
from headgate.filters import FilterLike, as_filter, to_text
from headgate.filters import parse as parse_filter
from headgate.spark.jobs.tasks import run_tasks
from headgate.spark.sink.destination import BatchMark, Destination, Owner, destination_of
from headgate.spark.sink.staging import StagedPart, stage
from headgate.spark.source.ranges import OffsetRange, PlannedCatalog, own_query, scan
from headgate.spark.source.ranges import plan as plan_tasks
from headgate.streams import load_options
from headgate.streams.read import (
    ScanStats,
    SegmentCatalog,
    Start,
    StreamQuery,
    make_query,
    resolve_start,
    survivors,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPLAYS: Final = "replays"
BATCH_BYTES: Final = 256 << 20  # of chunks that may match; a batch is one commit
_RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The messages that a run id replays."""

    filter: str
    place: str  # a digest of the destination: the address of a database may contain a password
    now_us: int  # the value of UTC() in all batches
    borders: tuple[int, ...]  # the offsets at which batches begin and end
    done: int = 0  # batches that are committed

    def batches(self) -> list[tuple[int, int]]:
        return list(pairwise(self.borders))


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What one run has done."""

    run_id: str
    messages: int
    batches: int
    batches_before: int  # done by an earlier run under the same id


def replay(
    spark: SparkSession,
    path: str | Path,
    filter: FilterLike | None,
    to: str,
    *,
    start: Start = "first",
    until: Start = "next",
    run_id: str | None = None,
    on_progress: Callable[[int, int, int], None] | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> ReplayResult:
    """Replay the matching messages of a stream to a place; a run with the id of an earlier one continues it.

    `on_progress` is called with the numbers of messages, finished batches and all batches.
    """
    from headgate.streams.write import WriterLock

    name = run_id or uuid4().hex
    source = Path(path).resolve()
    load_options(source)
    destination = _destination(source, to, name)
    text = to_text(as_filter("" if filter is None else filter))
    folder = _folder(source, name)
    with WriterLock(folder, f"replay {name}"):
        place = hashlib.sha256(repr(destination).encode()).hexdigest()
        plan = _load_plan(folder) or _new_plan(source, text, place, start, until, batch_bytes)
        _check_unchanged(plan, text, place, name)
        _save_plan(folder, plan)
        destination.open()
        job = _Job(spark, str(source), name, destination, _query(plan))
        return _run(job, folder, plan, on_progress)


def _run(
    job: _Job, folder: Path, plan: ReplayPlan, on_progress: Callable[[int, int, int], None] | None
) -> ReplayResult:
    batches, messages = plan.batches(), 0
    job.destination.collect_orphans()
    for number, (low, high) in enumerate(batches):
        if number < plan.done:
            continue
        if on_progress is not None:
            on_progress(messages, number, len(batches))
        messages += job.commit(number, low, high)
        _save_plan(folder, replace(plan, done=number + 1))
    job.destination.collect_orphans()
    job.destination.leave()
    return ReplayResult(job.run_id, messages, len(batches), plan.done)


@dataclass(frozen=True, slots=True)
class _Job:
    spark: SparkSession
    path: str
    run_id: str
    destination: Destination
    query: StreamQuery

    def commit(self, number: int, low: int, high: int) -> int:
        """Scan, stage and commit one batch, and return the number of its messages."""
        start, end = {self.path: low}, {self.path: high}
        tasks = plan_tasks([self.path], self.query, start=start, end=end, catalog_of=_open_catalog)
        ranges = sorted(one for task in tasks for one in task)
        work = partial(stage_ranges, self.destination, self.query)
        results = run_tasks(self.spark, ranges, work)
        staged = [StagedPart(*row) for _, row in sorted(_parse_rows(results))]
        self.destination.commit(BatchMark(self.run_id, number), staged)
        return sum(each.rows for each in staged)


def _open_catalog(path: str) -> PlannedCatalog:
    return PlannedCatalog(path, hint="replay the remaining messages under another id")


def _parse_rows(results: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
    for result in results:
        yield from json.loads(result)


def stage_ranges(
    destination: Destination, query: StreamQuery, ranges: Sequence[OffsetRange]
) -> str:
    """The work of a task: scan its ranges and stage the matches, one file for each range."""
    rows: list[tuple[int, list[Any]]] = []
    for one in ranges:
        staged = stage(destination.staging, scan(one, query, _open_catalog(one.path)))
        if staged is not None:
            parts = destination.prepare(staged)
            rows.extend((one.low, list(asdict(part).values())) for part in parts)
    return json.dumps(rows)


# ---- planning ----------------------------------------------------------------------------------------


def _destination(source: Path, to: str, name: str) -> Destination:
    if not _RUN_ID.fullmatch(name):
        raise SparkOptionsError(
            f"{name!r} is no id for a replay; use up to 64 letters, digits, - and _"
        )
    owner = Owner(f"replay-{name}", str(source / REPLAYS / name / "staged"))
    destination = destination_of(to, source.name, owner)
    if getattr(destination, "path", None) == str(source):
        raise SparkOptionsError(f"{source} cannot be replayed into itself; name another place")
    destination.check()
    return destination


def _query(plan: ReplayPlan) -> StreamQuery:
    return make_query(parse_filter(plan.filter)).at(plan.now_us)


def _new_plan(
    source: Path, text: str, place: str, start: Start, until: Start, batch_bytes: int
) -> ReplayPlan:
    catalog, now = SegmentCatalog(source), now_us()
    low = max(resolve_start(start, catalog, lambda: now), catalog.first_offset())
    high = min(resolve_start(until, catalog, lambda: now), catalog.next_offset())
    unplanned = ReplayPlan(text, place, now, (low,))
    query = own_query(str(source), _query(unplanned))
    return replace(unplanned, borders=tuple(_borders(catalog, query, low, high, batch_bytes)))


def _borders(
    catalog: SegmentCatalog, query: StreamQuery, low: int, high: int, batch_bytes: int
) -> Iterator[int]:
    """Offsets between batches. A batch ends with a segment, so that only one batch reads a segment."""
    yield low
    position, collected = low, 0
    while position < high and (segment := catalog.covering(position)) is not None:
        position = min(segment.next_offset, high)
        chunks = survivors(segment, query.filter, query.entry_filters, low, high, ScanStats())
        collected += sum(chunk.nbytes for chunk in chunks)
        if collected >= batch_bytes and position < high:
            yield position
            collected = 0
    if position > low:
        yield position


# ---- the plan's file ---------------------------------------------------------------------------------


def _folder(source: Path, name: str) -> Path:
    folder = source / REPLAYS / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StreamWriteError(
            f"{folder} cannot be created, and a replay stores its progress there: {problem}; "
            "allow this user to write to the stream's directory"
        ) from problem
    return folder


def _load_plan(folder: Path) -> ReplayPlan | None:
    try:
        known = json.loads((folder / "plan.json").read_bytes())
    except FileNotFoundError:
        return None
    return ReplayPlan(**{**known, "borders": tuple(known["borders"])})


def _save_plan(folder: Path, plan: ReplayPlan) -> None:
    replace_file(folder / "plan.json", json.dumps(asdict(plan), ensure_ascii=False).encode())


def _check_unchanged(plan: ReplayPlan, text: str, place: str, name: str) -> None:
    if plan.filter != text:
        raise SparkOptionsError(
            f"replay {name} had the filter {plan.filter}; replay {text} under another id"
        )
    if plan.place != place:
        raise SparkOptionsError(
            f"replay {name} had another destination; replay to this one under another id"
        )

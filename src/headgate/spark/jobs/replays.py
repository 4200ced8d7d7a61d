"""A filter over all history, into any destination: every message that matches, in order, and once for each run id.

    <stream>/replays/<run id>/plan.json     what was asked, where its batches end, how many of them are done
                              lock          held while it runs
                              staged/       files on their way to a database server

What is replayed is settled when a run id is used for the first time. Under the same id a run goes on where the last
one was stopped, and a batch that a destination has is dropped there; what was published since belongs to another run.
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
from headgate.spark.jobs.running import run
from headgate.spark.sink.checkpoint import Owner
from headgate.spark.sink.destination import BatchMark, Destination
from headgate.spark.sink.destinations import parse
from headgate.spark.sink.staging import Staged, stage
from headgate.spark.source.planned import PlannedCatalog
from headgate.spark.source.ranges import Range, own_query, plan, scan
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
    """What a run id stands for."""

    filter: str
    place: str  # a digest of where it goes: a database's address may hold a password
    now_us: int  # what UTC() is in all its batches
    borders: tuple[int, ...]  # a batch is what lies between two of them
    done: int = 0  # batches that are committed

    def batches(self) -> list[tuple[int, int]]:
        return list(pairwise(self.borders))


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one run did."""

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
) -> Replayed:
    """Replay; `on_progress` is called with messages so far, batches done and batches in all."""
    from headgate.streams.write import WriterLock

    name = run_id or uuid4().hex
    source = Path(path).resolve()
    load_options(source)
    destination = _destination(source, to, name)
    text = to_text(as_filter("" if filter is None else filter))
    folder = _folder(source, name)
    with WriterLock(folder, f"replay {name}"):
        place = hashlib.sha256(repr(destination).encode()).hexdigest()
        found = _load(folder) or _new_plan(source, text, place, start, until, batch_bytes)
        _check_same(found, text, place, name)
        _save(folder, found)
        destination.open()
        job = _Job(spark, str(source), name, destination, _query(found))
        return _run(job, folder, found, on_progress)


def _run(
    job: _Job, folder: Path, found: ReplayPlan, on_progress: Callable[[int, int, int], None] | None
) -> Replayed:
    batches, messages = found.batches(), 0
    job.destination.collect_orphans()
    for number, (low, high) in enumerate(batches):
        if number < found.done:
            continue
        if on_progress is not None:
            on_progress(messages, number, len(batches))
        messages += job.commit(number, low, high)
        _save(folder, replace(found, done=number + 1))
    job.destination.collect_orphans()
    job.destination.leave()
    return Replayed(job.run_id, messages, len(batches), found.done)


@dataclass(frozen=True, slots=True)
class _Job:
    spark: SparkSession
    path: str
    run_id: str
    destination: Destination
    query: StreamQuery

    def commit(self, number: int, low: int, high: int) -> int:
        """One batch, from scan to commit; how many messages it has."""
        start, end = {self.path: low}, {self.path: high}
        shares = plan([self.path], self.query, start=start, end=end, catalog_of=_planned)
        ranges = sorted(one for share in shares for one in share)
        work = partial(stage_ranges, self.destination, self.query)
        answers = run(self.spark, ranges, work)
        staged = [Staged(*row) for _, row in sorted(_rows(answers))]
        self.destination.commit(BatchMark(self.run_id, number), staged)
        return sum(each.rows for each in staged)


def _planned(path: str) -> PlannedCatalog:
    return PlannedCatalog(path, go_on="replay what is left under another id")


def _rows(answers: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
    for answer in answers:
        yield from json.loads(answer)


def stage_ranges(destination: Destination, query: StreamQuery, ranges: Sequence[Range]) -> str:
    """What a task does: scan its ranges and stage what matches, a file for each."""
    found = []
    for one in ranges:
        staged = stage(destination.staging, scan(one, query, _planned(one.path)))
        if staged is not None:
            found.append((one.low, list(asdict(destination.prepare(staged)).values())))
    return json.dumps(found)


# ---- what is asked -----------------------------------------------------------------------------------


def _destination(source: Path, to: str, name: str) -> Destination:
    if not _RUN_ID.fullmatch(name):
        raise SparkOptionsError(
            f"{name!r} is no id for a replay; write up to 64 letters, digits, - and _"
        )
    owner = Owner(f"replay-{name}", str(source / REPLAYS / name / "staged"))
    destination = parse(to, source.name, owner)
    if getattr(destination, "path", None) == str(source):
        raise SparkOptionsError(f"{source} cannot be replayed into itself; name another place")
    destination.check()
    return destination


def _query(found: ReplayPlan) -> StreamQuery:
    return make_query(parse_filter(found.filter)).at(found.now_us)


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
    """Batches end where segments do: a segment is read by one batch alone."""
    yield low
    position, collected = low, 0
    while position < high and (segment := catalog.covering(position)) is not None:
        position = min(segment.next_offset, high)
        chosen = survivors(segment, query.filter, query.entry_filters, low, high, ScanStats())
        lengths = segment.lengths()
        collected += sum(int(lengths[survivor.at]) for survivor in chosen)
        if collected >= batch_bytes and position < high:
            yield position
            collected = 0
    if position > low:
        yield position


# ---- what is remembered ------------------------------------------------------------------------------


def _folder(source: Path, name: str) -> Path:
    folder = source / REPLAYS / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StreamWriteError(
            f"{folder} cannot be made, and a replay remembers there what it has done: {problem}; "
            "let this user write into the stream's directory"
        ) from problem
    return folder


def _load(folder: Path) -> ReplayPlan | None:
    try:
        known = json.loads((folder / "plan.json").read_bytes())
    except FileNotFoundError:
        return None
    return ReplayPlan(**{**known, "borders": tuple(known["borders"])})


def _save(folder: Path, found: ReplayPlan) -> None:
    replace_file(folder / "plan.json", json.dumps(asdict(found), ensure_ascii=False).encode())


def _check_same(found: ReplayPlan, text: str, place: str, name: str) -> None:
    if found.filter != text:
        raise SparkOptionsError(f"replay {name} was for {found.filter}; {text} needs another id")
    if found.place != place:
        raise SparkOptionsError(f"replay {name} went to another place; this one needs another id")

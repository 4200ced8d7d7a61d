"""Trials of storage designs on some segments of a stream, with filters or with equality on each header.

Each method of `Trials` that tries designs or counts matches is one Spark job.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from headgate.filters import (
    Compare,
    Field,
    Filter,
    FilterLike,
    as_filter,
    fields_read,
    normalize,
    to_text,
)
from headgate.filters import Literal as Constant
from headgate.message import Scalar
from headgate.spark.jobs.segment_table import read_fields
from headgate.spark.jobs.simulation import Simulation, Tally, add_tallies
from headgate.spark.jobs.sketches import SAMPLED
from headgate.spark.jobs.stats import FieldStats, StreamStats
from headgate.spark.jobs.tasks import OnProgress, open_segments, run_tasks
from headgate.spark.source.ranges import OffsetRange
from headgate.streams.segments import FILTER_VALUE, BloomShape, IndexShape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Trial: TypeAlias = Callable[[Simulation], list[Tally]]

SEED_SIZES: Final = (16, 32, 64, 128, 255)
INDEXED_SIZES: Final = (64, 256, 1024, 4096)


@dataclass(frozen=True, slots=True)
class HotTrials:
    """Results before sealing: by the size of Bloom filters, with a header as filter value, with chunks cut by a header."""

    indexed: dict[int, Tally]
    seeded: list[tuple[Subject, dict[int, Tally]]]
    restricted: list[tuple[Subject, Tally]]


@dataclass(frozen=True, slots=True)
class Trials:
    """The segments and subjects that designs are tried on."""

    spark: SparkSession
    ranges: Sequence[OffsetRange]
    subjects: tuple[Subject, ...]
    chunk_messages: int
    on_progress: OnProgress | None = None

    @property
    def filters(self) -> tuple[Filter, ...]:
        return tuple(filter for subject in self.subjects for filter in subject.filters)

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields that are read of a segment."""
        read = {FILTER_VALUE}.union(*(subject.fields for subject in self.subjects))
        return tuple(sorted(read, key=repr))

    def shares(self, tally: Tally) -> list[float]:
        """The share skipped for each subject."""
        shares = iter(tally.shares)
        return [subject.mean([next(shares) for _ in subject.filters]) for subject in self.subjects]

    def score(self, tally: Tally) -> float:
        """The mean share skipped, with equal weight for every subject."""
        return sum(self.shares(tally)) / len(self.subjects)

    # ---- jobs ----------------------------------------------------------------------------------------

    def count_matches(self) -> Trials:
        """Count the matches of every subject that has no count yet."""
        uncounted = [subject for subject in self.subjects if subject.matches is None]
        if not uncounted:
            return self
        filters = tuple(filter for subject in uncounted for filter in subject.filters)
        (tally,) = self._run(lambda trial: [trial.matching(filters)])
        shares = iter(tally.shares)
        known = (
            replace(s, matches=1 - next(shares)) if s.matches is None else s for s in self.subjects
        )
        return replace(self, subjects=tuple(known))

    def try_now_and_sealed(self) -> tuple[Tally, Tally]:
        """Tally what the filters read in the segments as stored, and after sealing with no header indexed."""
        filters = self.filters
        now, sealed = self._run(lambda trial: [trial.as_stored(filters), trial.sealed((), filters)])
        return now, sealed

    def try_sealed(self, designs: Sequence[tuple[str, ...]]) -> list[Tally]:
        """Tally what the filters would read after sealing with each design: a choice of indexed headers."""
        filters = self.filters
        return self._run(lambda trial: [trial.sealed(design, filters) for design in designs])

    def try_hot(
        self, indexed: tuple[str, ...], present: Collection[int], listed: Sequence[str]
    ) -> HotTrials:
        """Tally what the filters would read before sealing, with Bloom filters of the usual sizes and of the `present` ones.

        `listed` are the headers that batches could be restricted by.
        """
        filters = self.filters
        sizes = sorted({*INDEXED_SIZES, *present} if indexed else present)
        shapes = [IndexShape(BloomShape(size, 7 if indexed else 2), indexed) for size in sizes]
        seeds = [IndexShape(BloomShape(size, 2)) for size in SEED_SIZES]
        as_seed = [s for s in self.subjects if all(isinstance(v, str) for v in s.values or (0,))]
        cut = [subject for subject in self.subjects if subject.header in listed]

        def trial(simulation: Simulation) -> list[Tally]:
            seeded = [simulation.seeded(str(s.header), seeds, s.values) for s in as_seed]
            restricted = [simulation.restricted(str(s.header), s.filters) for s in cut]
            return [*simulation.hot(shapes, filters), *chain.from_iterable(seeded), *restricted]

        tallies = iter(self._run(trial))
        return HotTrials(
            {size: next(tallies) for size in sizes},
            [(subject, {size: next(tallies) for size in SEED_SIZES}) for subject in as_seed],
            [(subject, next(tallies)) for subject in cut],
        )

    def _run(self, trial: Trial) -> list[Tally]:
        work = partial(_run_trial, trial, self.fields, self.chunk_messages)
        results = run_tasks(self.spark, self.ranges, work, self.on_progress)
        return reduce(_add_lists, map(_tallies_from_json, results))


def _run_trial(
    trial: Trial, fields: Sequence[Field], chunk_messages: int, ranges: Sequence[OffsetRange]
) -> str:
    """The work of a task: run the trial on its segments, and return the sum of the results as JSON."""
    total: list[Tally] = []
    for segment in open_segments(ranges):
        rows = read_fields(segment, fields)
        if len(rows):
            tallies = trial(Simulation(segment, rows, chunk_messages))
            total = _add_lists(total, tallies) if total else tallies
    return json.dumps([asdict(tally) for tally in total])


def _tallies_from_json(text: str) -> list[Tally]:
    return [_tally(known) for known in json.loads(text)]


def _tally(known: dict[str, Any]) -> Tally:
    fixed: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in known.items()}
    return Tally(**fixed)


def _add_lists(one: list[Tally], other: list[Tally]) -> list[Tally]:
    if not one or not other:  # all segments of a task may be deleted
        return one or other
    return [add_tallies(a, b) for a, b in zip(one, other, strict=True)]


# ---- subjects ----------------------------------------------------------------------------------------

Weighing: TypeAlias = Literal["uniform", "use"]

MOST_HEADERS: Final = 8  # examined when no filters are given


@dataclass(frozen=True, slots=True)
class Subject:
    """What advice is about: one or several filters that count as one, with weights that add up to 1."""

    name: str
    filters: tuple[Filter, ...]
    weights: tuple[float, ...]
    matches: float | None  # the share of messages that match; None until it is counted
    header: str | None = None  # of a subject that is equality on a header
    values: tuple[Scalar, ...] = ()  # that the header is compared with

    def mean(self, shares: Sequence[float]) -> float:
        """The weighted mean of the filters' shares."""
        return sum(w * share for w, share in zip(self.weights, shares, strict=True))

    @property
    def fields(self) -> frozenset[Field]:
        return frozenset().union(*(fields_read(filter) for filter in self.filters))

    @property
    def headers(self) -> list[str]:
        """The headers that could be indexed for this subject."""
        return sorted(field.name for field in self.fields if field.scope == "header")


def filter_subject(filter: FilterLike, now_us: int) -> Subject:
    """Make the subject of one filter; raises when the filter is invalid."""
    tree = normalize(as_filter(filter)).at(now_us).tree
    return Subject(to_text(as_filter(filter)), (tree,), (1.0,), None)


def header_subjects(stats: StreamStats, weighing: Weighing) -> list[Subject]:
    """Subjects for equality on each header, the most frequent headers first."""
    headers = {
        name: field
        for name, field in stats.headers().items()
        if _distinguishes(field, stats.messages)
    }
    ranked = sorted(headers, key=lambda n: (-headers[n].present, headers[n].distinct.estimate, n))
    return [_equality(n, headers[n], stats.messages, weighing) for n in ranked[:MOST_HEADERS]]


def _distinguishes(field: FieldStats, messages: int) -> bool:
    """Whether the header differs between messages; otherwise a filter on it is useless."""
    return bool(field.kinds) and (field.distinct.estimate > 1 or field.present < messages)


def _equality(name: str, field: FieldStats, messages: int, weighing: Weighing) -> Subject:
    weighed = _weigh_by_use(field) if weighing == "use" else _weigh_evenly(field)
    filters = tuple(Compare("=", Field("header", name), Constant(each.value)) for each in weighed)
    return Subject(
        f"{name} = …",
        filters,
        tuple(each.weight for each in weighed),
        sum(each.weight * each.messages for each in weighed) / messages,
        name,
        tuple(each.value for each in weighed),
    )


class _Weighed(NamedTuple):
    value: Scalar
    weight: float
    messages: float  # how many have it


def _weigh_evenly(field: FieldStats) -> list[_Weighed]:
    values, count = field.distinct.values, _comparable(field) / field.distinct.estimate
    return [_Weighed(value, 1 / len(values), count) for value in values]


def _weigh_by_use(field: FieldStats) -> list[_Weighed]:
    """Weigh each value by the number of its messages: frequent values by their count, the others by a sample."""
    total, top = _comparable(field), field.heavy.top(SAMPLED)
    listed = {(type(value), value) for value, _ in top}
    others = [v for v in field.distinct.values if (type(v), v) not in listed]
    left = total - sum(count for _, count in top) if others else 0
    unlisted = max(field.distinct.estimate - len(top), 1)
    counted = total if others else sum(count for _, count in top)
    named = [_Weighed(value, count / counted, count) for value, count in top]
    return [*named, *(_Weighed(v, left / total / len(others), left / unlisted) for v in others)]


def _comparable(field: FieldStats) -> int:
    return sum(values.present for values in field.kinds.values())

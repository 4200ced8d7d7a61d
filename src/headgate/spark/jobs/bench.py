"""Where designs are tried: some segments, the filters to try them with, and one Spark job a question."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.filters import Field, Filter
from headgate.spark.jobs.rows import read_fields
from headgate.spark.jobs.running import OnProgress, run, segments
from headgate.spark.jobs.simulate import Simulation, Tally, added
from headgate.spark.jobs.subjects import Subject
from headgate.spark.source.ranges import Range
from headgate.streams.segments import FILTER_VALUE, BloomShape, IndexShape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Trial: TypeAlias = Callable[[Simulation], list[Tally]]

SEED_SIZES: Final = (16, 32, 64, 128, 255)
INDEXED_SIZES: Final = (64, 256, 1024, 4096)


@dataclass(frozen=True, slots=True)
class HotTrials:
    """What hot chunks would do: by the size of their filter, for one header as filter value, cut by one header."""

    indexed: dict[int, Tally]
    seeded: list[tuple[Subject, dict[int, Tally]]]
    restricted: list[tuple[Subject, Tally]]


@dataclass(frozen=True, slots=True)
class Bench:
    """The segments and subjects of one piece of advice."""

    spark: SparkSession
    ranges: Sequence[Range]
    subjects: tuple[Subject, ...]
    chunk_messages: int
    on_progress: OnProgress | None = None

    @property
    def filters(self) -> tuple[Filter, ...]:
        return tuple(filter for subject in self.subjects for filter in subject.filters)

    @property
    def fields(self) -> tuple[Field, ...]:
        """All that is read of a segment."""
        read = {FILTER_VALUE}.union(*(subject.fields for subject in self.subjects))
        return tuple(sorted(read, key=repr))

    def shares(self, tally: Tally) -> list[float]:
        """The share skipped for each subject."""
        shares = iter(tally.shares)
        return [subject.mean([next(shares) for _ in subject.filters]) for subject in self.subjects]

    def score(self, tally: Tally) -> float:
        """The share skipped, every subject counting the same."""
        return sum(self.shares(tally)) / len(self.subjects)

    # ---- questions -----------------------------------------------------------------------------------

    def counted(self) -> Bench:
        """The same with the matches of every subject known."""
        open_ = [subject for subject in self.subjects if subject.matches is None]
        if not open_:
            return self
        filters = tuple(filter for subject in open_ for filter in subject.filters)
        (tally,) = self._ask(lambda trial: [trial.matching(filters)])
        shares = iter(tally.shares)
        known = (
            replace(s, matches=1 - next(shares)) if s.matches is None else s for s in self.subjects
        )
        return replace(self, subjects=tuple(known))

    def now_and_sealed(self) -> tuple[Tally, Tally]:
        """What the filters skip as the segments are, and after sealing with nothing indexed."""
        filters = self.filters
        now, sealed = self._ask(lambda trial: [trial.as_it_is(filters), trial.sealed((), filters)])
        return now, sealed

    def sealed(self, designs: Sequence[tuple[str, ...]]) -> list[Tally]:
        """What they would skip after sealing with each choice of indexed headers."""
        filters = self.filters
        return self._ask(lambda trial: [trial.sealed(design, filters) for design in designs])

    def hot(
        self, indexed: tuple[str, ...], present: Collection[int], listed: Sequence[str]
    ) -> HotTrials:
        """What they would skip before sealing, with filters of the usual sizes and those that are `present`.

        `listed` are the headers batches could be restricted by.
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

        found = iter(self._ask(trial))
        return HotTrials(
            {size: next(found) for size in sizes},
            [(subject, {size: next(found) for size in SEED_SIZES}) for subject in as_seed],
            [(subject, next(found)) for subject in cut],
        )

    def _ask(self, trial: Trial) -> list[Tally]:
        work = partial(_try, trial, self.fields, self.chunk_messages)
        answers = run(self.spark, self.ranges, work, self.on_progress)
        return reduce(_added, map(_tallies, answers))


def _try(
    trial: Trial, fields: Sequence[Field], chunk_messages: int, ranges: Sequence[Range]
) -> str:
    """What a task does: the trial on its segments, and the sum of what came out."""
    found: list[Tally] = []
    for segment in segments(ranges):
        rows = read_fields(segment, fields)
        if len(rows):
            tallies = trial(Simulation(segment, rows, chunk_messages))
            found = _added(found, tallies) if found else tallies
    return json.dumps([asdict(tally) for tally in found])


def _tallies(answer: str) -> list[Tally]:
    return [_tally(known) for known in json.loads(answer)]


def _tally(known: dict[str, Any]) -> Tally:
    fixed: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in known.items()}
    return Tally(**fixed)


def _added(one: list[Tally], other: list[Tally]) -> list[Tally]:
    if not one or not other:  # all segments of a task may be gone
        return one or other
    return [added(a, b) for a, b in zip(one, other, strict=True)]

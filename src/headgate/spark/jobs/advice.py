"""Which headers to index and how large a filter to keep, found out by trying it on the stream's own messages.

Headers are added one at a time to the few best choices so far, because two that are good alone may spoil each other,
until the next would add less than a point. Every step is one Spark job over a sample of segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.clock import now_us
from headgate.errors import StreamError
from headgate.filters import FilterLike
from headgate.message import Scalar
from headgate.spark.jobs.bench import Bench, HotTrials
from headgate.spark.jobs.measuring import measured
from headgate.spark.jobs.running import OnProgress, segment_ranges, spread
from headgate.spark.jobs.simulate import Tally
from headgate.spark.jobs.stats import StreamStats
from headgate.spark.jobs.subjects import Weighing, filter_subject, header_subjects
from headgate.streams import DEFAULT_INDEXED_BYTES, DEFAULT_SEED_BYTES, StreamOptions, load_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_SAMPLE: Final = 16  # segments
LEAST_GAIN: Final = 0.01  # of the mean share skipped, for a header or larger filter to be worth it
MOST_INDEXED: Final = 6
BEAM: Final = 3  # choices that are followed at the same time
MOST_LISTED: Final = 16  # values of a header that batches could be restricted by
LEAST_RUN: Final = 256  # rows of a chunk, for a restriction to be worth its chunks


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is skipped for one subject: now, and with the advice before and after sealing."""

    subject: str
    matches: float  # the share of messages that match
    now: float
    hot: float
    sealed: float


@dataclass(frozen=True, slots=True)
class SizeOutlook:
    """What hot chunks let a subject skip with a filter of this size."""

    mode: str  # "filter value" or "indexed"
    subject: str
    nbytes: int
    skipped: float


@dataclass(frozen=True, slots=True)
class RestrictionOutlook:
    """What `restrict_same_values` on one header would do to hot chunks."""

    header: str
    values: tuple[Scalar, ...]
    rows_per_chunk: float
    skipped: float
    space: float  # what the additional chunks take, as a share of the stream

    @property
    def advised(self) -> bool:
        return self.rows_per_chunk >= LEAST_RUN and self.skipped > LEAST_GAIN


@dataclass(frozen=True, slots=True)
class Tried:
    """The mean share skipped after sealing with these headers indexed."""

    indexed: tuple[str, ...]
    skipped: float


@dataclass(frozen=True, slots=True)
class Advice:
    """What was measured, what was tried, and what came out best."""

    path: str
    stats: StreamStats  # of the segments that were looked at
    looked_at: int
    segments: int
    current: StreamOptions
    indexed: tuple[str, ...]
    filter_size: int
    outlooks: tuple[Outlook, ...]
    tried: tuple[Tried, ...]
    sizes: tuple[SizeOutlook, ...]
    restrictions: tuple[RestrictionOutlook, ...]
    sealed_space: float  # Bloom filters of sealed segments, as a share of the stream
    hot_space: float  # the index of hot segments likewise

    @property
    def changes(self) -> bool:
        same = set(self.indexed) == set(self.current.indexed)
        return not same or self.filter_size != self.current.filter_size

    @property
    def expected(self) -> float:
        """The mean share skipped after sealing."""
        return sum(outlook.sealed for outlook in self.outlooks) / len(self.outlooks)


def advise(
    spark: SparkSession,
    path: str | Path,
    filters: Sequence[FilterLike] = (),
    *,
    sample: int = DEFAULT_SAMPLE,
    weighing: Weighing = "uniform",
    on_progress: OnProgress | None = None,
) -> Advice:
    """Advice for these filters, or for equality on every header. `sample=0` looks at every segment."""
    given = [filter_subject(filter, now_us()) for filter in filters]
    options, every = load_options(Path(path)), segment_ranges(path)
    ranges = spread(every, sample or len(every))
    stats = measured(spark, ranges, on_progress)
    subjects = given or header_subjects(stats, weighing)
    if not stats.messages or not subjects:
        raise StreamError(
            f"there is nothing to advise on {path}: it holds {stats.messages:,} messages, and no header in "
            "them tells two messages apart; publish some first, or give --filter"
        )
    bench = Bench(spark, ranges, tuple(subjects), options.chunk_messages, on_progress).counted()
    return _advice(bench, str(path), stats, options, len(every))


def _advice(
    bench: Bench, path: str, stats: StreamStats, current: StreamOptions, every: int
) -> Advice:
    now, indexed, sealed, tried = _choose(bench)
    hot = bench.hot(indexed, _present_sizes(indexed, current), _restrictable(bench, stats))
    filter_size = _smallest(hot, bench)
    return Advice(
        path=path,
        stats=stats,
        looked_at=len(bench.ranges),
        segments=every,
        current=current,
        indexed=indexed,
        filter_size=filter_size,
        outlooks=tuple(_outlooks(bench, now, hot.indexed[filter_size], sealed)),
        tried=tuple(tried),
        sizes=(*_indexed_sizes(bench, hot), *_seed_sizes(hot)),
        restrictions=tuple(_restrictions(hot, stats)),
        sealed_space=sealed.summary_bytes / sealed.nbytes,
        hot_space=hot.indexed[filter_size].summary_bytes / sealed.nbytes,
    )


def _outlooks(bench: Bench, *tallies: Tally) -> Iterator[Outlook]:
    for subject, *shares in zip(bench.subjects, *map(bench.shares, tallies), strict=True):
        yield Outlook(subject.name, subject.matches or 0.0, *shares)


# ---- choosing ----------------------------------------------------------------------------------------


def _choose(bench: Bench) -> tuple[Tally, tuple[str, ...], Tally, list[Tried]]:
    """How it is now, the headers to index, what sealing by them does, and everything that was tried."""
    candidates = sorted({name for subject in bench.subjects for name in subject.headers})
    chosen: tuple[str, ...] = ()
    now, unclustered = bench.now_and_sealed()
    found = {chosen: unclustered}
    leading = [chosen]
    for _ in range(MOST_INDEXED):
        designs = _extended(leading, candidates)
        found |= zip(designs, bench.sealed(designs) if designs else (), strict=True)
        leading = sorted(designs, key=lambda design: -bench.score(found[design]))[:BEAM]
        if not leading or bench.score(found[leading[0]]) < bench.score(found[chosen]) + LEAST_GAIN:
            break
        chosen = leading[0]
    tried = [Tried(design, bench.score(tally)) for design, tally in found.items()]
    return now, chosen, found[chosen], tried


def _extended(designs: Sequence[tuple[str, ...]], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Each design with one more header; the order of headers makes no difference."""
    larger = {tuple(sorted({*design, name})) for design in designs for name in names}
    return sorted(larger - {tuple(sorted(design)) for design in designs})


def _present_sizes(indexed: tuple[str, ...], current: StreamOptions) -> set[int]:
    """What the stream has now, if it is of the same kind; RabbitMQ's own size where nothing is indexed."""
    if bool(indexed) == bool(current.indexed):
        return {current.filter_size}
    return set() if indexed else {DEFAULT_SEED_BYTES}


def _smallest(hot: HotTrials, bench: Bench) -> int:
    """The smallest filter that is about as good as the best; the usual one if none is any good."""
    best = max(map(bench.score, hot.indexed.values()))
    if best < LEAST_GAIN and DEFAULT_INDEXED_BYTES in hot.indexed:
        return DEFAULT_INDEXED_BYTES
    return min(s for s, tally in hot.indexed.items() if bench.score(tally) > best - LEAST_GAIN)


def _restrictable(bench: Bench, stats: StreamStats) -> list[str]:
    known = stats.headers()
    names = [s.header for s in bench.subjects if s.header is not None]
    return [name for name in names if known[name].distinct.estimate <= MOST_LISTED]


def _indexed_sizes(bench: Bench, hot: HotTrials) -> Iterator[SizeOutlook]:
    for size, tally in sorted(hot.indexed.items()):
        for subject, share in zip(bench.subjects, bench.shares(tally), strict=True):
            yield SizeOutlook("indexed", subject.name, size, share)


def _seed_sizes(hot: HotTrials) -> Iterator[SizeOutlook]:
    for subject, sizes in hot.seeded:
        for size, tally in sizes.items():
            yield SizeOutlook("filter value", subject.name, size, subject.mean(tally.shares))


def _restrictions(hot: HotTrials, stats: StreamStats) -> Iterator[RestrictionOutlook]:
    for subject, tally in hot.restricted:
        assert subject.header is not None
        values = stats.headers()[subject.header].distinct.values
        yield RestrictionOutlook(
            subject.header,
            tuple(sorted(values, key=repr)),
            stats.messages / max(tally.chunks, 1),
            subject.mean(tally.shares),
            tally.summary_bytes / max(tally.nbytes, 1),
        )

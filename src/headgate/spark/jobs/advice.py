"""Advice on which headers to index and how large a Bloom filter to keep, from trials on the stream's own messages.

Headers are added one at a time to the few best designs so far, because two headers that are good alone may be bad together,
until the next one would gain less than one percent. Every step is one Spark job over a sample of segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from headgate.clock import now_us
from headgate.errors import StreamError
from headgate.filters import FilterLike
from headgate.message import Scalar
from headgate.spark.jobs.simulation import Tally
from headgate.spark.jobs.stats import StreamStats, measure_stream
from headgate.spark.jobs.tasks import OnProgress, sample_ranges, segment_ranges
from headgate.spark.jobs.trials import HotTrials, Trials, Weighing, filter_subject, header_subjects
from headgate.streams import DEFAULT_INDEXED_BYTES, DEFAULT_SEED_BYTES, StreamOptions, load_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_SAMPLE: Final = 16  # segments
LEAST_GAIN: Final = 0.01  # of the mean share skipped, that a header or a larger filter must add
MOST_INDEXED: Final = 6
BEAM: Final = 3  # designs that are extended at the same time
MOST_LISTED: Final = 16  # values of a header that batches could be restricted by
LEAST_RUN: Final = 256  # rows that a chunk must have for a restriction to be advised


@dataclass(frozen=True, slots=True)
class Outlook:
    """The share skipped for one subject: now, and with the advice before and after sealing."""

    subject: str
    matches: float  # the share of messages that match
    now: float
    hot: float
    sealed: float


@dataclass(frozen=True, slots=True)
class SizeOutlook:
    """The share skipped for a subject before sealing, with a Bloom filter of this size."""

    mode: str  # "filter value" or "indexed"
    subject: str
    nbytes: int
    skipped: float


@dataclass(frozen=True, slots=True)
class RestrictionOutlook:
    """The effect of `restrict_same_values` on one header before sealing."""

    header: str
    values: tuple[Scalar, ...]
    rows_per_chunk: float
    skipped: float
    space: float  # of the additional chunks, as a share of the stream

    @property
    def advised(self) -> bool:
        return self.rows_per_chunk >= LEAST_RUN and self.skipped > LEAST_GAIN


@dataclass(frozen=True, slots=True)
class DesignOutlook:
    """The mean share skipped after sealing with these headers indexed."""

    indexed: tuple[str, ...]
    skipped: float


@dataclass(frozen=True, slots=True)
class StreamAdvice:
    """The best design, and the measurements and trials that it is based on."""

    path: str
    stats: StreamStats  # of the sampled segments
    sampled: int
    segments: int
    current: StreamOptions
    indexed: tuple[str, ...]
    filter_size: int
    outlooks: tuple[Outlook, ...]
    tried: tuple[DesignOutlook, ...]
    sizes: tuple[SizeOutlook, ...]
    restrictions: tuple[RestrictionOutlook, ...]
    sealed_space: float  # Bloom filters of sealed segments, as a share of the stream
    hot_space: float  # the index of hot segments, as a share of the stream

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
) -> StreamAdvice:
    """Advise on storage for these filters, or for equality on each of the most frequent headers.

    `sample` is the number of segments to measure; 0 measures all.
    """
    own = [filter_subject(filter, now_us()) for filter in filters]
    options, segments = load_options(Path(path)), segment_ranges(path)
    ranges = sample_ranges(segments, sample or len(segments))
    stats = measure_stream(spark, ranges, on_progress)
    subjects = own or header_subjects(stats, weighing)
    if not stats.messages or not subjects:
        raise StreamError(
            f"no advice is possible on {path}: it holds {stats.messages:,} messages, and no header differs between "
            "them; publish messages first, or give --filter"
        )
    trials = Trials(
        spark, ranges, tuple(subjects), options.chunk_messages, on_progress
    ).count_matches()
    return _advice(trials, str(path), stats, options, len(segments))


def _advice(
    trials: Trials, path: str, stats: StreamStats, current: StreamOptions, segments: int
) -> StreamAdvice:
    now, indexed, sealed, tried = _choose_design(trials)
    hot = trials.try_hot(indexed, _present_sizes(indexed, current), _restrictable(trials, stats))
    filter_size = _smallest_size(hot, trials)
    return StreamAdvice(
        path=path,
        stats=stats,
        sampled=len(trials.ranges),
        segments=segments,
        current=current,
        indexed=indexed,
        filter_size=filter_size,
        outlooks=tuple(_outlooks(trials, now, hot.indexed[filter_size], sealed)),
        tried=tuple(tried),
        sizes=(*_indexed_sizes(trials, hot), *_seed_sizes(hot)),
        restrictions=tuple(_restrictions(hot, stats)),
        sealed_space=sealed.summary_bytes / sealed.size,
        hot_space=hot.indexed[filter_size].summary_bytes / sealed.size,
    )


def _outlooks(trials: Trials, *tallies: Tally) -> Iterator[Outlook]:
    for subject, *shares in zip(trials.subjects, *map(trials.shares, tallies), strict=True):
        yield Outlook(subject.name, subject.matches or 0.0, *shares)


# ---- the design --------------------------------------------------------------------------------------


def _choose_design(trials: Trials) -> tuple[Tally, tuple[str, ...], Tally, list[DesignOutlook]]:
    """Find the headers to index. Also return the tallies as stored and after sealing with them, and all designs tried."""
    candidates = sorted({name for subject in trials.subjects for name in subject.headers})
    best: tuple[str, ...] = ()
    now, unclustered = trials.try_now_and_sealed()
    tallies = {best: unclustered}
    leading = [best]
    for _ in range(MOST_INDEXED):
        designs = _extend(leading, candidates)
        tallies |= zip(designs, trials.try_sealed(designs) if designs else (), strict=True)
        leading = sorted(designs, key=lambda design: -trials.score(tallies[design]))[:BEAM]
        if (
            not leading
            or trials.score(tallies[leading[0]]) < trials.score(tallies[best]) + LEAST_GAIN
        ):
            break
        best = leading[0]
    tried = [DesignOutlook(design, trials.score(tally)) for design, tally in tallies.items()]
    return now, best, tallies[best], tried


def _extend(designs: Sequence[tuple[str, ...]], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Extend each design by one header; the order of headers makes no difference."""
    larger = {tuple(sorted({*design, name})) for design in designs for name in names}
    return sorted(larger - {tuple(sorted(design)) for design in designs})


def _present_sizes(indexed: tuple[str, ...], current: StreamOptions) -> set[int]:
    """The size to try besides the usual: the stream's own if its filters are of the same kind, else RabbitMQ's for filter values."""
    if bool(indexed) == bool(current.indexed):
        return {current.filter_size}
    return set() if indexed else {DEFAULT_SEED_BYTES}


def _smallest_size(hot: HotTrials, trials: Trials) -> int:
    """The smallest filter that is about as good as the best; the default size if none skips anything."""
    best = max(map(trials.score, hot.indexed.values()))
    if best < LEAST_GAIN and DEFAULT_INDEXED_BYTES in hot.indexed:
        return DEFAULT_INDEXED_BYTES
    return min(s for s, tally in hot.indexed.items() if trials.score(tally) > best - LEAST_GAIN)


def _restrictable(trials: Trials, stats: StreamStats) -> list[str]:
    known = stats.headers()
    names = [s.header for s in trials.subjects if s.header is not None]
    return [name for name in names if known[name].distinct.estimate <= MOST_LISTED]


def _indexed_sizes(trials: Trials, hot: HotTrials) -> Iterator[SizeOutlook]:
    for size, tally in sorted(hot.indexed.items()):
        for subject, share in zip(trials.subjects, trials.shares(tally), strict=True):
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
            tally.summary_bytes / max(tally.size, 1),
        )


# ---- the chart ---------------------------------------------------------------------------------------

WIDTH: Final = 860
_LEFT: Final = 250  # where bars and axes begin
_SPAN: Final = 460  # from 0 to 100 %
_LINE: Final = 14
_PANEL: Final = 220  # the height of the lines' panel
STATES: Final = ("now", "hot", "sealed")
_LABELS: Final = {"now": "now", "hot": "advised, before sealing", "sealed": "advised, sealed"}
_STYLE: Final = """\
  :root { color-scheme: light dark }
  text { font: 13px system-ui, sans-serif; fill: #1b2430 } .h { font-weight: 600; font-size: 15px }
  .soft { fill: #5b6878 } .n { font-variant-numeric: tabular-nums; font-size: 12px }
  .now { fill: #b4bec8 } .hot { fill: #8fc1bc } .sealed { fill: #2f7f79 } .axis { stroke: #cfd6dc }
  .line { fill: none; stroke: #2f7f79; stroke-width: 2 } .seed { stroke-dasharray: 5 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e7ebf0 } .soft { fill: #9aa7b6 } .axis { stroke: #39454f }
    .now { fill: #5b6878 } .hot { fill: #2b5f5a } .sealed { fill: #4fb3aa } .line { stroke: #4fb3aa }
  }
"""


def advice_chart(advice: StreamAdvice) -> str:
    """Draw the advice as SVG for a browser: what each subject skips, and what larger filters would gain."""
    bars_end = 74 + len(advice.outlooks) * (3 * _LINE + 12)
    height = bars_end + (_PANEL + 90 if advice.sizes else 10)
    body = [*_bars(advice.outlooks), *(_lines(advice.sizes, bars_end + 40) if advice.sizes else ())]
    title = escape(f"What filters skip on {advice.path}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-labelledby="t">',
            f'<title id="t">{title}</title>',
            f"<style>\n{_STYLE}</style>",
            _text(16, 26, f"What filters skip on {advice.path}", "h"),
            *body,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def shorten(text: str, most: int) -> str:
    """Cut the text to `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _bars(outlooks: Sequence[Outlook]) -> Iterator[str]:
    for at, state in enumerate(STATES):
        x = _LEFT + at * 180
        yield f'<rect class="{state}" x="{x}" y="42" width="12" height="12" rx="2"/>'
        yield _text(x + 18, 53, _LABELS[state], "soft")
    top = 70
    for outlook in outlooks:
        yield _text(_LEFT - 12, top + 2 * _LINE - 4, shorten(outlook.subject, 30), "", "end")
        for line, state in enumerate(STATES):
            share, y = float(getattr(outlook, state)), top + line * _LINE
            width = max(share * _SPAN, 1)
            yield f'<rect class="{state}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_LINE - 3}" rx="2"/>'
            yield _text(_LEFT + width + 6, y + _LINE - 4, f"{share:.1%}", "n soft")
        top += 3 * _LINE + 12


def _lines(sizes: Sequence[SizeOutlook], top: int) -> Iterator[str]:
    yield _text(16, top, "Before sealing, by the size of a chunk's filter", "h")
    yield _text(_LEFT, top + 20, "bytes; dashed: the header as filter value", "soft")
    bottom = top + 30 + _PANEL
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * _PANEL
        yield f'<path class="axis" d="M{_LEFT} {y:.0f}h{_SPAN}"/>'
        yield _text(_LEFT - 12, y + 4, f"{share:.0%}", "n soft", "end")
    for size in sorted({outlook.nbytes for outlook in sizes}):
        yield _text(_place(size), bottom + 20, str(size), "n soft", "middle")
    for outlooks in _by_line(sizes):
        yield from _line(outlooks, bottom)


def _by_line(sizes: Sequence[SizeOutlook]) -> Iterator[list[SizeOutlook]]:
    ordered = sorted(sizes, key=lambda o: (o.mode, o.subject, o.nbytes))
    for _, outlooks in groupby(ordered, key=lambda o: (o.mode, o.subject)):
        yield list(outlooks)


def _line(outlooks: Sequence[SizeOutlook], bottom: float) -> Iterator[str]:
    points = [(_place(o.nbytes), bottom - o.skipped * _PANEL) for o in outlooks]
    kind = "line seed" if outlooks[0].mode == "filter value" else "line"
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    title = escape(f"{outlooks[0].subject}: {outlooks[-1].skipped:.1%}")
    yield f'<polyline class="{kind}" points="{path}"><title>{title}</title></polyline>'
    if outlooks[-1].skipped > 0.02:
        x, y = points[-1]
        yield _text(x + 6, y + 4, shorten(outlooks[0].subject, 18), "n soft")


def _place(nbytes: int) -> float:
    """The position of a size on a logarithmic axis: 16 bytes left, 4096 right."""
    return _LEFT + (log2(nbytes) - 4) / 8 * _SPAN

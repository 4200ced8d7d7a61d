"""The figures in the README, and the table they are written into."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from figures import TIMES, Figure, measure, number
from reports import ORDER, Report, Run

BEGIN = "<!-- benchmarks: written by `make bench` -->"
END = "<!-- end of benchmarks -->"
FASTEST = "*"  # the best of all peers


class Headline(NamedTuple):
    """A figure, the peer it is compared with, and its text in the table."""

    group: str
    name: str
    against: str
    text: str


def _of(group: str, *rows: tuple[str, str, str]) -> tuple[Headline, ...]:
    return tuple(Headline(group, *row) for row in rows)


HEADLINES = (
    *_of(
        "filters",
        ("closure", "", "filter of four terms, message by message"),
        ("mask 65,536, new dictionaries", FASTEST, "filter of four terms, Arrow batches of 65,536 rows"),
        ("mask 4,096, new dictionaries", FASTEST, "filter of four terms, Arrow batches of 4,096 rows"),
    ),
    *_of(
        "streams",
        ("publish, one by one", "JSON lines", "publish, message by message"),
        ("Arrow tables appended", "", "append Arrow tables"),
        ("bytes a message, sealed", "JSON lines", "a message on disk: 100 bytes of payload, 3 headers"),
        ("exact, no message matches", FASTEST, "filter where no summary helps"),
        ("hot, everything matches / no filter", "", "scan with a filter that matches everything, time relative to no filter"),
        ("sealed, one value: bytes read, mean", "", "bytes read for one of 1,000 values (1)"),
        ("published shape, answered in", "", "10 needles in 10 million messages (2)"),
        ("publish to wake, p50", "", "publish until a consumer in another process wakes, p50"),
        ("scan, most anonymous memory", "", "memory of a scan over 5 GB"),
    ),
    *_of(
        "routing",
        ("headers, 10,000 bindings", FASTEST, "route by headers, 10,000 bindings"),
        ("headers, 1,000,000 bindings", FASTEST, "route by headers, 1,000,000 bindings"),
        ("filter, 100,000 expressions", FASTEST, "route by 100,000 filters"),
        ("topic, 1,000,000 patterns, uncached", FASTEST, "route new topics, 1,000,000 patterns"),
        ("batch, 100,000 bindings", FASTEST, "route Arrow batches by headers, 100,000 bindings"),
    ),
    *_of(
        "queues",
        ("sqlite, put 100 at a time", FASTEST, "SQLite: publish 100 at a time"),
        ("sqlite, take and finish 100 at a time", FASTEST, "SQLite: claim and ack 100 at a time"),
        ("sqlite, put one at a time", FASTEST, "SQLite: publish one by one"),
        ("sqlite, take and finish one at a time", FASTEST, "SQLite: claim and ack one by one"),
        ("sqlite, claim of 1 % / no filter", "", "SQLite: claim with a filter for 1 %, time relative to no filter"),
        ("postgres, put 100 at a time", FASTEST, "PostgreSQL: publish 100 at a time"),
        ("postgres, take and finish 100 at a time", FASTEST, "PostgreSQL: claim and ack 100 at a time"),
        ("postgres, put one at a time", FASTEST, "PostgreSQL: publish one by one"),
        ("postgres, take and finish one at a time", FASTEST, "PostgreSQL: claim and ack one by one"),
        ("postgres, claim of 1 % / no filter", "", "PostgreSQL: claim with a filter for 1 %, time relative to no filter"),
        ("postgres, commit to handler, p50", "", "PostgreSQL: commit until a handler is called, p50"),
    ),
    *_of(
        "spark",
        ("1 % matches: our filter", "Parquet, pushdown and Bloom filters", "Spark: read 1 %"),
        ("1 % matches: our filter", "Spark's filter on our source", "Spark: read 1 %"),
        ("1 in 1,000 matches: our filter", FASTEST, "Spark: read one of 1,000 values"),
        ("routed, into a sink that keeps nothing", "", "Spark: route by 1,000 bindings"),
        ("routed, into 100 streams", FASTEST, "Spark: route into 100 streams"),
        ("from sent to seen in the other stream, p50", "", "Spark: stream to stream, delay, p50"),
        ("routed, 30,000,000 messages", "", "Spark: route 30 million messages"),
    ),
)  # fmt: skip

NOTES = """\
(1) RabbitMQ 4.0.5 delivered 99.8 % of the messages for such a value, in a separate measurement.
(2) RabbitMQ's published figures, from another machine: 2.05 s with its Bloom filter and SQL, 24.7 s with SQL alone.

Each figure is compared with the fastest alternative, in the same run on the same data; more than 1 × means that Headgate is
better. Rates of filters, streams and routing are per second of CPU time on one core, those of queues and Spark per second of
wall time. Publishes and acks are synced to disk; a claim's lease is not: losing it only repeats a delivery."""


def write_table(report: Report, document: Path) -> None:
    """Replace the table between its two markers."""
    before, after = parts_of(document)
    document.write_text(f"{before}{BEGIN}\n{section(report)}\n{END}{after}")


def parts_of(document: Path) -> tuple[str, str]:
    """The text before and after the table."""
    before, begin, rest = document.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{document} has no lines {BEGIN} and {END}; put them around its place")
    return before, after


def section(report: Report) -> str:
    """The table, with the date, the machine and the method."""
    return f"{circumstances(report.runs)}\n\n{table(report.figures)}\n\n{NOTES}"


def table(figures: Sequence[Figure]) -> str:
    head = (
        "| | measured | target | alternative | its figure | ratio |",
        "|---|--:|--:|---|--:|--:|",
    )
    return "\n".join([*head, *(_row(*row) for row in select_figures(figures))])


def select_figures(figures: Sequence[Figure]) -> Iterator[tuple[str, Figure, Figure | None]]:
    """The text of each headline, our figure, and its comparison with a peer if one was measured."""
    for group, name, against, text in HEADLINES:
        found = [figure for figure in figures if figure.key[:2] == (group, name)]
        peers = [f for f in found if f.against and against in (FASTEST, f.against)]
        closest = min(peers, key=lambda figure: figure.ratio or 0, default=None)
        if found:
            yield text, found[0], closest


def without_figure(figures: Sequence[Figure]) -> list[str]:
    """Headlines without a measured figure."""
    known = {figure.key[:2] for figure in figures}
    return [line.text for line in HEADLINES if (line.group, line.name) not in known]


def _row(text: str, ours: Figure, beside: Figure | None) -> str:
    """One row; targets of the number and of the ratio are both shown."""
    targets = [_judged(ours)] if ours.target else []
    if beside and beside.target:
        targets.append(f"ratio {_judged(beside)}")
    target = "; ".join(targets)
    measured = measure(ours.value, ours.unit)
    if beside is None or beside.ratio is None:
        return f"| {text} | {measured} | {target} | | | |"
    theirs, ratio = measure(beside.theirs, beside.unit), number(beside.ratio, TIMES)
    return f"| {text} | {measured} | {target} | {beside.against} | {theirs} | {ratio} × |"


def _judged(figure: Figure) -> str:
    return figure.target + (", **missed**" if figure.met is False else "")


def circumstances(runs: dict[str, Run]) -> str:
    """The date, the machine, and which groups are missing or incomplete."""
    dates = sorted({run.date.partition(" ")[0] for run in runs.values()})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    versions = {name: found for run in runs.values() for name, found in run.versions.items()}
    named = [f"{name} {versions[name]}" for name in ("pyarrow", "pyspark") if name in versions]
    with_ = ", ".join([f"Python {_each(run.python for run in runs.values())}", *named])
    commits = _each(run.commit for run in runs.values())
    parts = " (parts were measured separately)" if ";" in commits else ""
    text = (
        f"Measured {when} at {commits}{parts} on "
        f"{_each(run.machine for run in runs.values())}, with {with_}.{_speed(runs)} `make bench` measures everything and writes this "
        f"table; [all figures](benches/results/latest.json) are in a file.{_reservations(runs)}"
    )
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _speed(runs: dict[str, Run]) -> str:
    loops = [loop for run in runs.values() for loop in run.loop_ms]
    if not loops:
        return ""
    return (
        f" For reference, the speed of the cores: a million turns of an empty Python loop took {min(loops):.0f} to "
        f"{max(loops):.0f} ms of CPU time during the run."
    )


def _each(found: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(found))


def _reservations(runs: dict[str, Run]) -> str:
    quick = [group for group, run in runs.items() if run.quick]
    partial = [group for group, run in runs.items() if not run.finished]
    absent = [group for group in ORDER if group not in runs]
    said = {
        "From a quick run, with less data than the targets assume": quick,
        "Not finished": partial,
        "Not measured": absent,
    }
    return "".join(f" **{what}: {', '.join(groups)}.**" for what, groups in said.items() if groups)

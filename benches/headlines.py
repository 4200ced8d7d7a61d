"""The figures in the README and in docs/reference/benchmarks.md, and the tables they are written into."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from figures import TIMES, Figure, measure, number, result_of
from reasons import REASONS, UNKNOWN
from reports import ORDER, Report, Run, title, verdict

ALL = "<!-- benchmarks: written by `make bench` -->"
FEW = "<!-- headline figures: written by `make bench` -->"
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
        ("sealed, one value: bytes read, mean", "", "sealed stream: bytes read for one of 1,000 values (1)"),
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
        ("sqlite, a consumer, synchronous=FULL", FASTEST, "SQLite: a consumer that handles one message after the other"),
        ("sqlite, claim of 1 % / no filter", "", "SQLite: claim with a filter for 1 %, time relative to no filter"),
        ("postgres, put 100 at a time", FASTEST, "PostgreSQL: publish 100 at a time"),
        ("postgres, take and finish 100 at a time", FASTEST, "PostgreSQL: claim and ack 100 at a time"),
        ("postgres, put one at a time", FASTEST, "PostgreSQL: publish one by one"),
        ("postgres, take and finish one at a time", FASTEST, "PostgreSQL: claim and ack one by one"),
        ("postgres, claim of 1 % / no filter", "", "PostgreSQL: claim with a filter for 1 %, time relative to no filter"),
        ("postgres, commit to handler, p50", "", "PostgreSQL: commit until a handler is called, p50"),
    ),
    *_of(
        "broker",
        ("transient, publish, confirm, consume and ack at once", FASTEST, "broker: publish, confirm, consume and ack at once, transient messages"),
        ("durable, publish, confirm, consume and ack at once", FASTEST, "broker: publish, confirm, consume and ack at once, durable messages"),
        ("headers exchange, 1,000 bindings", FASTEST, "broker: publish through a headers exchange of 1,000 bindings"),
        ("transient, alone, p50", FASTEST, "broker: from publish to delivery, p50"),
        ("transient, beside a flood, p99", FASTEST, "broker: from publish to delivery, beside a flood, p99"),
        ("memory of a queued message of 245 bytes", "", "broker: memory of a queued message of 245 bytes"),
        ("start-up with 1,000,000 durable messages", "", "broker: start-up with 1,000,000 durable messages"),
    ),
    *_of(
        "spark",
        ("1 % matches: our filter", "Parquet, pushdown and Bloom filters", "Spark: read the 1 % of a stream that match"),
        ("1 % matches: our filter", "Spark's filter on our source", "Spark: read 1 %, the filter in our source"),
        ("1 in 1,000 matches: our filter", FASTEST, "Spark: read one of 1,000 values"),
        ("routed, into a sink that keeps nothing", "", "Spark: route by 1,000 bindings"),
        ("routed, into 100 streams", FASTEST, "Spark: route into 100 streams"),
        ("from sent to seen in the other stream, p50", "", "Spark: stream to stream, delay, p50"),
        ("routed, 30,000,000 messages", "", "Spark: route 30 million messages"),
    ),
)  # fmt: skip

# The rows of the README, by their text: each beside a program that one would use instead, or with a target of its own.
IN_README = (
    "broker: publish, confirm, consume and ack at once, durable messages",
    "broker: publish through a headers exchange of 1,000 bindings",
    "broker: from publish to delivery, p50",
    "PostgreSQL: claim and ack 100 at a time",
    "SQLite: a consumer that handles one message after the other",
    "SQLite: claim and ack one by one",
    "sealed stream: bytes read for one of 1,000 values (1)",
    "Spark: read the 1 % of a stream that match",
)
NAIVE = "a scan over"  # alternatives that begin so are loops of ours: the README leaves them out

NOTES = """\
(1) RabbitMQ 4.0.5 delivered 99.8 % of the messages for such a value, in a separate measurement.
(2) RabbitMQ's published figures, from another machine: 2.05 s with its Bloom filter and SQL, 24.7 s with SQL alone.

Each figure is compared with the fastest alternative, in the same run on the same data; a ratio of more than 1 × means that Headgate
is better. A target is what the project asks of itself. A scan over bindings, patterns or closures is a plain loop in Python, as is
"one by one": such a ratio shows what an index saves, and compares no other program. huey, litequeue and persist-queue take messages
one at a time, also in rows that say 100 at a time. RabbitMQ is Debian's, with its default settings, and was sent a third of the
messages or fewer. Rates of filters, streams and routing are per second of CPU time on one core, those of queues, the broker and
Spark per second of wall time. Publishes and acks are synced to disk; a claim's lease is not: losing it only repeats a delivery."""

NOTES_IN_README = """\
(1) RabbitMQ 4.0.5 delivered 99.8 % of the messages for such a value, in a separate measurement.

Rates are messages per second. Each alternative is the fastest of those measured, in the same run on the same data, RabbitMQ with
its default settings; a ratio of more than 1 × means that Headgate is better. A target is what the project asks of itself. The
machine, the method and [all figures](docs/reference/benchmarks.md) are on a page of their own."""


def write_tables(report: Report, document: Path) -> None:
    """Replace the table between its two markers: all figures or the few of the README, as the first marker says."""
    before, marker, after = parts_of(document)
    text = section(report) if marker == ALL else readme_section(report)
    document.write_text(f"{before}{marker}\n{text}\n{END}{after}")


def parts_of(document: Path) -> tuple[str, str, str]:
    """The text before the table, its first marker, and the text behind the table."""
    text = document.read_text()
    for marker in (ALL, FEW):
        before, begin, rest = text.partition(marker)
        _, end, after = rest.partition(END)
        if begin and end:
            return before, marker, after
    raise ValueError(
        f"{document} has neither {ALL} nor {FEW} with {END} behind it; put them around the table's place"
    )


def section(report: Report) -> str:
    """All figures, with the date, the machine and the method."""
    rows, missed = table(select_figures(report.figures)), missed_targets(report.figures)
    return f"{circumstances(report.runs)}\n\n{rows}\n\n{NOTES}\n\n{missed}"


def missed_targets(figures: Sequence[Figure]) -> str:
    """How many targets were missed; then each with its reason."""
    said = f"{verdict(figures).partition(':')[0]}."
    rows = [
        f"| {figure.group}: {title(figure)} | {result_of(figure)} | {figure.target} | {reason_of(figure)} |"
        for figure in figures
        if figure.met is False
    ]
    head = ("| missed target | Headgate | target | reason |", "|---|--:|--:|---|")
    return "\n".join([said, "", *head, *rows]) if rows else said


def reason_of(figure: Figure) -> str:
    return REASONS.get(figure.key, UNKNOWN)


def unexplained(figures: Sequence[Figure]) -> list[str]:
    """Missed targets without a reason."""
    return [title(f) for f in figures if f.met is False and f.key not in REASONS]


def readme_section(report: Report) -> str:
    """The figures of the README, in its order, with no alternative that is a naive scan."""
    found = {text: (ours, beside) for text, ours, beside in select_figures(report.figures)}
    rows = [(text, *found[text]) for text in IN_README if text in found]
    shown = table((text, ours, _no_scan(beside)) for text, ours, beside in rows)
    note, method = NOTES_IN_README.split("\n\n")
    missed = verdict(report.figures).partition(":")[0]
    return f"{shown}\n\n{note}\n\n{_filled(f'{method} {missed}.')}"


def _no_scan(beside: Figure | None) -> Figure | None:
    return None if beside is None or beside.against.startswith(NAIVE) else beside


def table(rows: Iterable[tuple[str, Figure, Figure | None]]) -> str:
    head = (
        "| | Headgate | alternative | its figure | ratio | target |",
        "|---|--:|---|--:|--:|--:|",
    )
    return "\n".join([*head, *(_row(*row) for row in rows)])


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
        return f"| {text} | {measured} | | | | {target} |"
    theirs, ratio = measure(beside.theirs, beside.unit), number(beside.ratio, TIMES)
    return f"| {text} | {measured} | {beside.against} | {theirs} | {ratio} × | {target} |"


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
        f"table; [a file](../../benches/results/latest.json) has every figure, of these and of others.{_reservations(runs)}"
    )
    return _filled(text)


def _filled(text: str) -> str:
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

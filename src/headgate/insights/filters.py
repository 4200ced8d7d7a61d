"""How a filter is understood: which layer answers which term and, on a stream, what that saves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.clock import now_us
from headgate.filters import Explanation, depends_on_time, explain, parse
from headgate.insights.fields import queue_fields, stream_fields, warn_of_fields
from headgate.streams import Stream
from headgate.streams.read import Measurement, measure

if TYPE_CHECKING:
    from headgate.queues import Queue


@dataclass(frozen=True, slots=True)
class FilterFacts:
    """A filter explained for every engine and, when a stream was named, measured on it."""

    plan: Explanation
    spark: str  # the filter as a Spark expression
    warnings: tuple[str, ...]
    measured: Measurement | None = None


def explain_filter(
    text: str, stream: Path | None = None, *, queue: Queue | None = None
) -> FilterFacts:
    """Explain a filter term by term; with a stream, measure what its chunk summaries decide.

    With a stream or queue, warn of names and kinds that its messages do not have.
    """
    from headgate.spark import to_expression_text

    tree = parse(text)
    now = now_us() if depends_on_time(tree) else 0
    plan, spark = explain(tree, now_us=now), to_expression_text(tree, now_us=now)
    warnings = list(plan.warnings)
    if queue is not None:
        warnings += warn_of_fields(tree, queue_fields(queue))
    if stream is None:
        return FilterFacts(plan, spark, tuple(warnings))
    with Stream.open(stream) as opened:
        warnings += warn_of_fields(tree, stream_fields(stream, tree))
        return FilterFacts(plan, spark, tuple(warnings), measure(opened, tree))

"""How a filter is understood: which layer answers which term and, on a stream, what that saves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headgate.clock import now_us
from headgate.filters import Explanation, depends_on_time, explain, parse
from headgate.streams import Stream
from headgate.streams.read import Measurement, measure


@dataclass(frozen=True, slots=True)
class FilterFacts:
    """A filter explained for every engine and, when a stream was named, measured on it."""

    plan: Explanation
    spark: str  # the filter as a Spark expression
    measured: Measurement | None = None


def explain_filter(text: str, stream: Path | None = None) -> FilterFacts:
    """Explain a filter term by term; with a stream, measure what its chunk summaries decide."""
    from headgate.spark import to_expression_text

    tree = parse(text)
    now = now_us() if depends_on_time(tree) else 0
    plan, spark = explain(tree, now_us=now), to_expression_text(tree, now_us=now)
    if stream is None:
        return FilterFacts(plan, spark)
    with Stream.open(stream) as opened:
        return FilterFacts(plan, spark, measure(opened, tree))

"""Facts about pipelines: whether one can run, and what a running one has done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from headgate.filters import as_filter, header, to_text
from headgate.insights.fields import warn_of_filter
from headgate.pipelines import Account, Batch, Pipeline, StreamSource

_SHORTEST_S = 1e-3  # no rate divides by less
_MOST_COMPARED = 100  # conditions of bindings that are compared with the stream


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """The last micro-batch of a run."""

    number: int
    seconds: float
    messages_per_second: float


@dataclass(frozen=True, slots=True)
class PipelineFacts:
    """What a pipeline has done since it was started."""

    pipeline: str
    seconds: float
    batches: int
    scanned: int  # messages of the source, those its filter left out included
    messages_per_second: float
    passed: int  # messages that passed the filter of the source
    routed: int
    unroutable: int
    malformed: int
    lag: int | None  # messages yet to be read, where the source counts them
    chunks_skipped: int
    bytes_skipped: int
    bytes_total: int
    queues: tuple[tuple[str, int], ...]  # messages by queue, most first
    last: BatchFacts | None


@dataclass(frozen=True, slots=True)
class PipelineCheck:
    """The size of a pipeline that can run, and what its author should know."""

    bindings: int
    places: int
    notes: tuple[str, ...]


def check_pipeline(pipeline: Pipeline) -> PipelineCheck:
    """Raise everything that would keep a pipeline from running. Spark is not started, nothing is written."""
    from headgate.spark.pipeline import check, notes_on

    check(pipeline)
    notes = (*notes_on(pipeline), *_warn_of_source(pipeline))
    return PipelineCheck(len(pipeline.topology), len(pipeline.places()), notes)


def _warn_of_source(pipeline: Pipeline) -> list[str]:
    """Warn of filters and bindings that the messages of the source's stream can hardly match."""
    source, reading = pipeline.source, pipeline.reading
    if not isinstance(source, StreamSource) or len(source.streams) != 1:
        return []
    if reading.payload is not None or reading.steps:  # headers are made after the scan
        return []
    asked = dict.fromkeys(
        [source.filter or "", *islice(_asked_by_bindings(pipeline), _MOST_COMPARED)]
    )
    stream = Path(source.streams[0])
    return [warning for text in asked for warning in warn_of_filter(text, stream=stream)]


def _asked_by_bindings(pipeline: Pipeline) -> Iterator[str]:
    for binding in pipeline.topology.bindings():
        for name in binding.arguments:
            if not name.startswith("x-"):
                yield to_text(as_filter(header(name).exists()))
        yield binding.filter_text or ""


def pipeline_facts(account: Account, seconds: float) -> PipelineFacts:
    """Add up what a run has done in `seconds`."""
    counted = account.counters
    return PipelineFacts(
        pipeline=account.pipeline,
        seconds=seconds,
        batches=account.batches,
        scanned=account.counters.scanned,
        messages_per_second=account.counters.scanned / max(seconds, _SHORTEST_S),
        passed=counted.read,
        routed=counted.routed,
        unroutable=counted.unroutable,
        malformed=counted.malformed,
        lag=account.lag,
        chunks_skipped=counted.chunks_skipped,
        bytes_skipped=max(counted.bytes_total - counted.bytes_read, 0),
        bytes_total=counted.bytes_total,
        queues=tuple(sorted(counted.queues.items(), key=lambda queue: (-queue[1], queue[0]))),
        last=None if account.last is None else _batch_facts(account.last),
    )


def _batch_facts(batch: Batch) -> BatchFacts:
    messages = batch.counters.scanned or batch.counters.read
    return BatchFacts(batch.number, batch.seconds, messages / max(batch.seconds, _SHORTEST_S))

"""A pipeline's account for Prometheus: as text, as a file for a textfile collector, or served over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from headgate.metrics import scan_metrics, serve_collector
from headgate.pipelines import Account, as_scan_stats

_PREFIX: Final = "headgate_pipeline_"
_COUNTERS: Final = {
    "read": "Messages that passed the source's filter, and without a dead letter the conditions of the bindings.",
    "routed": "Messages that at least one queue got.",
    "unroutable": "Messages that were read and that no queue got.",
    "malformed": "Records of the source that are no messages.",
    "chunks_skipped": "Chunks of streams that were skipped without opening them.",
    "chunks_opened": "Chunks of streams that were opened.",
    "bytes_read": "Bytes of the chunks, or pages of them, that were read.",
    "bytes_total": "Bytes of all chunks, opened or skipped.",
}


class AccountCollector(Collector):
    """Reads the metrics of a pipeline from its account, whenever Prometheus collects them."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def collect(self) -> Iterator[Metric]:
        account, own = self._account, [self._account.pipeline]
        for name, text in _COUNTERS.items():
            yield _counter(name, text, account, getattr(account.counters, name))
        yield from scan_metrics(as_scan_stats(account.counters))
        queues = CounterMetricFamily(
            f"{_PREFIX}queue_messages",
            "Messages that each queue got.",
            labels=["pipeline", "queue"],
        )
        for queue, count in sorted(account.counters.queues.items()):
            queues.add_metric([*own, queue], count)
        yield queues
        yield _counter("batches", "Committed batches.", account, account.batches)
        if account.lag is not None:
            yield _gauge("lag_messages", "Messages that are not read yet.", account, account.lag)
        if account.last is not None:
            seconds = account.last.seconds
            yield _gauge("batch_seconds", "Duration of the last batch.", account, seconds)


def _counter(name: str, text: str, account: Account, value: int) -> Metric:
    family = CounterMetricFamily(_PREFIX + name.removesuffix("_total"), text, labels=["pipeline"])
    family.add_metric([account.pipeline], value)
    return family


def _gauge(name: str, text: str, account: Account, value: float) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, text, labels=["pipeline"])
    family.add_metric([account.pipeline], value)
    return family


def metrics_text(account: Account) -> str:
    """The account in the text format of Prometheus."""
    return generate_latest(_registry(account)).decode()


def write_metrics(account: Account, file: Path) -> None:
    """Replace the file that a textfile collector reads, in one step."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.write_text(metrics_text(account))
    os.replace(new, file)


def serve_metrics(
    account: Account, port: int, host: str = "127.0.0.1"
) -> AbstractContextManager[int]:
    """Serve /metrics on that address (port 0: a free one) while the block runs, and yield the port."""
    return serve_collector(AccountCollector(account), host, port)


def _registry(account: Account) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(AccountCollector(account))
    return registry

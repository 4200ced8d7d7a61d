"""A worker's account and the depth of its queues as Prometheus metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from headgate.errors import HeadgateError
from headgate.metrics import queue_metrics, serve_collector
from headgate.queues import connect
from headgate.worker.account import BUCKETS, WorkAccount, WorkCounts
from headgate.worker.options import WorkerOptions

_log = logging.getLogger(__name__)

_BOUNDS: Final = (*map(str, BUCKETS), "+Inf")


def serve_worker_metrics(
    options: WorkerOptions, account: WorkAccount, host: str, port: int
) -> AbstractContextManager[int]:
    """Serve /metrics while the block runs; yield the port."""
    return serve_collector(WorkCollector(options, account), host, port)


class WorkCollector(Collector):
    """Reads the metrics from the account and from the database, whenever Prometheus collects them."""

    def __init__(self, options: WorkerOptions, account: WorkAccount) -> None:
        self._options, self._account = options, account

    def describe(self) -> list[Metric]:
        return []  # without this, the registry would collect it at registration

    def collect(self) -> Iterator[Metric]:
        counts = self._account.counts()
        yield _messages(counts)
        yield _durations(counts)
        processes, replaced = self._account.processes, self._account.replaced
        yield GaugeMetricFamily("headgate_worker_processes", "Running processes.", value=processes)
        yield CounterMetricFamily(
            "headgate_worker_replaced",
            "Processes that hung or died and were replaced.",
            value=replaced,
        )
        try:
            yield from self._depths()
        except HeadgateError as problem:  # the metrics of the account do not need the database
            _log.warning("metrics without the depth of queues: %s", problem)

    def _depths(self) -> list[Metric]:
        with connect(self._options.database, access="look") as database:
            found = [database.find(name).stats() for name in self._options.queues]
        return list(queue_metrics(found))


def _messages(counts: WorkCounts) -> Metric:
    family = CounterMetricFamily(
        "headgate_worker_messages",
        "Calls of the handler by outcome: done, failed, timeout.",
        labels=["queue", "outcome"],
    )
    for (queue, outcome), count in sorted(counts.messages.items()):
        family.add_metric([queue, outcome], count)
    return family


def _durations(counts: WorkCounts) -> Metric:
    family = HistogramMetricFamily(
        "headgate_worker_handler_seconds", "How long calls of the handler took.", labels=["queue"]
    )
    for queue, seconds in sorted(counts.seconds.items()):
        sums = accumulate(counts.buckets[queue, at] for at in range(len(_BOUNDS)))
        family.add_metric([queue], list(zip(_BOUNDS, sums, strict=True)), seconds)
    return family

"""Prometheus metrics of this process, and how they are served, for applications, workers and pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from threading import Thread
from typing import Final

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.errors import CannotListen, HeadgateError
from headgate.queues import QueueStats
from headgate.streams.read import SCAN_TOTALS, ScanStats
from headgate.tally import QUEUES, STREAMS

# The name of a metric, the count of consumers that it shows, its help, and the factor to its unit.
_CLAIMS: Final = (
    ("claims", "claims", "Claims of consumers.", 1.0),
    ("empty_claims", "empty_claims", "Claims that found nothing.", 1.0),
    ("claimed_messages", "rows", "Messages claimed.", 1.0),
    ("unmatched_claims", "unmatched", "Messages that were claimed and that no filter accepted.", 1.0),
    ("claim_seconds", "claim_us", "Time spent in claims, with their filters.", 1e-6),
)  # fmt: skip
_REPORTED: Final = (
    ("claims", "claims", "Claims of consumers.", 1.0),
    ("empty_claims", "empty_claims", "Claims that found nothing.", 1.0),
    ("rows", "rows", "Messages claimed.", 1.0),
    ("unmatched", "unmatched", "Messages that were claimed and that no filter accepted.", 1.0),
    ("claim_seconds", "claim_us", "Time spent in claims, in seconds.", 1e-6),
)


class ProcessCollector(Collector):
    """What streams and queues of this process do, for the registry of an application that embeds Headgate.

    from prometheus_client import REGISTRY
    REGISTRY.register(ProcessCollector())
    """

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        return process_metrics()


def process_metrics() -> Iterator[Metric]:
    """Yield what scans, claims and waits of this process have done, as metrics."""
    yield from scan_metrics(SCAN_TOTALS.read())
    for name, counted, text, unit in _CLAIMS:
        value = QUEUES.read(counted) * unit
        yield CounterMetricFamily(f"headgate_{name}", text, value=value)
    woken = CounterMetricFamily("headgate_wake_ups", "How often consumers that waited were woken, or looked again.", labels=["kind"])  # fmt: skip
    for kind, tally in (("queue", QUEUES), ("stream", STREAMS)):
        woken.add_metric([kind], tally.read("wake_ups"))
    yield woken


def scan_metrics(done: ScanStats) -> Iterator[Metric]:
    """Yield what scans of streams did with chunks, as metrics."""
    chunks = CounterMetricFamily(
        "headgate_stream_chunks", "Chunks of scans by verdict.", labels=["verdict"]
    )
    for verdict, count in (("skipped", done.chunks_none), ("passed", done.chunks_all), ("scanned", done.chunks_some)):  # fmt: skip
        chunks.add_metric([verdict], count)
    yield chunks
    for name, text, value in (
        ("headgate_stream_bytes_read", "Bytes of chunks that scans read.", done.bytes_read),
        ("headgate_stream_bytes_not_read", "Bytes of chunks that filters spared.", max(done.bytes_total - done.bytes_read, 0)),
        ("headgate_stream_false_positives", "Chunks that had to be scanned and held no match.", done.chunks_missed),
        ("headgate_stream_rows_masked", "Messages that masks were computed for.", done.rows_examined),
        ("headgate_stream_rows_matched", "Messages that scans returned.", done.rows_matched),
        ("headgate_stream_messages_lost", "Messages that could not be read.", done.messages_lost),
    ):  # fmt: skip
        yield CounterMetricFamily(name, text, value=value)


def parse_address(text: str) -> tuple[str, int]:
    """Parse `9464` or `0.0.0.0:9464`; return the host, by default this machine alone, and the port."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise HeadgateError(f"an address of metrics is a port or host:port, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def queue_metrics(found: Sequence[QueueStats]) -> Iterator[Metric]:
    """Yield the depth of queues on SQL, and what their consumers in all processes reported, as metrics."""
    depth = GaugeMetricFamily("headgate_queue_messages", "Messages in a queue.", labels=["queue", "state"])  # fmt: skip
    age = GaugeMetricFamily("headgate_queue_oldest_ready_seconds", "Age of the oldest message that is ready; 0 if none is.", labels=["queue"])  # fmt: skip
    for each in found:
        for state in ("ready", "delayed", "leased", "dead"):
            depth.add_metric([each.info.name, state], getattr(each, state))
        age.add_metric([each.info.name], (each.oldest_ready_us or 0) / 1e6)
    yield from (depth, age)
    for name, counted, text, unit in _REPORTED:
        family = CounterMetricFamily(f"headgate_queue_{name}", text, labels=["queue", "consumer"])
        for each in found:
            for consumer, usage in each.usage.items():
                family.add_metric([each.info.name, consumer], getattr(usage, counted) * unit)
        yield family


@contextmanager
def serve_collector(collector: Collector, host: str, port: int) -> Iterator[int]:
    """Serve /metrics on that address (port 0: a free one) while the block runs; yield the port."""

    class _Handler(MetricsHandler):
        registry = CollectorRegistry()

        def do_GET(self) -> None:
            if self.path.partition("?")[0] == "/metrics":
                super().do_GET()
            else:
                self.send_error(404, "see /metrics")

    _Handler.registry.register(collector)
    try:
        server = ThreadingHTTPServer((host, port), _Handler)
    except OSError as problem:
        advice = "give another address for the metrics"
        raise CannotListen.because(problem, host, port, advice) from problem
    thread = Thread(target=server.serve_forever, name="headgate-metrics", daemon=True)
    with server:
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()

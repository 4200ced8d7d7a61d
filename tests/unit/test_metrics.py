"""The metrics of a process that embeds Headgate."""

from datetime import timedelta
from threading import Event

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import headgate
from headgate.metrics import ProcessCollector
from headgate.pipelines import Counters, as_scan_stats
from headgate.streams import Stream
from headgate.streams.read import ScanStats


@pytest.fixture
def registry():
    """The registry of an application."""
    registry = CollectorRegistry()
    registry.register(ProcessCollector())
    return registry


def grown(registry, name, act, labels=None):
    """By how much a metric grows with an act."""
    before = registry.get_sample_value(name, labels)
    act()
    return registry.get_sample_value(name, labels) - before


@pytest.mark.parametrize("name", ["headgate_claimed_messages_total", "headgate_claims_total", "headgate_claim_seconds_total"])  # fmt: skip
def test_an_application_counts_its_claims(registry, name):
    def consume():
        handled = Event()
        with headgate.connect("memory://") as database:
            queue = database.queue("counted")
            with queue.consumer(lambda delivery: handled.set(), name="w"):
                queue.publish(b"x")
                assert handled.wait(10)

    assert grown(registry, name, consume) > 0


def test_a_consumer_that_waits_is_counted_when_it_looks_again(registry, tmp_path):
    def wait():
        with Stream.create(tmp_path / "waited") as stream:
            with stream.consume(follow=True, timeout=timedelta(milliseconds=50)) as consumer:
                assert list(consumer) == []

    assert grown(registry, "headgate_wake_ups_total", wait, {"kind": "stream"}) > 0


def test_every_name_that_is_declared_is_exported(registry):
    text = generate_latest(registry).decode()
    for name in (
        'headgate_stream_chunks_total{verdict="skipped"}',
        "headgate_stream_bytes_not_read_total",
        "headgate_stream_false_positives_total",
        "headgate_stream_rows_masked_total",
    ):
        assert f"\n{name} " in text
    assert "# TYPE headgate_wake_ups_total counter" in text


def test_a_pipeline_counts_chunks_as_a_scan_does():
    stats = ScanStats(chunks_none=5, chunks_all=2, chunks_some=3, chunks_missed=1, rows_examined=7)
    counted = Counters()
    counted.add_scanned(stats)
    counted.add_planned(stats)
    found = as_scan_stats(counted)
    assert (found.chunks_none, found.chunks_all, found.chunks_some) == (5, 2, 3)
    assert (found.chunks_missed, found.rows_examined) == (1, 7)

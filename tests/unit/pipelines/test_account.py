"""Spark's reports become an account, and the account becomes metrics."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from headgate.pipelines.account import Account, Counters, batch_of, counters_to_json
from headgate.spark.pipeline.metrics import metrics_text, serve_metrics, write_metrics


def report(number: int, *counted: Counters, **more: object) -> dict[str, object]:
    return {
        "batchId": number,
        "durationMs": {"addBatch": 80, "triggerExecution": 250},
        "sources": [
            {
                "startOffset": {"/a": 100, "/b": 0},
                "endOffset": {"/a": 150, "/b": 20},
                "latestOffset": {"/a": 155, "/b": 20},
            }
        ],
        "observedMetrics": {"headgate": {"counters": [counters_to_json(one) for one in counted]}},
        **more,
    }


def test_a_batch_has_the_sum_of_its_tasks_and_the_lag_of_its_source() -> None:
    counted = (Counters(scanned=70, read=3, queues={"q": 1}), Counters(read=4, unroutable=2))
    batch = batch_of(report(7, *counted))
    assert batch is not None
    assert batch.counters == Counters(scanned=70, read=7, unroutable=2, queues={"q": 1})
    assert (batch.number, batch.seconds, batch.counters.scanned, batch.lag) == (7, 0.25, 70, 5)
    assert json.loads(batch.line())["scanned"] == 70


def test_a_report_over_spark_connect_is_counted_like_any_other() -> None:
    counted = [counters_to_json(Counters(scanned=70, read=3)), counters_to_json(Counters(read=4))]
    fields = [{"name": "counters", "type": {"type": "array", "elementType": "string"}}]
    row = {"values": [counted], "schema": {"type": "struct", "fields": fields}}
    batch = batch_of(report(0, observedMetrics={"headgate": row}))
    assert batch is not None
    assert batch.counters == Counters(scanned=70, read=7)


def test_positions_that_count_no_messages_give_no_lag() -> None:
    foreign = report(0, sources=[{"startOffset": None, "endOffset": {"logOffset": "x"}}])
    batch = batch_of(foreign)
    assert batch is not None
    assert batch.lag is None


def test_the_lag_of_a_queue_is_its_count_of_messages() -> None:
    reached = {"queue": 3, "messages": 20, "turn": 700, "id": 9}
    latest = {"queue": 3, "messages": 32, "turn": 9000, "id": 55}
    batch = batch_of(report(0, sources=[{"endOffset": reached, "latestOffset": latest}]))
    assert batch is not None
    assert batch.lag == 12


def test_an_idle_report_is_no_batch_and_a_batch_counts_once() -> None:
    account = Account("p")
    idle = report(1, durationMs={"latestOffset": 1})
    assert not account.add([idle])
    assert len(account.add([report(1, Counters(read=5))])) == 1
    assert not account.add([report(1, Counters(read=5))])
    assert account.counters.read == 5
    assert not account.misses_batches_before(report(2))
    assert account.misses_batches_before(report(3))


@pytest.fixture
def account() -> Account:
    made = Account('p"1')
    made.add([report(0, Counters(read=9, routed=8, unroutable=1, queues={"eu\\": 8}))])
    return made


def test_metrics_have_help_type_and_escaped_labels(account: Account) -> None:
    lines = metrics_text(account).splitlines()
    assert 'headgate_pipeline_bytes_total{pipeline="p\\"1"} 0.0' in lines
    assert "_total_total" not in metrics_text(account)
    assert 'headgate_pipeline_read_total{pipeline="p\\"1"} 9.0' in lines
    assert 'headgate_pipeline_queue_messages_total{pipeline="p\\"1",queue="eu\\\\"} 8.0' in lines
    assert 'headgate_pipeline_lag_messages{pipeline="p\\"1"} 5.0' in lines
    assert 'headgate_stream_chunks_total{verdict="skipped"} 0.0' in lines
    named = {line.split()[0].split("{")[0] for line in lines if not line.startswith("#")}
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == named


def test_a_metrics_file_is_replaced_and_nothing_else_is_left(
    account: Account, tmp_path: Path
) -> None:
    for _ in range(2):
        write_metrics(account, tmp_path / "headgate.prom")
    assert [path.name for path in tmp_path.iterdir()] == ["headgate.prom"]
    assert (tmp_path / "headgate.prom").read_text() == metrics_text(account)


def test_metrics_are_served_while_the_pipeline_runs(account: Account) -> None:
    with serve_metrics(account, 0) as port:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.read().decode() == metrics_text(account)
        with pytest.raises(HTTPError) as refused:
            urlopen(f"http://127.0.0.1:{port}/other")
        refused.value.close()


def test_the_metrics_server_ends_when_the_pipeline_fails(account: Account) -> None:
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError), serve_metrics(account, 0):
        raise RuntimeError
    assert set(threading.enumerate()) <= before

"""The metrics of a broker, and the dashboard and alerts that ask for them."""

import json
import re
from pathlib import Path

import httpx
import pika
import pytest

from headgate.queues import connect
from headgate.streams import Stream
from headgate.testing import Broker
from headgate.web import Site
from headgate.web.metrics import FAMILIES, encode_metrics, stream_metrics

DEPLOY = Path(__file__).parents[3] / "deploy"
GUEST = ("guest", "guest")
NAME = re.compile(r"\b(?:rabbitmq|headgate)_[a-z0-9_]+\b")


@pytest.fixture(scope="module")
def metered(tmp_path_factory):
    """A broker with a queue, and a database with one."""
    data = tmp_path_factory.mktemp("data")
    database = f"sqlite:///{data}/queue.db"
    with connect(database) as opened:
        queue = opened.queue("work")
        queue.publish(b"x")
        with queue.consumer(lambda delivery: None, name="w"):
            pass
    with Broker(data, database=database) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("orders")
            for _ in range(3):
                channel.basic_publish("", "orders", b"x")
            channel.basic_get("orders", auto_ack=True)
            yield broker


def read(broker, path="/metrics"):
    answer = httpx.get(broker.http_url + path, auth=GUEST)
    assert answer.status_code == 200
    return answer.text


def read_all(broker):
    return read(broker) + read(broker, "/metrics/per-object")


def value(text, series):
    [line] = [line for line in text.splitlines() if line.startswith(f"{series} ")]
    return float(line.rpartition(" ")[2])


def test_sums_have_rabbitmqs_names(metered):
    text = read(metered)
    assert value(text, "rabbitmq_queue_messages_ready") == 2
    assert value(text, 'rabbitmq_global_messages_received_total{protocol="amqp091"}') == 3
    assert value(text, "rabbitmq_queues") == 1
    assert value(text, 'headgate_queue_messages{queue="work",state="ready"}') >= 0
    assert "orders" not in text


def test_objects_have_series_of_their_own(metered):
    text = read(metered, "/metrics/per-object")
    assert value(text, 'rabbitmq_queue_messages_ready{queue="orders",vhost="/"}') == 2


def test_detailed_metrics_have_only_the_families_that_are_named(metered):
    text = read(metered, "/metrics/detailed?family=queue_consumer_count&vhost=/")
    assert 'rabbitmq_detailed_queue_consumers{vhost="/",queue="orders"}' in text or (
        'rabbitmq_detailed_queue_consumers{queue="orders",vhost="/"}' in text
    )
    assert "messages_ready" not in text
    assert "rabbitmq_" not in read(metered, "/metrics/detailed?vhost=/")


def test_metrics_need_a_login(metered):
    answer = httpx.get(f"{metered.http_url}/metrics", headers={"Accept": "text/plain"})
    assert answer.status_code == 401


def test_scans_are_counted_by_verdict(metered, tmp_path):
    def skipped():
        return value(read(metered), 'headgate_stream_chunks_total{verdict="skipped"}')

    with Stream.create(tmp_path / "s", indexed=["n"], chunk_messages=5) as stream:
        with stream.producer() as producer:
            for i in range(50):
                producer.publish(b"x", headers={"n": i // 5})
        before = skipped()
        assert len(list(stream.consume("n = 3"))) == 5
    assert skipped() > before


def test_every_metric_of_the_reference_is_exported(metered, tmp_path_factory):
    data = tmp_path_factory.mktemp("streams")
    stored = encode_metrics(stream_metrics(Site(data))).body.decode()
    exported = set(NAME.findall(stored + read_all(metered)))
    text = (DEPLOY.parent / "docs" / "reference" / "metrics.md").read_text()
    named = {name for name in NAME.findall(text) if not name.endswith("_")}
    assert len(named) > 40
    assert named - exported - set(FAMILIES) == set()


@pytest.mark.parametrize("file", ["grafana-dashboard.json", "alerts.yml"])
def test_the_dashboard_and_the_alerts_ask_only_for_names_that_are_exported(metered, file):
    exported = set(NAME.findall(read_all(metered)))
    text = (DEPLOY / file).read_text()
    if file.endswith("json"):
        panels = json.loads(text)["panels"]
        text = "\n".join(target["expr"] for panel in panels for target in panel["targets"])
        assert len(panels) >= 10
    else:
        text = "\n".join(re.findall(r"expr: (.*)", text))
    asked = set(NAME.findall(text))
    assert asked
    assert asked - exported == set()


def test_the_dashboard_groups_only_by_labels_that_the_series_have(metered):
    labels = {}
    for name, given in re.findall(r"^(\w+)\{(.*)\} ", read_all(metered), re.MULTILINE):
        labels.setdefault(name, set()).update(re.findall(r'(\w+)="', given))
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    grouped = [
        (name, set(by.split(", ")))
        for query in queries
        for by, rest in re.findall(r"by \(([^)]*)\) (.*?)(?= by |$)", query)
        for name in NAME.findall(rest)[:1]
    ]
    assert len(grouped) >= 6
    for name, wanted in grouped:
        assert wanted <= labels[name], name


def test_the_dashboard_shows_wake_ups_and_claims_that_found_nothing():
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
    asked = {name for panel in panels for t in panel["targets"] for name in NAME.findall(t["expr"])}
    assert {"headgate_wake_ups_total", "headgate_queue_empty_claims_total"} <= asked
    places = [tuple(panel["gridPos"].values()) for panel in panels]
    assert len(set(places)) == len({panel["id"] for panel in panels}) == len(panels)

"""Queues on SQL that a broker shows: administrators change them by its API and its pages."""

import re
from datetime import timedelta

import httpx
import pytest

from headgate.insights.queues import QueueRates, QueueSamples
from headgate.queues import connect
from headgate.testing import Broker

GUEST = ("guest", "guest")


@pytest.fixture
def database(tmp_path):
    url = f"sqlite:///{tmp_path}/queue.db"
    with connect(url) as opened:
        orders = opened.queue("new orders", max_attempts=1)
        orders.publish_many([b"1", b"2", b"3"])
        for delivery in orders.claim(2, lease=timedelta(minutes=1)):
            delivery.nack(reason="no stock")
    return url


@pytest.fixture
def api(database):
    with (
        Broker(database=database) as broker,
        httpx.Client(
            base_url=f"{broker.http_url}/api/headgate/sql-queues/new%20orders", auth=GUEST
        ) as api,
    ):
        yield api


@pytest.fixture
def orders(database):
    with connect(database, access="look") as opened:
        yield opened.find("new orders")


def test_dead_letters_are_ready_again_those_that_are_named_or_all(api, orders):
    first, _ = orders.dead()
    assert api.post("/requeue", json={"ids": [first.id]}).json() == {"requeued": 1}
    assert [one.message.payload for one in orders.dead()] == [b"2"]
    assert api.post("/requeue", json={}).json() == {"requeued": 1}
    assert (orders.stats().ready, orders.stats().dead) == (3, 0)


def test_dead_letters_are_deleted_and_what_is_ready_is_purged(api, orders):
    assert api.delete("/dead").json() == {"deleted": 2}
    assert (orders.stats().ready, orders.stats().dead) == (1, 0)
    assert api.delete("/contents").json() == {"deleted": 1}
    assert orders.stats().ready == 0


def test_a_message_is_published_with_its_headers(api, orders):
    given = {"payload": "new", "topic": "orders.eu", "headers": {"region": "EU"}}
    assert api.post("/publish", json=given).json()["id"] > 0
    [found] = orders.peek(filter="region = 'EU'")
    assert (found.message.payload, found.message.topic) == (b"new", "orders.eu")


def test_the_filter_of_a_subscription_is_changed(api, database):
    with connect(database) as opened:
        opened.subscription("eu", "region = 'EU'")
        answer = api.put("../eu/filter", json={"filter": "region = 'US'"})
        assert answer.status_code == 204
        assert opened.find("eu").filter == "region = 'US'"
        bad = api.put("../eu/filter", json={"filter": "region ="})
        assert bad.status_code == 400
        assert "region =" in bad.json()["detail"]
        assert opened.find("eu").filter == "region = 'US'"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("../gone/requeue", {}, 404),
        ("/requeue", {"ids": "all"}, 400),
        ("/requeue", {"ids": [1.5]}, 400),
        ("/publish", {}, 400),
        ("/publish", {"payload": "x", "headers": {"region": [1]}}, 400),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(api, orders, path, body, status):
    answer = api.post(path, json=body)
    assert (answer.status_code, answer.json()["detail"] != "") == (status, True)
    assert (orders.stats().ready, orders.stats().dead) == (1, 2)


def test_a_queue_that_is_no_subscription_has_no_filter_to_change(api):
    answer = api.put("/filter", json={"filter": "region = 'US'"})
    assert (answer.status_code, "no subscription" in answer.text) == (400, True)


def test_a_broker_without_a_database_says_how_to_name_one():
    with Broker() as broker:
        url = f"{broker.http_url}/api/headgate/sql-queues/orders/requeue"
        answer = httpx.post(url, auth=GUEST, json={})
    assert (answer.status_code, "http.database" in answer.text) == (400, True)


def test_only_administrators_see_what_changes_a_queue(database):
    with Broker(database=database) as broker:
        user = {"password": "p", "tags": "monitoring"}
        httpx.put(f"{broker.http_url}/api/users/eve", auth=GUEST, json=user)
        page = f"{broker.http_url}/sql-queue?name=new%20orders"
        shown = httpx.get(page, auth=GUEST).text
        assert "Requeue dead letters" in shown
        assert shown.count("no stock") == 2
        assert "Requeue" not in httpx.get(page, auth=("eve", "p")).text
        dead = f"{broker.http_url}/api/headgate/sql-queues/new%20orders/dead"
        assert httpx.delete(dead, auth=("eve", "p")).status_code == 401


def test_a_queue_that_is_looked_at_twice_shows_what_its_consumers_do(database, monkeypatch):
    monkeypatch.setattr(QueueSamples, "rates", lambda *_: QueueRates(1234.0, 0.5))
    with Broker(database=database) as broker:
        page = httpx.get(f"{broker.http_url}/sql-queue?name=new%20orders", auth=GUEST).text
    assert re.search(r"1,234<small>/s</small></b><span>claimed", page)
    assert re.search(r"0.5<small>/s</small></b><span>acknowledged", page)

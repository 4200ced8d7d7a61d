"""Where messages go whose properties decide: found once for equal ones, and anew wherever the answer may differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headgate.amqp.content import make_message
from headgate.broker import Broker, VirtualHost
from headgate.broker.routes import FEW_TESTS, MAX_PROPERTIES
from headgate.routing.choosing import RandomIndex


@pytest.fixture
def vhost(broker: Broker) -> VirtualHost:
    vhost = broker.find_vhost("/")
    for name in ("a", "b"):
        vhost.declare_queue(name)
    return vhost


def names(vhost: VirtualHost, exchange: str, properties: Mapping[str, Any]) -> set[str]:
    message = make_message(exchange, "k", properties, b"")
    route = vhost.find_route(exchange, "k")
    assert route.queues is None
    return {queue.name for queue in vhost.queues_by_properties(message, route)}


def test_equal_properties_are_routed_once(vhost, monkeypatch):
    vhost.bind("amq.topic", "a", "#", {"x-filter": "n > 1"})
    assert names(vhost, "amq.topic", {"headers": {"n": 2}}) == {"a"}
    monkeypatch.setattr(type(vhost.topology), "route", None)
    assert names(vhost, "amq.topic", {"headers": {"n": 2}}) == {"a"}


def test_filters_of_one_exchange_are_asked_without_walking_the_topology(vhost, monkeypatch):
    vhost.bind("amq.topic", "a", "#", {})
    vhost.bind("amq.topic", "b", "k", {"x-filter": "n > 1"})
    monkeypatch.setattr(type(vhost.topology), "route", None)
    assert names(vhost, "amq.topic", {"headers": {"n": 2}}) == {"a", "b"}
    assert names(vhost, "amq.topic", {"headers": {"n": 1}}) == {"a"}
    vhost.bind("amq.topic", "a", "k", {"x-filter": "n > 5"})
    assert names(vhost, "amq.topic", {"headers": {"n": 6}}) == {"a", "b"}


def test_a_filter_that_leads_to_an_exchange_is_followed(vhost):
    vhost.bind("amq.topic", "amq.fanout", "#", {"x-filter": "n > 1"}, to_exchange=True)
    vhost.bind("amq.fanout", "a", "", {})
    assert names(vhost, "amq.topic", {"headers": {"n": 2}}) == {"a"}
    assert names(vhost, "amq.topic", {"headers": {"n": 1}}) == set()


def test_ids_and_other_properties_count(vhost):
    vhost.bind("amq.topic", "a", "#", {"x-filter": "sys.id = 'one' OR p.type = 'late'"})
    assert names(vhost, "amq.topic", {"message_id": "one"}) == {"a"}
    assert names(vhost, "amq.topic", {"message_id": "two"}) == set()
    assert names(vhost, "amq.topic", {"message_id": "two", "type": "late"}) == {"a"}


def test_a_change_of_bindings_queues_or_alternates_is_seen(vhost):
    vhost.bind("amq.headers", "a", "", {"x-match": "all", "n": 1})
    properties = {"headers": {"n": 1}}
    assert names(vhost, "amq.headers", properties) == {"a"}
    vhost.bind("amq.headers", "b", "", {"x-match": "all", "n": 1})
    assert names(vhost, "amq.headers", properties) == {"a", "b"}
    vhost.unbind("amq.headers", "a", "", {"x-match": "all", "n": 1})
    assert names(vhost, "amq.headers", properties) == {"b"}
    vhost.delete_queue(vhost.queues["b"])
    assert names(vhost, "amq.headers", properties) == set()


def test_a_route_of_an_earlier_topology_is_not_trusted(vhost):
    vhost.bind("amq.headers", "a", "", {"x-match": "all", "n": 1})
    route = vhost.find_route("amq.headers", "k")  # of a publish whose content is still to come
    message = make_message("amq.headers", "k", {"headers": {"n": 1}}, b"")
    assert vhost.queues_by_properties(message, route) == (vhost.queues["a"],)
    vhost.delete_queue(vhost.queues["a"])
    assert vhost.queues_by_properties(message, route) == ()


def test_a_filter_that_asks_for_the_time_is_asked_each_time(vhost):
    timed = {"x-filter": "sys.timestamp > UTC() - INTERVAL '1h'"}
    vhost.bind("amq.topic", "a", "#", timed)
    names(vhost, "amq.topic", {"timestamp": 1})
    assert not vhost._routes.by_properties
    vhost.unbind("amq.topic", "a", "#", timed)
    vhost.bind("amq.topic", "a", "#", {"x-filter": "sys.timestamp > 0"})
    assert names(vhost, "amq.topic", {"timestamp": 1}) == {"a"}
    assert len(vhost._routes.by_properties) == 1


def test_a_random_exchange_draws_for_each_message_also_behind_another(vhost, monkeypatch):
    vhost.declare_exchange("draw", "x-random")
    vhost.bind("amq.headers", "draw", "", {"x-match": "all", "n": 1}, to_exchange=True)
    for name in ("a", "b"):
        vhost.bind("draw", name, "", {})
    drawn = iter([0, 1, 0])
    monkeypatch.setattr(RandomIndex, "draw", staticmethod(lambda count: next(drawn)))
    found = [names(vhost, "amq.headers", {"headers": {"n": 1}}) for _ in range(3)]
    assert found == [{"a"}, {"b"}, {"a"}]


def test_only_so_many_answers_are_kept(vhost):
    vhost.bind("amq.topic", "a", "#", {"x-filter": "n >= 0"})
    for number in range(MAX_PROPERTIES + 1):
        for _ in range(2):  # what came once is not kept
            assert names(vhost, "amq.topic", {"headers": {"n": number}}) == {"a"}
    assert len(vhost._routes.by_properties) == 1


def test_a_queue_deleted_behind_a_publish_with_filtered_bindings_is_left_out(vhost):
    vhost.bind("amq.topic", "a", "#", {})
    vhost.bind("amq.topic", "b", "#", {"x-filter": "n > 1"})
    route = vhost.find_route("amq.topic", "k")  # of a publish whose content is still to come
    message = make_message("amq.topic", "k", {"headers": {"n": 2}}, b"")
    vhost.delete_queue(vhost.queues["a"])
    assert vhost.queues_by_properties(message, route) == (vhost.queues["b"],)
    vhost.delete_queue(vhost.queues["b"])
    assert vhost.queues_by_properties(message, route) == ()


@pytest.mark.parametrize("others", [0, FEW_TESTS])
def test_a_queue_that_several_bindings_reach_is_found_once(vhost, others):
    for key, text in (("#", "n > 1"), ("*", "n > 2"), ("k", "n > 3")):
        vhost.bind("amq.topic", "a", key, {"x-filter": text})
    vhost.bind("amq.topic", "b", "#", {})
    vhost.bind("amq.topic", "b", "k", {"x-filter": "n > 3"})
    for number in range(others):
        vhost.bind("amq.topic", "a", "#", {"x-filter": f"m = {number}"})
    route = vhost.find_route("amq.topic", "k")
    for n, found in ((0, ["b"]), (2, ["a", "b"]), (4, ["a", "b"])):
        message = make_message("amq.topic", "k", {"headers": {"n": n}}, b"")
        queues = vhost.queues_by_properties(message, route)
        assert sorted(queue.name for queue in queues) == found

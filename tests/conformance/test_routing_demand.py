"""What a topology wants: no message that reaches a queue is left out, and most others are."""

from __future__ import annotations

from random import Random

from headgate.filters.logic import matches_filter
from headgate.filters.nodes import FALSE, TRUE
from headgate.filters.parser import parse
from headgate.filters.printer import to_text
from headgate.message import Message
from headgate.routing import demand
from headgate.routing.demand import demand_of
from headgate.routing.topology import Topology
from tests.conformance.test_routing_properties import Pair, message


def test_whatever_reaches_a_queue_is_wanted_and_most_of_the_rest_is_not(seed):
    rng, wanted, left_out, unroutable = Random(seed), 0, 0, 0
    for _ in range(150):
        pair = Pair(rng)
        for _ in range(rng.randint(1, 8)):
            pair.bind()
        drawn = [message(rng) for _ in range(20)]
        for exchange in pair.exchanges:
            filter = parse(to_text(demand_of(pair.index, exchange)))
            for each in drawn:
                reached, passes = pair.scan.route(exchange, each), matches_filter(filter, each)
                assert passes or not reached, (exchange, each, to_text(filter))
                wanted += bool(reached)
                unroutable += not reached
                left_out += not passes
    assert wanted > 1000
    assert left_out > 0.6 * unroutable


def test_conditions_of_a_chain_are_joined_and_equal_texts_become_one_list():
    topology = Topology()
    topology.declare_exchange("in", "headers")
    topology.declare_exchange("large", "filter")
    for name in ("eu", "us", "big"):
        topology.declare_queue(name)
    topology.bind("in", queue="eu", arguments={"region": "EU"})
    topology.bind("in", queue="us", arguments={"region": "US"})
    topology.bind("in", exchange="large", arguments={"express": True})
    topology.bind("large", queue="big", filter="amount > 1500")
    once = "express = TRUE AND amount > 1500 OR region IN ('EU', 'US')"
    assert to_text(demand_of(topology, "in")) == once
    topology.bind("large", exchange="in", filter="n > 0")  # a way back adds nothing
    assert to_text(demand_of(topology, "in")) == once


def test_without_a_way_to_a_queue_nothing_is_wanted():
    topology = Topology()
    topology.declare_exchange("in", "fanout")
    assert demand_of(topology, "in") == FALSE


def test_a_filter_that_depends_on_the_time_wants_everything():
    """The router asks at another moment than the scan."""
    topology = Topology()
    topology.declare_exchange("in", "filter")
    topology.declare_queue("late")
    topology.bind("in", queue="late", filter="sys.timestamp < UTC() - 1000")
    assert demand_of(topology, "in") == TRUE


def test_more_conditions_than_are_worth_testing_want_everything(monkeypatch):
    monkeypatch.setattr(demand, "MOST_NODES", 40)
    topology = Topology()
    names = [f"x{n}" for n in range(12)]
    for name in names:
        topology.declare_exchange(name, "headers")
    topology.declare_queue("q")
    topology.bind("x11", queue="q", arguments={"a": 1})
    for source in names:
        for other in names:
            topology.bind(source, exchange=other, arguments={source: other})
    assert demand_of(topology, "x0") == TRUE


def test_a_value_that_no_filter_compares_only_has_to_be_there():
    topology = Topology()
    topology.declare_exchange("in", "headers")
    topology.declare_queue("q")
    topology.bind("in", queue="q", arguments={"tags": ["a"], "n": 2**70})
    filter = demand_of(topology, "in")
    assert matches_filter(filter, Message(headers={"n": 1.0}))

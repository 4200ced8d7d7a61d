"""Who receives a message, and why the other bindings do not."""

import pytest

from headgate.insights import explain_route
from headgate.routing import Topology


@pytest.fixture
def shop_topology():
    """A headers exchange with one binding that has a filter and one that does not."""
    made = Topology()
    made.declare_exchange("orders", "headers")
    for queue in ("eu-large", "us"):
        made.declare_queue(queue)
    made.bind("orders", queue="eu-large", arguments={"region": "EU"}, filter="amount > 1000")
    made.bind("orders", queue="us", arguments={"region": "US"})
    return made


def test_every_binding_is_listed_with_the_first_condition_that_failed(shop_topology):
    facts = explain_route(shop_topology, "orders", headers={"region": "EU", "amount": 1200})
    assert (facts.queues, facts.unroutable, facts.via) == (("eu-large",), False, ("orders",))
    by_queue = {binding.destination: binding for binding in facts.bindings}
    assert by_queue["eu-large"].matched
    assert "region" in by_queue["us"].why_not
    assert by_queue["us"].source_type == "headers"


def test_the_condition_of_a_binding_is_one_line(shop_topology):
    facts = explain_route(shop_topology, "orders", headers={"region": "EU"})
    assert {binding.condition for binding in facts.bindings} == {
        "region = 'EU'; amount > 1000",
        "region = 'US'",
    }


def test_a_message_that_no_queue_receives_is_unroutable(shop_topology):
    facts = explain_route(shop_topology, "orders", headers={"region": "APAC"})
    assert facts.unroutable
    assert facts.queues == ()


def test_a_filter_can_read_the_priority_and_the_topic():
    topology = Topology()
    topology.declare_exchange("orders", "filter")
    topology.declare_queue("urgent")
    topology.bind("orders", queue="urgent", filter="sys.priority > 5 AND sys.topic = 'a.b'")
    assert explain_route(topology, "orders", topic="a.b", priority=9).queues == ("urgent",)
    assert explain_route(topology, "orders", topic="a.b", priority=1).unroutable

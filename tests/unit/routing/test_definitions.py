"""A topology as a file: what is written is what is read."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import TopologyError
from headgate.message import Message
from headgate.routing.topology import Topology

EXAMPLE = Path(__file__).parent.parent.parent.parent / "examples" / "topology.toml"

RABBITMQ = """
{
 "rabbit_version": "4.0.5",
 "users": [{"name": "guest"}],
 "policies": [
  {"vhost": "/", "name": "low", "pattern": "^ord", "apply-to": "exchanges", "priority": 0,
   "definition": {"alternate-exchange": "low"}},
  {"vhost": "/", "name": "lost", "pattern": "^ord", "apply-to": "all", "priority": 5,
   "definition": {"alternate-exchange": "unrouted"}},
  {"vhost": "/", "name": "ttl", "pattern": ".*", "apply-to": "queues", "definition": {"message-ttl": 5}}
 ],
 "queues": [
  {"name": "eu", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {"x-queue-type": "quorum"}},
  {"name": "lost", "vhost": "/", "durable": false, "auto_delete": true, "arguments": {}}
 ],
 "exchanges": [
  {"name": "orders", "vhost": "/", "type": "headers", "durable": true, "auto_delete": false,
   "internal": false, "arguments": {}},
  {"name": "inner", "vhost": "/", "type": "topic", "durable": true, "auto_delete": false,
   "internal": true, "arguments": {"alternate-exchange": "unrouted"}},
  {"name": "unrouted", "vhost": "/", "type": "fanout", "durable": true, "auto_delete": false,
   "internal": false, "arguments": {}}
 ],
 "bindings": [
  {"source": "orders", "vhost": "/", "destination": "eu", "destination_type": "queue",
   "routing_key": "", "arguments": {"x-match": "any", "region": "EU", "vip": true}},
  {"source": "orders", "vhost": "/", "destination": "inner", "destination_type": "exchange",
   "routing_key": "", "arguments": {"x-match": "all", "level": 1.0}},
  {"source": "unrouted", "vhost": "/", "destination": "lost", "destination_type": "queue",
   "routing_key": "", "arguments": {}}
 ]
}
"""


def saved_and_loaded(made: Topology, path: Path) -> Topology:
    made.save(path)
    return Topology.load(path)


def same(left: Topology, right: Topology) -> bool:
    return (
        left.exchanges == right.exchanges
        and left.queues == right.queues
        and set(left.bindings()) == set(right.bindings())
    )


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_the_example_survives_being_saved(tmp_path, suffix):
    made = Topology.load(EXAMPLE)
    assert len(made) == 8
    assert same(saved_and_loaded(made, tmp_path / f"t{suffix}"), made)


def test_the_example_does_what_it_says():
    made = Topology.load(EXAMPLE)
    message = Message(
        topic="orders.eu.created", headers={"region": "EU", "type": "created", "amount": 1200}
    )
    assert set(made.route("orders", message).queues) == {
        "eu-created",
        "anything-new",
        "large-orders",
        "audit-eu",
    }
    assert set(made.route("orders", Message()).queues) == {"lost"}
    assert set(made.route("orders", Message(headers={"tenant": "acme"})).queues) == {"tenants"}
    assert made.route("orders", Message(headers={"tenant": "test-1"})).via == ("orders", "unrouted")
    assert made.validate() == []


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_rabbitmqs_definitions_are_read_and_kept(tmp_path, suffix):
    path = tmp_path / "definitions.json"
    path.write_text(RABBITMQ)
    made = Topology.load(path)
    assert made.exchanges["orders"].alternate == "unrouted"
    assert made.exchanges["inner"].internal
    assert made.queues["lost"].auto_delete
    assert set(made.route("orders", Message(headers={"vip": True})).queues) == {"eu"}
    assert set(made.route("orders", Message(headers={"vip": 1})).queues) == {"lost"}
    assert made.route("orders", Message(headers={"level": 1.0})).via == (
        "orders",
        "inner",
        "unrouted",
    )
    assert same(saved_and_loaded(made, tmp_path / f"again{suffix}"), made)


def test_one_of_several_vhosts_must_be_chosen(tmp_path):
    path = tmp_path / "t.json"
    path.write_text('{"queues": [{"name": "a", "vhost": "/"}, {"name": "b", "vhost": "two"}]}')
    with pytest.raises(TopologyError, match=r"several vhosts, \['/', 'two'\]"):
        Topology.load(path)
    assert set(Topology.load(path, vhost="two").queues) == {"b"}
    with pytest.raises(TopologyError, match="no vhost 'three'"):
        Topology.load(path, vhost="three")


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(st.characters(codec="utf-8")),
        st.binary(max_size=5),
        st.decimals(allow_nan=False, allow_infinity=False, places=2).map(Decimal),
        st.integers(0, 2**32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.text(max_size=5), st.just("$void"), st.just("$table")), inner, max_size=2
        ),
    ),
    max_leaves=6,
)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@given(st.dictionaries(NAMES, VALUES, max_size=3), NAMES, NAMES, st.text(max_size=10))
def test_every_binding_can_be_written_and_read(tmp_path, arguments, exchange, queue, key):
    made = Topology()
    exchange = f"e{exchange}"
    made.declare_exchange(exchange, "fanout", arguments={"note": arguments})
    made.declare_queue(queue)
    made.bind(
        exchange,
        queue=queue,
        key=key,
        arguments={n: v for n, v in arguments.items() if n[:2] != "x-"},
    )
    for suffix in (".toml", ".json"):
        assert same(saved_and_loaded(made, tmp_path / f"t{suffix}"), made)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[exchanges", "not TOML"),
        ("[exchange.x]", "does not know 'exchange'"),
        ("[exchanges.x]\nkind = 'topic'", "exchange 'x': does not know 'kind'"),
        ("[exchanges.x]\ntype = 'best'", "exchange 'x': .*no type 'best'"),
        ("exchanges = 5", r"write \[exchanges.<name>\]"),
        ("bindings = 5", "expected a list of tables"),
        ("[[bindings]]\nqueue = 'q'", "binding 1: says no exchange"),
        ("[[bindings]]\nfrom = 'x'\nqueue = 'q'", "binding 1: there is no exchange 'x'"),
        (
            "[exchanges.x]\n[[bindings]]\nfrom = 'x'\nqueue = 'q'",
            "binding 1: there is no queue 'q'",
        ),
        ("[exchanges.x]\n[[bindings]]\nfrom = 'x'", "binding 1: .*a queue or an exchange"),
        (
            "[exchanges.x]\n[queues.q]\n[[bindings]]\nfrom = 'x'\nqueue = 'q'\nfilter = 'a ='",
            "the filter cannot be used",
        ),
        (
            "[exchanges.x]\ntype = 'headers'\n[queues.q]\n[[bindings]]\nfrom = 'x'\nqueue = 'q'\nmatch = 'most'",
            "x-match",
        ),
        ("[[bindings]]\nfrom = 'x'\npresent = 'a'", "present is a list"),
        ("[exchanges.x]\ndurable = 'yes'", "exchange 'x': durable is true or false, not 'yes'"),
        ("[[bindings]]\nfrom = 'x'\nkey = 5", "binding 1: key is text, not 5"),
        ("[[bindings]]\nfrom = 'x'\nheaders = 'a'", "expected a table"),
        ("[[bindings]]\nfrom = 'x'\nheaders = { a = { '$decimal' = 'x' } }", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_why(tmp_path, text, complaint):
    path = tmp_path / "t.toml"
    path.write_text(text)
    with pytest.raises(TopologyError, match=complaint):
        Topology.load(path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "a JSON object"),
        ('{"exchanges": [{"type": "topic"}]}', "exchange 1: has no 'name'"),
        ('{"queues": [{"name": 5}]}', "queue 1: name is text, not 5"),
        ('{"bindings": [{"source": "x", "destination": "q", "destination_type": "z"}]}', "destination_type"),
        ('{"exchanges": [{"name": "x", "type": "x-delayed"}]}', "exchange 1: .*no type"),
        ('{"exchanges": [{"name": "x", "type": "x-delayed-message"}]}', "exchange 1: .*x-delayed-type"),
        ('{"exchanges": [{"name": "x", "type": "topic"}], "policies": [{"pattern": "(", '
         '"definition": {"alternate-exchange": "y"}}]}', "its pattern cannot be used"),
    ],
)  # fmt: skip
def test_definitions_that_cannot_be_used_say_where_and_why(tmp_path, text, complaint):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(TopologyError, match=complaint):
        Topology.load(path)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(TopologyError, match="cannot be read"):
        Topology.load(tmp_path / "none.toml")
    with pytest.raises(TopologyError, match=r"\.toml or a \.json"):
        Topology.load(tmp_path / "t.yaml")
    with pytest.raises(TopologyError, match=r"\.toml or a \.json"):
        Topology().save(tmp_path / "t.yaml")

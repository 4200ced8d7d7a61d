"""Declaring, binding, and where a message goes."""

from __future__ import annotations

import gc
import math
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum

import pytest

from headgate import header
from headgate.errors import (
    BindingRefused,
    DeclarationRefused,
    NotEquivalent,
    NotPermitted,
    RoutingError,
    UnknownExchange,
    UnknownQueue,
)
from headgate.message import OPAQUE, Message
from headgate.routing import changes
from headgate.routing.topology import Topology
from headgate.routing.values import Envelope


def topology(*queues: str, **exchanges: str) -> Topology:
    made = Topology()
    for name, kind in exchanges.items():
        made.declare_exchange(name, kind)
    for name in queues:
        made.declare_queue(name)
    return made


def queues_of(made: Topology, exchange: str, topic: str = "", **headers: object) -> set[str]:
    return set(made.route(exchange, Message(topic=topic, headers=headers)).queues)


# ---- routing


def test_the_default_exchange_reaches_every_queue_by_its_name():
    made = topology("a")
    assert made.route("", Message(topic="a")) == (frozenset({"a"}), False, ("",))
    assert made.route("", Message(topic="b")).unroutable
    made.delete_queue("a")
    assert made.route("", Message(topic="a")).unroutable


def test_a_queue_named_by_an_enumeration_is_reached_beside_exchanges_and_filters():
    class Name(StrEnum):
        ORDERS = "orders"

    made = topology(Name.ORDERS, "large", x="direct", other="fanout")
    made.bind("x", queue=Name.ORDERS)
    assert queues_of(made, "x") == {"orders"}
    made.bind("x", exchange="other")
    made.bind("x", queue="large", filter="amount > 1000")
    assert queues_of(made, "x", amount=2000) == {"orders", "large"}


def test_a_queue_gets_one_copy_through_many_bindings_diamonds_and_cycles():
    made = topology("q", a="fanout", b="fanout", c="fanout")
    for source, to in (("a", "b"), ("a", "c"), ("b", "c"), ("c", "a")):
        made.bind(source, exchange=to)
    for source in "abc":
        made.bind(source, queue="q")
        made.bind(source, queue="q", key="again")
    routed = made.route("a", Message())
    assert list(routed.queues) == ["q"]
    assert routed.via == ("a", "b", "c")


def test_a_message_an_exchange_cannot_route_goes_to_its_alternate_and_on():
    made = topology("q", last="fanout")
    made.declare_exchange("second", "direct", alternate="last")
    made.declare_exchange("first", "topic", arguments={"alternate-exchange": "second"})
    made.bind("last", queue="q")
    routed = made.route("first", Message(topic="k"))
    assert set(routed.queues) == {"q"}
    assert routed.via == ("first", "second", "last")


def test_alternates_in_a_circle_end():
    made = Topology()
    made.declare_exchange("a", alternate="b")
    made.declare_exchange("b", alternate="a")
    assert made.route("a", Message(topic="k")) == (frozenset(), True, ("a", "b"))


def test_an_alternate_that_does_not_exist_is_passed_over():
    made = Topology()
    made.declare_exchange("a", alternate="gone")
    assert made.route("a", Message()).unroutable


def test_an_exchange_that_reaches_another_has_routed_even_if_that_one_drops_it():
    made = topology("lost", dead="fanout", out="fanout")
    made.declare_exchange("a", "fanout", alternate="out")
    made.bind("out", queue="lost")
    made.bind("a", exchange="dead")
    assert made.route("a", Message()).unroutable


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers"])
def test_a_filter_on_top_of_any_binding(kind):
    made = topology("q", "other", x=kind)
    made.bind("x", queue="q", key="k", filter="amount > 10")
    made.bind("x", queue="other", key="k")
    assert queues_of(made, "x", "k", amount=11) == {"q", "other"}
    assert queues_of(made, "x", "k", amount=10) == {"other"}
    assert queues_of(made, "x", "k") == {"other"}
    assert made.unbind("x", queue="q", key="k", filter="amount > 10")
    assert queues_of(made, "x", "k", amount=11) == {"other"}


def test_a_filter_on_top_leads_to_exchanges_too():
    made = topology("q", x="topic", y="fanout")
    made.bind("x", exchange="y", key="a.#", filter="region = 'EU'")
    made.bind("y", queue="q")
    assert queues_of(made, "x", "a.b", region="EU") == {"q"}
    assert queues_of(made, "x", "a.b", region="US") == set()


def test_a_filter_can_be_given_as_text_as_an_argument_or_built():
    made = topology("a", "b", "c", x="filter")
    made.bind("x", queue="a", filter="region = 'EU'")
    made.bind("x", queue="b", arguments={"x-filter": "region = 'EU'"})
    made.bind("x", queue="c", filter=header("region") == "EU")
    assert queues_of(made, "x", region="EU") == {"a", "b", "c"}
    assert made.unbind("x", queue="c", filter="region = 'EU'")
    assert made.unbind("x", queue="a", filter=header("region") == "EU")
    assert queues_of(made, "x", region="EU") == {"b"}


def test_the_blank_filter_matches_everything():
    made = topology("q", x="filter")
    made.bind("x", queue="q", filter="")
    assert queues_of(made, "x") == {"q"}


# ---- the headers exchange


@pytest.mark.parametrize(
    ("match", "arguments", "headers", "found"),
    [
        (None, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, True),
        (None, {"a": 1, "b": 2}, {"a": 1}, False),
        ("all", {}, {}, True),
        ("any", {}, {"a": 1}, False),
        ("any", {"a": 1, "b": 2}, {"b": 2}, True),
        ("all", {"a": 1, "x-b": 2}, {"a": 1}, True),
        ("any", {"x-b": 2}, {"x-b": 2}, False),
        ("all-with-x", {"a": 1, "x-b": 2}, {"a": 1}, False),
        ("all-with-x", {"a": 1, "x-b": 2}, {"a": 1, "x-b": 2}, True),
        ("any-with-x", {"x-b": 2}, {"x-b": 2}, True),
        ("all", {"a": None}, {"a": "anything"}, True),
        ("all", {"a": None}, {}, False),
    ],
)
def test_the_four_ways_to_match(match, arguments, headers, found):
    made = topology("q", x="headers")
    given = arguments if match is None else {"x-match": match, **arguments}
    made.bind("x", queue="q", arguments=given)
    assert (queues_of(made, "x", **headers) == {"q"}) is found


@pytest.mark.parametrize("other", [1, 1.0, "1", True, [1], {"k": 1}, b"1", None])
@pytest.mark.parametrize("value", [1, 1.0, "1", True, [1], {"k": 1}, b"1"])
def test_matching_is_typed(value, other):
    made = topology("q", x="headers")
    made.bind("x", queue="q", arguments={"a": value})
    same = type(value) is type(other) and value == other
    assert made.route("x", ("", {"a": other})).unroutable is not same


def test_a_void_header_is_there_over_amqp_and_an_absent_one_in_a_message():
    made = topology("q", x="headers")
    made.bind("x", queue="q", arguments={"a": None})
    assert not made.route("x", ("", {"a": None})).unroutable
    assert made.route("x", Message(headers={"a": None})).unroutable
    assert not made.route("x", Message(headers={"a": OPAQUE})).unroutable


def test_tables_are_compared_by_value_in_any_order():
    made = topology("q", x="headers")
    made.bind("x", queue="q", arguments={"t": {"a": [1, {"b": None}], "c": 2.0}})
    assert not made.route("x", ("", {"t": {"c": 2.0, "a": [1, {"b": None}]}})).unroutable
    assert made.route("x", ("", {"t": {"c": 2, "a": [1, {"b": None}]}})).unroutable


def test_an_envelope_is_made_a_message_only_for_a_filter():
    made = topology("q", x="headers", y="filter")
    made.bind("x", queue="q", arguments={"a": [1]})
    made.bind("y", queue="q", filter="EXISTS(a) AND a IS NULL AND sys.priority = 7")
    asked = []

    def make() -> Message:
        asked.append(1)
        return Message(headers={"a": OPAQUE}, priority=7)

    envelope = Envelope("k", {"a": [1]}, make)
    assert not made.route("x", envelope).unroutable
    assert asked == []
    assert not made.route("y", envelope).unroutable
    assert asked == [1]


# ---- binding and unbinding


def test_to_bind_twice_is_to_bind_once():
    made = topology("q", x="headers")
    for _ in range(2):
        made.bind("x", queue="q", arguments={"a": 1, "b": 2})
    made.bind("x", queue="q", arguments={"b": 2, "a": 1})
    assert len(made) == 1
    assert made.unbind("x", queue="q", arguments={"a": 1, "b": 2})
    assert queues_of(made, "x", a=1, b=2) == set()


def test_bindings_that_differ_in_kind_only_are_different():
    made = topology("q", x="headers")
    for value in (1, 1.0, True, "1"):
        made.bind("x", queue="q", arguments={"a": value})
    assert len(made) == 4
    assert made.unbind("x", queue="q", arguments={"a": True})
    assert queues_of(made, "x", a=True) == set()
    assert queues_of(made, "x", a=1) == {"q"}


def test_many_can_be_bound_at_once():
    made = topology("q", "r", x="headers")
    made.bind_all(
        {"source": "x", "queue": queue, "arguments": {"a": n}} for n, queue in enumerate("qr")
    )
    assert queues_of(made, "x", a=1) == {"r"}
    assert gc.isenabled()
    with pytest.raises(UnknownQueue):
        made.bind_all([{"source": "x", "queue": "s"}])
    assert gc.isenabled()


def test_bindings_before_a_refused_one_stay_bound():
    made = topology("q", "r", "s", x="headers")
    asked = [{"source": "x", "queue": queue, "arguments": {"a": 1, "b": 2}} for queue in "qrs"]
    asked[1]["arguments"] = {"a": 1, "b": 2, "x-match": "some"}
    with pytest.raises(BindingRefused, match="some"):
        made.bind_all(asked)
    assert queues_of(made, "x", a=1, b=2) == {"q"}
    assert len(made) == 1
    made.bind_all([asked[0], asked[2], asked[2]])
    assert queues_of(made, "x", a=1, b=2) == {"q", "s"}
    assert made.unbind("x", queue="q", arguments={"a": 1, "b": 2})
    assert queues_of(made, "x", a=1, b=2) == {"s"}


def test_a_generator_of_bindings_may_route_and_unbind():
    made = topology("q", "r", x="headers")
    made.bind("x", queue="q", arguments={"a": 1})

    def given():
        yield {"source": "x", "queue": "r", "arguments": {"a": 1, "b": 2}}
        assert queues_of(made, "x", a=1, b=2) == {"q"}
        made.unbind("x", queue="q", arguments={"a": 1})
        yield {"source": "x", "queue": "r", "arguments": {"c": 3}}

    made.bind_all(given())
    assert queues_of(made, "x", a=1, b=2) == queues_of(made, "x", c=3) == {"r"}


@pytest.fixture
def unfreeze_at_will() -> Iterator[None]:
    """What was frozen before is frozen again afterwards: the modules of all tests."""
    yield
    gc.freeze()


@pytest.mark.usefixtures("unfreeze_at_will")
def test_binding_many_leaves_the_collector_as_it_was(monkeypatch):
    monkeypatch.setattr(changes, "MANY_OBJECTS", 0)
    made = topology("q", x="fanout")
    gc.freeze()
    made.bind_all([{"source": "x", "queue": "q"}])
    assert gc.get_freeze_count() > 0  # others may let go of something meanwhile
    gc.unfreeze()
    gc.disable()
    try:
        made.bind_all([{"source": "x", "queue": "q", "key": "k"}])
        assert not gc.isenabled()
    finally:
        gc.enable()
    made.bind_all([{"source": "x", "queue": "q", "key": "l"}])
    assert gc.get_freeze_count() == 0


def test_to_unbind_a_binding_that_is_not_there_is_no_error():
    made = topology("q", x="direct")
    assert not made.unbind("x", queue="q", key="k")
    assert not made.unbind("x", queue="never declared", key="k")


def test_bindings_that_share_a_thousand_pairs_are_bound_and_unbound():
    made = topology("a", "b", x="headers")
    shared = {f"h{n:03}": n for n in range(1_000)}
    for queue in ("a", "b"):
        made.bind("x", queue=queue, arguments=shared)
    assert queues_of(made, "x", **shared) == {"a", "b"}
    assert made.unbind("x", queue="b", arguments=shared)
    assert queues_of(made, "x", **shared) == {"a"}


def test_a_binding_can_be_deleted():
    made = topology("q", x="topic")
    binding = made.bind("x", queue="q", key="a.*", filter="b = 1")
    assert binding.arguments == {"x-filter": "b = 1"}
    assert list(made.bindings("x")) == [binding]
    assert made.delete_binding(binding)
    assert not made.delete_binding(binding)


def test_deleting_a_queue_or_an_exchange_deletes_its_bindings():
    made = topology("q", "r", x="fanout", y="fanout")
    made.bind("x", queue="q")
    made.bind("x", queue="r", filter="a = 1")
    made.bind("x", exchange="y")
    made.bind("y", queue="q")
    assert made.delete_queue("q")
    assert queues_of(made, "x", a=1) == {"r"}
    assert made.delete_exchange("y")
    assert [binding.destination for binding in made.bindings()] == ["r"]
    assert not made.delete_queue("q")
    assert not made.delete_exchange("y")
    with pytest.raises(UnknownExchange):
        made.route("y", Message())


def test_an_auto_delete_exchange_goes_with_its_last_binding():
    made = topology("q", "r")
    made.declare_exchange("x", "fanout", auto_delete=True)
    assert "x" in made.exchanges
    made.bind("x", queue="q")
    made.bind("x", queue="r")
    made.delete_queue("q")
    assert "x" in made.exchanges
    made.unbind("x", queue="r")
    assert "x" not in made.exchanges


def test_an_answer_does_not_change_afterwards():
    made = topology("q", "r", x="fanout")
    made.bind("x", queue="q")
    routed = made.route("x", Message())
    made.bind("x", queue="r")
    assert set(routed.queues) == {"q"}
    assert queues_of(made, "x") == {"q", "r"}


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_a_remembered_topic_follows_every_bind_and_unbind(kind):
    made = topology("q", "r", "s", x=kind, y="headers")
    made.bind("y", queue="s", arguments={"region": "EU"})
    made.bind("x", queue="q", key="a.b")
    assert queues_of(made, "x", "a.b", region="EU") == {"q"}
    assert made.route("x", Message(topic="a.b")) is made.route("x", Message(topic="a.b"))
    made.bind("x", exchange="y", key="a.b")
    for region, found in (("EU", {"q", "s"}), ("US", {"q"}), ("EU", {"q", "s"})):
        assert queues_of(made, "x", "a.b", region=region) == found
    made.unbind("x", exchange="y", key="a.b")
    made.bind("x", queue="r", key="a.b", filter="region = 'US'")
    for region, found in (("EU", {"q"}), ("US", {"q", "r"}), ("EU", {"q"})):
        assert queues_of(made, "x", "a.b", region=region) == found
    made.delete_queue("r")
    made.unbind("x", queue="q", key="a.b")
    assert made.route("x", Message(topic="a.b")).unroutable
    made.delete_exchange("x")
    with pytest.raises(UnknownExchange):
        made.route("x", Message(topic="a.b"))


def test_a_large_group_is_shared_and_not_copied():
    names = [f"q{n}" for n in range(500)]
    made = topology(*names, "one", x="topic")
    for name in names:
        made.bind("x", queue=name, key="a.#")
    made.bind("x", queue="one", key="a.b")
    made.bind("x", queue="q7", key="a.b")
    both, many = made.route("x", Message(topic="a.b")), made.route("x", Message(topic="a.c"))
    assert len(both.queues) == 501
    assert set(both.queues) == {*names, "one"}
    assert many.queues in both.queues.parts
    assert many.queues is made.route("x", Message(topic="a.d")).queues


# ---- what is refused


def test_an_unknown_exchange_or_queue_is_named():
    made = topology("q", x="direct")
    with pytest.raises(UnknownExchange, match="no exchange 'y'; declare it first"):
        made.bind("y", queue="gone")
    with pytest.raises(UnknownQueue, match="no queue 'gone'"):
        made.bind("x", queue="gone")
    with pytest.raises(UnknownExchange, match="no exchange 'gone'"):
        made.bind("x", exchange="gone")
    with pytest.raises(UnknownExchange):
        made.unbind("y", queue="q")
    with pytest.raises(UnknownExchange):
        made.route("y", Message())
    with pytest.raises(UnknownExchange):
        list(made.bindings("y"))


def test_the_default_and_the_standard_exchanges_cannot_be_changed():
    made = topology("q")
    for refused in (
        lambda: made.declare_exchange("", "direct"),
        lambda: made.declare_exchange("amq.mine", "direct"),
        lambda: made.delete_exchange(""),
        lambda: made.delete_exchange("amq.topic"),
        lambda: made.bind("", queue="q"),
        lambda: made.bind("amq.direct", exchange=""),
    ):
        with pytest.raises(NotPermitted):
            refused()
    assert made.declare_exchange("amq.direct", "direct").name == "amq.direct"


def test_an_internal_exchange_is_reached_through_others_only():
    made = topology("q", x="fanout")
    made.declare_exchange("inner", "fanout", internal=True)
    made.bind("x", exchange="inner")
    made.bind("inner", queue="q")
    assert queues_of(made, "x") == {"q"}
    with pytest.raises(NotPermitted, match="internal"):
        made.route("inner", Message())


def test_a_second_declaration_must_equal_the_first():
    made = topology("q", x="direct")
    with pytest.raises(NotEquivalent, match=r"type = 'direct', not 'topic'"):
        made.declare_exchange("x", "topic")
    with pytest.raises(NotEquivalent, match="durable"):
        made.declare_queue("q", durable=False)
    assert made.declare_queue("q") == made.queues["q"]


@pytest.mark.parametrize("value", ["most", "all-with-X", "", 1, True, None, ["all"]])
def test_any_other_x_match_is_refused(value):
    made = topology("q", x="headers")
    with pytest.raises(BindingRefused, match="x-match cannot be"):
        made.bind("x", queue="q", arguments={"x-match": value, "a": 1})
    assert len(made) == 0


def test_a_bad_filter_is_refused_where_it_is_bound_with_a_caret():
    made = topology("q", x="filter")
    with pytest.raises(BindingRefused, match=r"(?s)'x' to queue 'q': .*column 10.*\^"):
        made.bind("x", queue="q", filter="region = ")
    with pytest.raises(BindingRefused, match="text of a filter"):
        made.bind("x", queue="q", arguments={"x-filter": 5})
    with pytest.raises(BindingRefused, match="needs a filter"):
        made.bind("x", queue="q")
    with pytest.raises(BindingRefused, match="once"):
        made.bind("x", queue="q", filter="a = 1", arguments={"x-filter": "a = 1"})
    assert len(made) == 0
    assert queues_of(made, "x", region="EU") == set()


@pytest.mark.parametrize("kind", ["direct", "headers", "filter"])
def test_a_void_filter_is_refused_and_does_not_match_everything(kind):
    made = topology("q", x=kind)
    with pytest.raises(BindingRefused, match="x-filter is there and holds nothing"):
        made.bind("x", queue="q", arguments={"x-filter": None})
    assert len(made) == 0


def test_a_binding_needs_one_destination_and_values_amqp_has():
    made = topology("q", x="headers")
    with pytest.raises(BindingRefused, match="a queue or an exchange"):
        made.bind("x")
    with pytest.raises(BindingRefused, match="a queue or an exchange"):
        made.bind("x", queue="q", exchange="x")
    with pytest.raises(BindingRefused, match="the key is text"):
        made.bind("x", queue="q", key=5)
    with pytest.raises(BindingRefused, match="no value for"):
        made.bind("x", queue="q", arguments={"a": [{1, 2}]})


def test_a_bad_type_alternate_or_pattern_is_refused():
    made = topology("q", x="topic")
    with pytest.raises(DeclarationRefused, match="no type 'x-delayed'"):
        made.declare_exchange("y", "x-delayed")
    with pytest.raises(DeclarationRefused, match="is a name"):
        made.declare_exchange("y", "topic", arguments={"alternate-exchange": 5})
    with pytest.raises(BindingRefused, match="255"):
        made.bind("x", queue="q", key="a" * 256)


def test_every_refusal_is_a_routing_error_that_can_be_pickled():
    for problem in (
        UnknownExchange("x"),
        UnknownQueue("q"),
        NotEquivalent("exchange 'x'", "type", "direct", "topic"),
        BindingRefused("why"),
    ):
        arrived = pickle.loads(pickle.dumps(problem))
        assert isinstance(arrived, RoutingError)
        assert str(arrived) == str(problem)


# ---- what came over AMQP


@pytest.mark.parametrize("exchange", ["f", "h", "t"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2**63, -(2**63) - 1, [1], b"x"])
def test_a_header_that_no_filter_can_compare_exists(exchange, value):
    filters = (
        "EXISTS(x)", "x IS NULL", "NOT EXISTS(x)", "x IS NOT NULL", "x > 1", "x < 1", "NOT x > 1",
        "x = 1", "x <> 1", "NOT x = 1", "x IN (1, 2)", "x NOT IN (1, 2)", "x BETWEEN 0 AND 1",
        "x + 1 > 0", "-x < 0", "x / 2 < 1", "x LIKE '%'", "x = x",
    )  # fmt: skip
    made = topology(*filters, f="filter", h="headers", t="topic")
    for text in filters:
        made.bind("f", queue=text, filter=text)
        made.bind("h", queue=text, arguments={"x": None}, filter=text)
        made.bind("t", queue=text, key="#", filter=text)
    assert set(made.route(exchange, ("k", {"x": value})).queues) == {"EXISTS(x)", "x IS NULL"}


def test_a_headers_exchange_compares_values_that_no_filter_can():
    made = topology("big", "infinite", x="headers")
    made.bind("x", queue="big", arguments={"a": 2**64})
    made.bind("x", queue="infinite", arguments={"a": math.inf})
    assert set(made.route("x", ("k", {"a": 2**64})).queues) == {"big"}
    assert set(made.route("x", ("k", {"a": math.inf})).queues) == {"infinite"}


# ---- travelling


def test_a_pickled_topology_has_all_its_declarations():
    made = topology("q", "r", x="headers", y="filter", z="topic")
    made.declare_exchange("w", "fanout", alternate="x", internal=True)
    made.bind("x", queue="q", arguments={"a": 1, "b": [True, None]})
    made.bind("y", queue="r", filter="amount > 5 AND region = 'EU'")
    made.bind("z", exchange="y", key="a.#")
    made.bind("amq.topic", queue="q", key="#")
    arrived = pickle.loads(pickle.dumps(made))
    assert set(arrived.bindings()) == set(made.bindings())
    assert arrived.exchanges == made.exchanges
    assert arrived.queues == made.queues
    message = Message(topic="a.b", headers={"amount": 6, "region": "EU"})
    assert arrived.route("z", message) == made.route("z", message)
    arrived.delete_queue("r")
    assert arrived.route("z", message).unroutable


def test_a_header_that_is_no_time_of_any_calendar_is_routed_and_explained():
    topology = Topology()
    topology.declare_queue("q")
    topology.declare_queue("wanted")
    topology.bind("amq.headers", queue="q", arguments={"v": 5})
    topology.bind("amq.headers", queue="wanted", arguments={"w": "x"})
    for odd in (datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59), 10**6000, [10**6000]):
        assert topology.route("amq.headers", ("", {"v": odd, "w": "x"})).queues == {"wanted"}
        assert len(topology.explain("amq.headers", ("", {"v": odd, "w": "x"})).reasons) == 2


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("argument", "header", "equal"),
    [
        (NOON, NOON, False),
        (NOON, int(NOON.timestamp()), True),
        ([NOON], [NOON], True),
        ({"at": NOON}, {"at": NOON}, True),
        (None, NOON, True),
    ],
)
@pytest.mark.parametrize("match", ["all", "any", "all-with-x", None])
def test_a_headers_exchange_takes_a_timestamp_of_a_binding_for_an_integer_as_rabbitmq_does(
    argument, header, equal, match
):
    topology = Topology()
    topology.declare_queue("q")
    arguments = {"v": argument} if match is None else {"v": argument, "x-match": match}
    topology.bind("amq.headers", queue="q", arguments=arguments)
    assert [binding.arguments["v"] for binding in topology.bindings()] == [argument]
    assert bool(topology.route("amq.headers", ("", {"v": header})).queues) is equal
    [reason] = topology.explain("amq.headers", ("", {"v": header})).reasons
    assert reason.matched is equal
    topology.unbind("amq.headers", queue="q", arguments=arguments)
    assert topology.route("amq.headers", ("", {"v": header})).unroutable


@pytest.mark.parametrize("arguments", [{5: 1}, {5: 1, "a": 2}, {None: 1}, {b"a": 1}])
def test_the_names_of_arguments_are_text(arguments):
    topology = Topology()
    topology.declare_queue("q")
    with pytest.raises(BindingRefused, match="the names of its arguments must be text"):
        topology.bind("amq.headers", queue="q", arguments=arguments)


def test_a_misspelt_exchange_is_answered_with_the_nearest_name():
    topology = Topology()
    topology.declare_exchange("orders", "topic")
    with pytest.raises(UnknownExchange, match="no exchange 'order'; did you mean 'orders'"):
        topology.route("order", Message(b"", topic="a"))

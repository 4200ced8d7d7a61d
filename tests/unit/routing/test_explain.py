"""Why a binding did not match."""

from __future__ import annotations

import pytest

from headgate.message import OPAQUE, Message
from headgate.routing.topology import Topology


def why_not(kind: str, message: Message, **given: object) -> str:
    made = Topology()
    made.declare_exchange("x", kind)
    made.declare_queue("q")
    made.bind("x", queue="q", **given)
    explained = made.explain("x", message)
    (reason,) = explained.reasons
    assert reason.matched is not explained.routed.unroutable
    return reason.why_not


@pytest.mark.parametrize(
    ("kind", "given", "message", "why"),
    [
        ("direct", {"key": "a"}, Message(topic="b"), "the routing key is 'b', not 'a'"),
        ("direct", {"key": "a"}, Message(topic="a"), ""),
        ("topic", {"key": "a.*"}, Message(topic="a"), "the topic 'a' does not match 'a.*'"),
        ("fanout", {}, Message(), ""),
        ("headers", {"arguments": {"a": 1, "b": 2}}, Message(headers={"a": 1}), "header 'b' is absent"),
        ("headers", {"arguments": {"a": 1}}, Message(headers={"a": 2}), "header 'a' is 2, not 1"),
        (
            "headers",
            {"arguments": {"a": 1}},
            Message(headers={"a": "1"}),
            "header 'a' is the text '1', not the int 1",
        ),
        ("headers", {"arguments": {"x-match": "any"}}, Message(), "it matches any of no headers, which is nothing"),
        (
            "headers",
            {"arguments": {"x-match": "any", "a": 1, "b": 2}},
            Message(headers={"a": 3}),
            "header 'a' is 3, not 1; header 'b' is absent",
        ),
        ("headers", {"arguments": {"a": None}}, Message(headers={"a": OPAQUE}), ""),
        (
            "filter",
            {"filter": "region = 'EU' AND amount > 1000"},
            Message(headers={"region": "EU", "amount": 5}),
            "amount > 1000 is FALSE: amount is 5",
        ),
        (
            "filter",
            {"filter": "region = 'EU' AND amount > 1000"},
            Message(headers={"amount": 5000}),
            "region = 'EU' is UNKNOWN: region is absent",
        ),
        ("filter", {"filter": "a = 1"}, Message(headers={"a": OPAQUE}),
         "a = 1 is UNKNOWN: a holds nothing a filter can compare"),
        ("filter", {"filter": "a = 1 OR b = 2"}, Message(), "a = 1 OR b = 2 is UNKNOWN: a is absent; b is absent"),
        ("filter", {"filter": "FALSE"}, Message(), "FALSE is FALSE"),
        ("topic", {"key": "#", "filter": "a = 1"}, Message(headers={"a": 2}), "a = 1 is FALSE: a is 2"),
    ],
)  # fmt: skip
def test_the_first_condition_that_failed_is_named(kind, given, message, why):
    assert why_not(kind, message, **given) == why


def test_every_exchange_on_the_way_is_explained():
    made = Topology()
    made.declare_exchange("a", "topic", alternate="b")
    made.declare_exchange("b", "fanout")
    for name in ("q", "r"):
        made.declare_queue(name)
    made.bind("a", queue="q", key="x")
    made.bind("b", queue="r")
    explained = made.explain("a", ("y", {}))
    assert [(r.binding.destination, r.matched) for r in explained.reasons] == [
        ("q", False),
        ("r", True),
    ]
    assert explained.routed.via == ("a", "b")


def test_raw_headers_are_explained_by_value():
    made = Topology()
    made.declare_exchange("x", "headers")
    made.declare_queue("q")
    made.bind("x", queue="q", arguments={"a": [1, 2]})
    (reason,) = made.explain("x", ("", {"a": [1, 3]})).reasons
    assert reason.why_not == "header 'a' is [1, 3], not [1, 2]"

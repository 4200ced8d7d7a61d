"""Advice names what no index makes fast, and problems are declarations without effect."""

from __future__ import annotations

import pytest

from headgate.routing.advice import MANY
from headgate.routing.topology import Topology


def hostile(kind: str, *given: dict) -> Topology:
    made = Topology()
    made.declare_exchange("x", kind)
    for n, arguments in enumerate(given):
        made.declare_queue(f"q{n}")
        made.bind("x", queue=f"q{n}", **arguments)
    return made


@pytest.mark.parametrize(
    ("kind", "given", "about"),
    [
        ("headers", [{"arguments": {"region": "EU"}}] * MANY, "same value"),
        ("headers", [{"arguments": {"region": None}}] * MANY, "same value"),
        ("headers", [{"filter": f"amount > {n}"} for n in range(MANY)], "no equality"),
        ("filter", [{"filter": f"amount > {n}"} for n in range(MANY)], "ranges only"),
        ("filter", [{"filter": f"h{n} IS NULL"} for n in range(MANY)], "no equality"),
        ("filter", [{"filter": f"a = 1 AND b < {n}"} for n in range(MANY)], "same value"),
        ("filter", [{"filter": f"sys.topic MATCHES '#.w{n}.#'"} for n in range(MANY)], "leading #"),
        ("topic", [{"key": f"#.w{n}.#"} for n in range(MANY)], "leading #"),
        ("topic", [{"key": "a.#", "filter": f"b <> {n}"} for n in range(MANY)], "ranges only"),
        ("fanout", [{}] * MANY, "fan-out"),
    ],
)
def test_advice_names_what_no_index_makes_fast(kind, given, about):
    (entry,) = hostile(kind, *given).advise()
    assert (entry.exchange, entry.about) == ("x", about)
    assert entry.bindings == MANY
    assert f"{MANY:,}" in entry.text


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("headers", [{"arguments": {"tenant": n}} for n in range(MANY)]),
        ("filter", [{"filter": f"tenant = {n} AND amount > 5"} for n in range(MANY)]),
        ("topic", [{"key": f"a.{n}.#"} for n in range(MANY)]),
        ("direct", [{"key": str(n)} for n in range(MANY)]),
    ],
)
def test_advice_does_not_name_what_an_index_makes_fast(kind, given):
    assert hostile(kind, *given).advise() == []


def test_problems_are_declarations_without_effect():
    made = Topology()
    made.declare_exchange("a", "headers", alternate="gone")
    made.declare_exchange("b", "fanout")
    made.declare_queue("q")
    made.bind("a", queue="q", arguments={"x-match": "any"})
    made.bind("a", queue="q", filter="c = 1 AND c = 2")
    made.bind("a", exchange="b", arguments={"d": 1})
    found = {(problem.where, problem.text) for problem in made.validate()}
    assert found == {
        ("exchange 'a'", "its alternate 'gone' does not exist; declare it"),
        ("binding 'a' to queue 'q'", "it matches any of no headers, which is nothing"),
        ("binding 'a' to queue 'q'", "its filter never matches: c = 1 AND c = 2"),
        ("binding 'a' to exchange 'b'", "nothing is bound to that exchange: messages end there"),
    }

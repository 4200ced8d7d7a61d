"""Bindings that are made in bulk are inserted together, each exactly once."""

from __future__ import annotations

import pytest

from headgate.errors import UnknownQueue
from headgate.matching.index import EqualityIndex
from headgate.routing import exchanges
from headgate.routing.topology import Topology


def topology_of(count: int) -> Topology:
    topology = Topology()
    topology.declare_exchange("x", "headers")
    for n in range(count):
        topology.declare_queue(f"q{n}")
    return topology


def wanted(n: int) -> dict:
    return {"a": str(n % 2), "b": str(n)}


def bound(numbers) -> list[dict]:
    return [{"source": "x", "queue": f"q{n}", "arguments": wanted(n)} for n in numbers]


def reached(topology: Topology, count: int) -> list[set]:
    return [set(topology.route("x", ("", wanted(n))).queues) for n in range(count)]


@pytest.mark.parametrize("together", [1, 3, 100])
def test_bindings_before_one_that_is_refused_are_bound(monkeypatch, together):
    monkeypatch.setattr(exchanges, "BULK", together)
    topology = topology_of(4)
    with pytest.raises(UnknownQueue):
        topology.bind_all(bound([0, 1, 2, 99, 3]))
    assert reached(topology, 4) == [{"q0"}, {"q1"}, {"q2"}, set()]


def test_an_interruption_inserts_nothing_twice(monkeypatch):
    monkeypatch.setattr(exchanges, "BULK", 2)
    insert, calls = EqualityIndex.insert, []

    def interrupted(index, entries):
        insert(index, entries)
        calls.append(entries)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(EqualityIndex, "insert", interrupted)
    topology = topology_of(4)
    with pytest.raises(KeyboardInterrupt):
        topology.bind_all(bound(range(4)))
    for n in range(4):
        topology.unbind("x", queue=f"q{n}", arguments=wanted(n))
    assert reached(topology, 4) == [set()] * 4
    topology.bind_all(bound(range(4)))
    assert reached(topology, 4) == [{f"q{n}"} for n in range(4)]


def test_an_empty_bulk_changes_nothing():
    topology = topology_of(1)
    topology.bind_all(bound([0]))
    topology.bind_all([])
    assert reached(topology, 1) == [{"q0"}]

"""The routing half of a pipeline file: its exchanges and bindings, or a topology file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from headgate.errors import HeadgateError, RoutingError
from headgate.pipelines.definition import Sink
from headgate.pipelines.entries import Entry, Problems
from headgate.pipelines.places import absolute
from headgate.routing import EXCHANGE_KEYS, Topology, read_binding, read_declaration

ENTRY: Final = "pipeline"  # the name of an exchange that was given none


class Routes(NamedTuple):
    """Who gets which message, and the exchange all of them enter."""

    topology: Topology
    exchange: str
    refused: frozenset[str] = frozenset()  # queues of bindings that are a problem already


def read_routes(document: dict[str, Any], base: Path, problems: Problems) -> Routes | None:
    """The routes the file describes; None when there is nothing to go by."""
    if "topology" in document:
        return _from_topology(Entry(document, "the file", problems), base)
    given = document.get("exchange")
    if given is None or given == []:
        problems.note(
            "[exchange]",
            'is missing; add [exchange] with type = "headers", or topology = "topology.toml"',
        )
        return None
    if isinstance(given, str):
        problems.note(
            "exchange", 'a bare name goes with topology = "topology.toml"; or write [exchange]'
        )
        return None
    return _from_tables(document, given if isinstance(given, list) else [given], problems)


def _from_topology(entry: Entry, base: Path) -> Routes | None:
    path, exchange = entry.text("topology"), entry.given.get("exchange")
    if not isinstance(exchange, str):
        entry.note('topology needs exchange = "name": the one that messages enter')
    if "binding" in entry:
        entry.note("has [[binding]] and a topology; bindings stand in the topology file")
    if path is None or not isinstance(exchange, str):
        return None
    try:
        topology = Topology.load(absolute(path, base))
    except (HeadgateError, OSError) as problem:
        entry.note(f"topology: {problem}")
        return None
    if exchange not in topology.exchanges:
        known = ", ".join(sorted(name for name in topology.exchanges if name))
        entry.note(f"exchange: {path} has no exchange {exchange!r}; it has {known}")
        return None
    return Routes(topology, exchange)


def _from_tables(document: dict[str, Any], exchanges: list[Any], problems: Problems) -> Routes:
    topology = Topology()
    names = [_declare(topology, *at, problems) for at in enumerate(exchanges, 1)]
    bindings = document.get("binding", [])
    if not isinstance(bindings, list) or not bindings:
        problems.note("[[binding]]", 'is missing; add [[binding]] with queue = "…"')
        bindings = []
    refused = {
        _bind(topology, names[0], entry, f"[[binding]] {number}", problems)
        for number, entry in enumerate(bindings, 1)
    }
    return Routes(topology, names[0], frozenset(name for name in refused if name is not None))


def _declare(topology: Topology, number: int, given: Any, problems: Problems) -> str:
    where = "[exchange]" if number == 1 else f"[[exchange]] {number}"
    name = given.get("name", ENTRY) if isinstance(given, dict) else ENTRY
    try:
        arguments = read_declaration(given, EXCHANGE_KEYS | {"name"}, where)
        topology.declare_exchange(**{"name": name, **arguments})
    except (RoutingError, TypeError) as problem:
        problems.note(where, str(problem).removeprefix(f"{where}: "))
        with suppress(RoutingError, TypeError):  # stands in, so that its bindings are looked at too
            topology.declare_exchange(str(name), "headers")
    return str(name)


def _bind(
    topology: Topology, entrance: str, given: Any, where: str, problems: Problems
) -> str | None:
    """Bind what the entry says; the queue's name when it cannot be bound."""
    said = {"from": entrance, **given} if isinstance(given, dict) else given
    try:
        arguments = read_binding(said, where)
        if isinstance(arguments.get("queue"), str):
            topology.declare_queue(arguments["queue"])
        topology.bind(**arguments)
    except (RoutingError, TypeError) as problem:
        problems.note(where, str(problem).removeprefix(f"{where}: "))
        return str(said.get("queue")) if isinstance(said, dict) else None
    return None


# ---- queues and sinks --------------------------------------------------------------------------------


def without_partner(routes: Routes | None, sinks: Iterable[Sink], problems: Problems) -> None:
    """Note the queues that have no sink and the sinks whose queue nothing leads to."""
    if routes is None:
        return
    reached = {*reachable(routes), *routes.refused}
    served = {sink.queue for sink in sinks if sink.queue}
    for queue in sorted(reached - served):
        problems.note(
            f"queue {queue!r}", f'has no sink; add [[sink]] with queue = "{queue}" and to = "…"'
        )
    for queue in sorted(served - reached):
        problems.note(
            f"sink of {queue!r}",
            f'nothing leads to this queue; add [[binding]] with queue = "{queue}", or drop the sink',
        )


def reachable(routes: Routes) -> Iterator[str]:
    """The queues that some message can get into from the exchange all enter."""
    exchanges, work, seen = routes.topology.exchanges, [routes.exchange], {routes.exchange}
    for name in work:
        if name not in exchanges:
            continue
        onward = [exchanges[name].alternate]
        for binding in routes.topology.bindings(name):
            if binding.kind == "queue":
                yield binding.destination
            else:
                onward.append(binding.destination)
        for other in onward:
            if other is not None and other not in seen:
                seen.add(other)
                work.append(other)

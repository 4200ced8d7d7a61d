"""The routing half of a pipeline file: its exchanges and bindings, or a topology file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from headgate.errors import HeadgateError, RoutingError
from headgate.pipelines.definition import Sink
from headgate.pipelines.places import absolute_path
from headgate.pipelines.tables import Problems, TomlTable
from headgate.routing import EXCHANGE_KEYS, Topology, read_binding, read_declaration

DEFAULT_NAME: Final = "pipeline"  # of an exchange without a name


class Routes(NamedTuple):
    """Which queue gets which message, and the exchange that all messages enter."""

    topology: Topology
    exchange: str
    refused: frozenset[str] = frozenset()  # queues of bindings that are reported as problems


def read_routes(document: dict[str, Any], base: Path, problems: Problems) -> Routes | None:
    """Read the routes of a file; None when it has none."""
    if "topology" in document:
        return _load_topology(TomlTable(document, "the file", problems), base)
    exchange = document.get("exchange")
    if exchange is None or exchange == []:
        problems.add(
            "[exchange]",
            'is missing; add [exchange] with type = "headers", or topology = "topology.toml"',
        )
        return None
    if isinstance(exchange, str):
        problems.add(
            "exchange", 'a name alone needs topology = "topology.toml"; or write [exchange]'
        )
        return None
    return _read_tables(document, exchange if isinstance(exchange, list) else [exchange], problems)


def _load_topology(file: TomlTable, base: Path) -> Routes | None:
    path, exchange = file.text("topology"), file.values.get("exchange")
    if not isinstance(exchange, str):
        file.add_problem('topology needs exchange = "name": the one that messages enter')
    if "binding" in file:
        file.add_problem("has [[binding]] and a topology; move the bindings to the topology file")
    if path is None or not isinstance(exchange, str):
        return None
    try:
        topology = Topology.load(absolute_path(path, base))
    except (HeadgateError, OSError) as problem:
        file.add_problem(f"topology: {problem}")
        return None
    if exchange not in topology.exchanges:
        known = ", ".join(sorted(name for name in topology.exchanges if name))
        file.add_problem(f"exchange: {path} has no exchange {exchange!r}; it has {known}")
        return None
    return Routes(topology, exchange)


def _read_tables(document: dict[str, Any], exchanges: list[Any], problems: Problems) -> Routes:
    topology = Topology()
    names = [
        _declare(topology, number, table, problems) for number, table in enumerate(exchanges, 1)
    ]
    bindings = document.get("binding", [])
    if not isinstance(bindings, list) or not bindings:
        problems.add("[[binding]]", 'is missing; add [[binding]] with queue = "…"')
        bindings = []
    refused = {
        _bind(topology, names[0], table, f"[[binding]] {number}", problems)
        for number, table in enumerate(bindings, 1)
    }
    return Routes(topology, names[0], frozenset(name for name in refused if name is not None))


def _declare(topology: Topology, number: int, table: Any, problems: Problems) -> str:
    """Declare an exchange; return its name."""
    where = "[exchange]" if number == 1 else f"[[exchange]] {number}"
    name = table.get("name", DEFAULT_NAME) if isinstance(table, dict) else DEFAULT_NAME
    try:
        arguments = read_declaration(table, EXCHANGE_KEYS | {"name"}, where)
        topology.declare_exchange(**{"name": name, **arguments})
    except (RoutingError, TypeError) as problem:
        problems.add(where, str(problem).removeprefix(f"{where}: "))
        with suppress(RoutingError, TypeError):  # a stand-in, so that its bindings are checked too
            topology.declare_exchange(str(name), "headers")
    return str(name)


def _bind(
    topology: Topology, exchange: str, table: Any, where: str, problems: Problems
) -> str | None:
    """Bind as the table says; return None, or the queue's name if that is refused."""
    table = {"from": exchange, **table} if isinstance(table, dict) else table
    try:
        arguments = read_binding(table, where)
        if isinstance(arguments.get("queue"), str):
            topology.declare_queue(arguments["queue"])
        topology.bind(**arguments)
    except (RoutingError, TypeError) as problem:
        problems.add(where, str(problem).removeprefix(f"{where}: "))
        return str(table.get("queue")) if isinstance(table, dict) else None
    return None


# ---- queues and sinks --------------------------------------------------------------------------------


def check_partners(routes: Routes | None, sinks: Iterable[Sink], problems: Problems) -> None:
    """Report queues without a sink, and sinks whose queue no binding leads to."""
    if routes is None:
        return
    reached = {*reachable_queues(routes), *routes.refused}
    served = {sink.queue for sink in sinks if sink.queue}
    for queue in sorted(reached - served):
        problems.add(
            f"queue {queue!r}", f'has no sink; add [[sink]] with queue = "{queue}" and to = "…"'
        )
    for queue in sorted(served - reached):
        problems.add(
            f"sink of {queue!r}",
            f'no binding leads to this queue; add [[binding]] with queue = "{queue}", or delete the sink',
        )


def reachable_queues(routes: Routes) -> Iterator[str]:
    """Yield the queues that a message can reach from the entry exchange."""
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

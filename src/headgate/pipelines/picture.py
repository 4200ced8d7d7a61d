"""A pipeline as a figure: source, exchanges, queues and places, and what has to hold on the way between them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias
from typing import Literal as OneOf

from headgate.pipelines.definition import FormatSource, Pipeline, QueueSource
from headgate.pipelines.queue_url import QUEUE, queue_place
from headgate.queues import SERVERS
from headgate.routing import X_FILTER, X_MATCH, Binding

Kind: TypeAlias = OneOf["source", "exchange", "queue", "place", "nobody"]

MOST_CONDITIONS: Final = 4  # of one edge; the rest is a number
NOBODY: Final = "no queue"
_ON_SERVERS: Final = tuple(QUEUE + scheme for scheme in SERVERS)


@dataclass(frozen=True, slots=True)
class Node:
    """Something messages come from, pass, or end in."""

    kind: Kind
    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """A way from one node to another, with what has to hold to take it; any one is enough."""

    start: Node
    end: Node
    conditions: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        shown = list(self.conditions[:MOST_CONDITIONS])
        more = len(self.conditions) - len(shown)
        return " | ".join([*shown, f"… and {more:,} more"] if more else shown)


@dataclass(frozen=True, slots=True)
class Figure:
    """Nodes in the order messages pass them, and the ways between them."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def after(self, node: Node) -> Iterator[Edge]:
        return (edge for edge in self.edges if edge.start == node)


def figure(pipeline: Pipeline) -> Figure:
    """The pipeline's figure; paths as seen from its file."""
    edges = [*_entering(pipeline), *_routing(pipeline), *_leaving(pipeline)]
    nodes = dict.fromkeys(node for edge in edges for node in (edge.start, edge.end))
    return Figure(tuple(nodes), tuple(edges))


def _entering(pipeline: Pipeline) -> Iterator[Edge]:
    source = pipeline.source
    asked = () if source.filter is None else (source.filter,)
    if isinstance(source, FormatSource):
        nodes = [Node("source", f"{source.format} {_near(source.path or '', pipeline)}".strip())]
    elif isinstance(source, QueueSource):
        what = f"{source.states} in" if source.looks_once else "archive of"
        nodes = [Node("source", f"{what} {_near(source.queue, pipeline)}")]
    else:
        nodes = [Node("source", f"stream {_near(path, pipeline)}") for path in source.streams]
    for node in nodes:
        yield Edge(node, _exchange(pipeline.exchange, pipeline), asked)


def _routing(pipeline: Pipeline) -> Iterator[Edge]:
    exchanges, work = pipeline.topology.exchanges, [pipeline.exchange]
    for name in work:
        start = _exchange(name, pipeline)
        by_target: dict[Node, list[str]] = {}
        for binding in pipeline.topology.bindings(name):
            end = _target(binding, pipeline)
            by_target.setdefault(end, []).append(condition(binding))
        alternate = exchanges[name].alternate
        if alternate in exchanges:
            by_target.setdefault(_exchange(str(alternate), pipeline), []).append("nobody else")
        for end, conditions in by_target.items():
            yield Edge(start, end, tuple(conditions))
            if end.kind == "exchange" and end.name not in work:
                work.append(end.name)


def _leaving(pipeline: Pipeline) -> Iterator[Edge]:
    for sink in pipeline.sinks:
        yield Edge(Node("queue", sink.queue), Node("place", _near(sink.to, pipeline)))
    nobody = Node("nobody", NOBODY)
    yield Edge(_exchange(pipeline.exchange, pipeline), nobody, ("unroutable",))
    if pipeline.dead_letter is not None:
        yield Edge(nobody, Node("place", _near(pipeline.dead_letter, pipeline)))


def _exchange(name: str, pipeline: Pipeline) -> Node:
    return Node("exchange", name, pipeline.topology.exchanges[name].type)


def _target(binding: Binding, pipeline: Pipeline) -> Node:
    if binding.kind == "queue":
        return Node("queue", binding.destination)
    return _exchange(binding.destination, pipeline)


def condition(binding: Binding) -> str:
    """What the binding asks for, in one line."""
    arguments = binding.arguments
    match, text = arguments.pop(X_MATCH, None), arguments.pop(X_FILTER, None)
    pairs = [f"{k} is there" if v is None else f"{k} = {v!r}" for k, v in arguments.items()]
    joint = " or " if str(match).startswith("any") else " and "
    said = [f"key {binding.key}"] if binding.key else []
    said += [joint.join(pairs)] if pairs else []
    said += [str(text)] if text else []
    return "; ".join(said) or "everything"


def _near(place: str, pipeline: Pipeline) -> str:
    """The place as the file would say it, without its directory, and without who asks and how."""
    if place.startswith(_ON_SERVERS):
        return queue_place(place).shown
    base = f"{pipeline.file.absolute().parent}{os.sep}"
    place = place.replace(base, "")
    head, at, tail = place.rpartition("@")
    scheme, slashes, who = head.partition("://")
    return f"{scheme}{slashes}{who.partition(':')[0]}{at}{tail}" if at and slashes else place


# ---- as text -----------------------------------------------------------------------------------------


def to_lines(drawn: Figure) -> list[str]:
    """A tree for the terminal; what was drawn before is named again, not drawn again."""
    seen: set[Node] = set()
    lines: list[str] = []
    for node in drawn.nodes:
        if node.kind == "source":
            lines.append(node.name)
            lines += _below(drawn, node, "", seen)
    return lines


def _below(drawn: Figure, node: Node, indent: str, seen: set[Node]) -> Iterator[str]:
    edges = list(drawn.after(node))
    for at, edge in enumerate(edges):
        last = at == len(edges) - 1
        again = edge.end in seen and any(drawn.after(edge.end))
        yield f"{indent}{'└─' if last else '├─'} {_said(edge)}{' ↑' if again else ''}"
        if not again:
            seen.add(edge.end)
            yield from _below(drawn, edge.end, indent + ("   " if last else "│  "), seen)


def _said(edge: Edge) -> str:
    end = edge.end
    name = f"{end.name} ({end.detail})" if end.detail else end.name
    arrow = "→ " if end.kind == "place" else ""
    what = {"exchange": "exchange ", "queue": "queue "}.get(end.kind, "")
    return f"{arrow}{what}{name}" + (f": {edge.label}" if edge.conditions else "")


# ---- as Mermaid --------------------------------------------------------------------------------------

_SHAPES: Final[dict[Kind, tuple[str, str]]] = {
    "source": ("[(", ")]"),
    "exchange": ("{{", "}}"),
    "queue": ("[", "]"),
    "place": ("[(", ")]"),
    "nobody": ("([", "])"),
}


def to_mermaid(drawn: Figure) -> str:
    """The figure for Markdown pages that draw Mermaid."""
    number = {node: f"n{at}" for at, node in enumerate(drawn.nodes)}
    lines = ["flowchart LR"]
    for node in drawn.nodes:
        left, right = _SHAPES[node.kind]
        name = f"{node.name}<br/>{node.detail}" if node.detail else node.name
        lines.append(f'  {number[node]}{left}"{_quoted(name)}"{right}')
    for edge in drawn.edges:
        label = f'|"{_quoted(edge.label)}"|' if edge.conditions else ""
        lines.append(f"  {number[edge.start]} -->{label} {number[edge.end]}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace('"', "#quot;").replace("\n", " ")

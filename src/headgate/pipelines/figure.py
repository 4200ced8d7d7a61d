"""A pipeline as a figure: source, exchanges, queues, places and the conditions between them; as text, Mermaid or SVG."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final, NamedTuple, TypeAlias
from typing import Literal as OneOf

from headgate.pipelines.definition import FormatSource, Pipeline, QueueSource
from headgate.pipelines.places import is_queue, queue_place
from headgate.routing import Binding, describe_condition

NodeKind: TypeAlias = OneOf["source", "exchange", "queue", "place", "unroutable"]

MOST_CONDITIONS: Final = 4  # shown of one edge; the others are counted
UNROUTABLE: Final = "no queue"


@dataclass(frozen=True, slots=True)
class FigureNode:
    """A source, exchange, queue or place."""

    kind: NodeKind
    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """The way from one node to another; a message takes it when any one of the conditions holds."""

    start: FigureNode
    end: FigureNode
    conditions: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        shown = list(self.conditions[:MOST_CONDITIONS])
        more = len(self.conditions) - len(shown)
        return " | ".join([*shown, f"… and {more:,} more"] if more else shown)


@dataclass(frozen=True, slots=True)
class Figure:
    """Nodes in the order messages pass them, and the edges between them."""

    nodes: tuple[FigureNode, ...]
    edges: tuple[Edge, ...]

    def edges_from(self, node: FigureNode) -> Iterator[Edge]:
        return (edge for edge in self.edges if edge.start == node)


def figure_of(pipeline: Pipeline) -> Figure:
    """Return the figure of a pipeline, with paths relative to its file."""
    edges = [*_source_edges(pipeline), *_binding_edges(pipeline), *_sink_edges(pipeline)]
    nodes = dict.fromkeys(node for edge in edges for node in (edge.start, edge.end))
    return Figure(tuple(nodes), tuple(edges))


def _source_edges(pipeline: Pipeline) -> Iterator[Edge]:
    source = pipeline.source
    conditions = () if source.filter is None else (source.filter,)
    if isinstance(source, FormatSource):
        nodes = [
            FigureNode(
                "source", f"{source.format} {_relative_place(source.path or '', pipeline)}".strip()
            )
        ]
    elif isinstance(source, QueueSource):
        content = f"{source.states} in" if source.reads_once else "archive of"
        nodes = [FigureNode("source", f"{content} {_relative_place(source.queue, pipeline)}")]
    else:
        nodes = [
            FigureNode("source", f"stream {_relative_place(path, pipeline)}")
            for path in source.streams
        ]
    for node in nodes:
        yield Edge(node, _exchange(pipeline.exchange, pipeline), conditions)


def _binding_edges(pipeline: Pipeline) -> Iterator[Edge]:
    exchanges, work = pipeline.topology.exchanges, [pipeline.exchange]
    for name in work:
        start = _exchange(name, pipeline)
        by_target: dict[FigureNode, list[str]] = {}
        for binding in pipeline.topology.bindings(name):
            end = _target(binding, pipeline)
            by_target.setdefault(end, []).append(describe_condition(binding.key, binding.arguments))
        alternate = exchanges[name].alternate
        if alternate in exchanges:
            by_target.setdefault(_exchange(str(alternate), pipeline), []).append("unroutable")
        for end, conditions in by_target.items():
            yield Edge(start, end, tuple(conditions))
            if end.kind == "exchange" and end.name not in work:
                work.append(end.name)


def _sink_edges(pipeline: Pipeline) -> Iterator[Edge]:
    for sink in pipeline.sinks:
        yield Edge(
            FigureNode("queue", sink.queue), FigureNode("place", _relative_place(sink.to, pipeline))
        )
    unroutable = FigureNode("unroutable", UNROUTABLE)
    yield Edge(_exchange(pipeline.exchange, pipeline), unroutable, ("unroutable",))
    if pipeline.dead_letter is not None:
        yield Edge(unroutable, FigureNode("place", _relative_place(pipeline.dead_letter, pipeline)))


def _exchange(name: str, pipeline: Pipeline) -> FigureNode:
    return FigureNode("exchange", name, pipeline.topology.exchanges[name].type)


def _target(binding: Binding, pipeline: Pipeline) -> FigureNode:
    if binding.kind == "queue":
        return FigureNode("queue", binding.destination)
    return _exchange(binding.destination, pipeline)


def _relative_place(place: str, pipeline: Pipeline) -> str:
    """Return the place as the file writes it, without the file's directory, user, password and settings."""
    if is_queue(place) and (parsed := queue_place(place)).file is None:
        return parsed.shown
    base = f"{pipeline.file.absolute().parent}{os.sep}"
    place = place.replace(base, "")
    head, at, tail = place.rpartition("@")
    scheme, slashes, login = head.partition("://")
    return f"{scheme}{slashes}{login.partition(':')[0]}{at}{tail}" if at and slashes else place


# ---- as text -----------------------------------------------------------------------------------------


def to_lines(drawn: Figure) -> list[str]:
    """Draw a tree for the terminal; a node that was drawn before is named, and not drawn again."""
    seen: set[FigureNode] = set()
    lines: list[str] = []
    for node in drawn.nodes:
        if node.kind == "source":
            lines.append(node.name)
            lines += _subtree(drawn, node, "", seen)
    return lines


def _subtree(drawn: Figure, node: FigureNode, indent: str, seen: set[FigureNode]) -> Iterator[str]:
    edges = list(drawn.edges_from(node))
    for at, edge in enumerate(edges):
        last = at == len(edges) - 1
        again = edge.end in seen and any(drawn.edges_from(edge.end))
        yield f"{indent}{'└─' if last else '├─'} {_edge_text(edge)}{' ↑' if again else ''}"
        if not again:
            seen.add(edge.end)
            yield from _subtree(drawn, edge.end, indent + ("   " if last else "│  "), seen)


def _edge_text(edge: Edge) -> str:
    end = edge.end
    name = f"{end.name} ({end.detail})" if end.detail else end.name
    arrow = "→ " if end.kind == "place" else ""
    kind = {"exchange": "exchange ", "queue": "queue "}.get(end.kind, "")
    return f"{arrow}{kind}{name}" + (f": {edge.label}" if edge.conditions else "")


# ---- as Mermaid --------------------------------------------------------------------------------------

_SHAPES: Final[dict[NodeKind, tuple[str, str]]] = {
    "source": ("[(", ")]"),
    "exchange": ("{{", "}}"),
    "queue": ("[", "]"),
    "place": ("[(", ")]"),
    "unroutable": ("([", "])"),
}


def to_mermaid(drawn: Figure) -> str:
    """Write the figure for Markdown pages that draw Mermaid."""
    number = {node: f"n{at}" for at, node in enumerate(drawn.nodes)}
    lines = ["flowchart LR"]
    for node in drawn.nodes:
        left, right = _SHAPES[node.kind]
        name = f"{node.name}<br/>{node.detail}" if node.detail else node.name
        lines.append(f'  {number[node]}{left}"{_quote(name)}"{right}')
    for edge in drawn.edges:
        label = f'|"{_quote(edge.label)}"|' if edge.conditions else ""
        lines.append(f"  {number[edge.start]} -->{label} {number[edge.end]}")
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    return text.replace('"', "#quot;").replace("\n", " ")


# ---- as SVG ------------------------------------------------------------------------------------------

_ROW: Final = 64
_BOX: Final = 44
_GAP: Final = 70
_MARGIN: Final = 24
_CHARACTER: Final = 7.0  # pixels of a character in the font below
_LONGEST: Final = 56  # characters of a line; a longer one is cut, and complete in the title
_STYLE: Final = """
  text { font: 12px ui-monospace, monospace; fill: #1b1f24 }
  .small { font-size: 10.5px; fill: #59636e }
  rect { fill: #f6f8fa; stroke: #8c959f; rx: 6 }
  .exchange rect { stroke: #0969da; stroke-width: 1.5 }
  .unroutable rect { stroke-dasharray: 4 3 }
  path { fill: none; stroke: #8c959f }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 }
    rect { fill: #151b23; stroke: #656c76 } .exchange rect { stroke: #4493f8 } path { stroke: #656c76 }
  }
"""


class _Box(NamedTuple):
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.y + _BOX / 2


def to_svg(drawn: Figure) -> str:
    """Write the figure as one SVG document, light or dark as the reader's screen is."""
    boxes = _layout(drawn)
    width = max(box.x + box.width for box in boxes.values()) + _MARGIN
    height = max(box.y for box in boxes.values()) + _BOX + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">',
        f"<style>{_STYLE}</style>",
        *(_curve(boxes[edge.start], boxes[edge.end], edge) for edge in drawn.edges),
        *(_rectangle(drawn, node, box) for node, box in boxes.items()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def columns(drawn: Figure) -> dict[FigureNode, int]:
    """Return the column of each node: its distance from the sources; places are in the last one."""
    steps = {node: 0 for node in drawn.nodes if node.kind == "source"}
    for _ in drawn.nodes:  # exchanges may form a cycle: a step for each node is enough
        for edge in drawn.edges:
            if edge.start in steps:
                steps.setdefault(edge.end, steps[edge.start] + 1)
    queues = 1 + max(steps.get(node, 0) for node in drawn.nodes if node.kind == "exchange")
    fixed = {"queue": queues, "unroutable": queues, "place": queues + 1}
    return {node: fixed.get(node.kind, steps.get(node, 0)) for node in drawn.nodes}


def _layout(drawn: Figure) -> dict[FigureNode, _Box]:
    step = columns(drawn)
    boxes: dict[FigureNode, _Box] = {}
    x: float = _MARGIN
    for column in range(max(step.values()) + 1):
        nodes = [node for node in drawn.nodes if step[node] == column]
        width = max((_width(drawn, node) for node in nodes), default=0.0)
        for row, node in enumerate(nodes):
            boxes[node] = _Box(x, _MARGIN + row * _ROW, width)
        x += width + _GAP
    return boxes


def _width(drawn: Figure, node: FigureNode) -> float:
    longest = max(len(_shorten(node.name)), len(_shorten(_conditions(drawn, node))))
    return longest * _CHARACTER + 24


def _conditions(drawn: Figure, node: FigureNode) -> str:
    """Return the type of an exchange, or the conditions of the edges that lead to the node."""
    if node.detail:
        return node.detail
    return " | ".join(edge.label for edge in drawn.edges if edge.end == node and edge.conditions)


def _rectangle(drawn: Figure, node: FigureNode, box: _Box) -> str:
    below = _conditions(drawn, node)
    first = box.middle + (-3 if below else 4)
    small = (
        f'<text class="small" x="{box.x + 12}" y="{first + 16}">{escape(_shorten(below))}</text>'
    )
    return (
        f'<g class="{node.kind}"><title>{escape(f"{node.name}: {below}" if below else node.name)}</title>'
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{_BOX}"/>'
        f'<text x="{box.x + 12}" y="{first}">{escape(_shorten(node.name))}</text>{small if below else ""}</g>'
    )


def _curve(start: _Box, end: _Box, edge: Edge) -> str:
    x, to = start.x + start.width, end.x
    bend = max(abs(to - x) / 2, 30)
    path = (
        f"M{x} {start.middle} C{x + bend} {start.middle} {to - bend} {end.middle} {to} {end.middle}"
    )
    return f'<path d="{path}"><title>{escape(edge.label)}</title></path>'


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

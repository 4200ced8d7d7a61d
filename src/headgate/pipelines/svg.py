"""A pipeline's figure as SVG: one column for each step a message takes, light or dark as the reader's screen is."""

from __future__ import annotations

from html import escape
from typing import Final, NamedTuple

from headgate.pipelines.picture import Edge, Figure, Node

_ROW: Final = 64
_BOX: Final = 44
_GAP: Final = 70
_MARGIN: Final = 24
_CHARACTER: Final = 7.0  # pixels of one in the font below
_LONGEST: Final = 56  # characters of a line; longer ones are cut, and whole in the title
_STYLE: Final = """
  text { font: 12px ui-monospace, monospace; fill: #1b1f24 }
  .small { font-size: 10.5px; fill: #59636e }
  rect { fill: #f6f8fa; stroke: #8c959f; rx: 6 }
  .exchange rect { stroke: #0969da; stroke-width: 1.5 }
  .nobody rect { stroke-dasharray: 4 3 }
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
    """The figure as one SVG document."""
    boxes = _placed(drawn)
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


def columns(drawn: Figure) -> dict[Node, int]:
    """How many steps from the sources each node is, at most; places stand last of all."""
    steps = {node: 0 for node in drawn.nodes if node.kind == "source"}
    for _ in drawn.nodes:  # exchanges may lead in a circle: a step for each node is enough
        for edge in drawn.edges:
            if edge.start in steps:
                steps.setdefault(edge.end, steps[edge.start] + 1)
    queues = 1 + max(steps.get(node, 0) for node in drawn.nodes if node.kind == "exchange")
    fixed = {"queue": queues, "nobody": queues, "place": queues + 1}
    return {node: fixed.get(node.kind, steps.get(node, 0)) for node in drawn.nodes}


def _placed(drawn: Figure) -> dict[Node, _Box]:
    step = columns(drawn)
    boxes: dict[Node, _Box] = {}
    x: float = _MARGIN
    for column in range(max(step.values()) + 1):
        nodes = [node for node in drawn.nodes if step[node] == column]
        width = max((_width(drawn, node) for node in nodes), default=0.0)
        for row, node in enumerate(nodes):
            boxes[node] = _Box(x, _MARGIN + row * _ROW, width)
        x += width + _GAP
    return boxes


def _width(drawn: Figure, node: Node) -> float:
    longest = max(len(_cut(node.name)), len(_cut(_conditions(drawn, node))))
    return longest * _CHARACTER + 24


def _conditions(drawn: Figure, node: Node) -> str:
    """What has to hold to get here, or what kind of exchange it is."""
    if node.detail:
        return node.detail
    return " | ".join(edge.label for edge in drawn.edges if edge.end == node and edge.conditions)


def _rectangle(drawn: Figure, node: Node, box: _Box) -> str:
    below = _conditions(drawn, node)
    first = box.middle + (-3 if below else 4)
    small = f'<text class="small" x="{box.x + 12}" y="{first + 16}">{escape(_cut(below))}</text>'
    return (
        f'<g class="{node.kind}"><title>{escape(f"{node.name}: {below}" if below else node.name)}</title>'
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{_BOX}"/>'
        f'<text x="{box.x + 12}" y="{first}">{escape(_cut(node.name))}</text>{small if below else ""}</g>'
    )


def _curve(start: _Box, end: _Box, edge: Edge) -> str:
    x, to = start.x + start.width, end.x
    bend = max(abs(to - x) / 2, 30)
    path = (
        f"M{x} {start.middle} C{x + bend} {start.middle} {to - bend} {end.middle} {to} {end.middle}"
    )
    return f'<path d="{path}"><title>{escape(edge.label)}</title></path>'


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

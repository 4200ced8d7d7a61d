"""The page of exchanges and bindings: a drawing, and a trace of who would receive a message and why others do not."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from headgate.broker import VirtualHost
from headgate.errors import HeadgateError
from headgate.insights import RouteFacts, explain_route, list_exchanges, refresh
from headgate.message import project_headers
from headgate.routing import Binding, describe_condition
from headgate.web.pages.listing import Cell, ListColumn, ListRow, number_cell
from headgate.web.pages.queues import queue_path
from headgate.web.pages.rendering import query_text, rate_text
from headgate.web.pages.visit import PageTable, Visit
from headgate.web.problems import HttpProblem

pages: Final = PageTable()

MOST_DRAWN: Final = 120  # bindings; more of them are a table only
MOST_LISTED: Final = 500
_DEFAULT: Final = "amq.default"
_STEP: Final = 52
_RIGHT: Final = 620
EXCHANGE_COLUMNS: Final = (
    ListColumn("exchange"),
    ListColumn("type"),
    ListColumn("in /s", True),
    ListColumn("out /s", True),
    ListColumn("unroutable", True),
    ListColumn("policy"),
)
BINDING_COLUMNS: Final = (
    ListColumn("from"),
    ListColumn("to"),
    ListColumn("kind"),
    ListColumn("condition"),
)


@pages.get("/exchanges")
async def show_exchanges(visit: Visit) -> Response:
    refresh(visit.site.running)
    vhosts = visit.vhosts()
    vhost = _choose(vhosts, visit.ask("vhost", "/"))
    traced = visit.ask("exchange").replace(_DEFAULT, "")
    route, problem = _trace(visit, vhost, traced)
    bindings = list(vhost.topology.bindings())
    return visit.render(
        "exchanges.html",
        vhosts=[each.name for each in vhosts],
        vhost=vhost.name,
        names=sorted({"", *vhost.topology.exchanges}),
        traced=traced,
        key=visit.ask("key"),
        headers=visit.ask("headers"),
        problem=problem,
        route=route,
        graph=draw(vhost, bindings, route) if 0 < len(bindings) <= MOST_DRAWN else None,
        exchange_columns=EXCHANGE_COLUMNS,
        exchanges=_exchange_rows(vhost),
        binding_columns=BINDING_COLUMNS,
        bindings=[_binding_row(vhost, binding) for binding in bindings[:MOST_LISTED]],
    )


def _choose(vhosts: list[VirtualHost], name: str) -> VirtualHost:
    found = [vhost for vhost in vhosts if vhost.name == name] or vhosts
    if not found:
        raise HttpProblem(403, "you may enter no virtual host; ask for a permission")
    return found[0]


def _trace(visit: Visit, vhost: VirtualHost, exchange: str) -> tuple[RouteFacts | None, str]:
    """The route of the message that the query describes, or what is wrong with it."""
    if "exchange" not in visit.request.query_params:
        return None, ""
    key = visit.ask("key")
    try:
        headers = _parse_headers(visit.ask("headers"))
        if not exchange:
            queues = (key,) if key in vhost.queues else ()
            return RouteFacts(queues, not queues, ("",), ()), ""
        return explain_route(vhost.topology, exchange, topic=key, headers=headers), ""
    except (HeadgateError, LookupError) as problem:
        return None, str(problem)


def _parse_headers(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise HeadgateError(f"headers are not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise HeadgateError('headers must be an object such as {"region": "EU"}')
    return dict(project_headers(found))


def _exchange_rows(vhost: VirtualHost) -> list[ListRow]:
    rows = []
    for facts in list_exchanges([vhost]):
        name, flow = facts.exchange.name, facts.flow
        lost = flow.counts["return_unroutable"] + flow.counts["drop_unroutable"]
        link = "/exchanges" + query_text({"vhost": vhost.name, "exchange": name or _DEFAULT})
        rates = [number_cell(r, rate_text(r)) for r in (flow.rates["publish_in"], flow.rates["publish_out"])]  # fmt: skip
        cells = (
            Cell(name or "(default)", link),
            Cell(facts.exchange.type),
            *rates,
            number_cell(lost),
            Cell(facts.policy or "–"),
        )
        rows.append(ListRow(cells))
    return rows


def _binding_row(vhost: VirtualHost, binding: Binding) -> ListRow:
    to_queue = binding.kind == "queue"
    link = queue_path(vhost.name, binding.destination) if to_queue else None
    condition = describe_condition(binding.key, binding.arguments)
    return ListRow(
        (
            Cell(binding.source),
            Cell(binding.destination, link),
            Cell(binding.kind),
            Cell(condition, mono=True),
        )
    )


# ---- the drawing -------------------------------------------------------------------------------------


class DrawnNode(NamedTuple):
    kind: str
    text: str
    detail: str
    href: str
    x: int
    y: int


class DrawnEdge(NamedTuple):
    path: str
    text: str
    x: int
    y: int
    lit: bool


class Drawing(NamedTuple):
    """Exchanges on the left, queues on the right, and curves between them."""

    width: int
    height: int
    nodes: list[DrawnNode]
    edges: list[DrawnEdge]


def draw(vhost: VirtualHost, bindings: list[Binding], route: RouteFacts | None) -> Drawing:
    """Place what the bindings join; bindings that a traced message took are lit."""
    sources = dict.fromkeys(binding.source for binding in bindings)
    sources |= dict.fromkeys(b.destination for b in bindings if b.kind == "exchange")
    queues = dict.fromkeys(b.destination for b in bindings if b.kind == "queue")
    left = {name: i * _STEP + 8 for i, name in enumerate(sources)}
    right = {name: i * _STEP + 8 for i, name in enumerate(queues)}
    types = {name: found.type for name, found in vhost.topology.exchanges.items()}
    nodes = [
        DrawnNode("exchange", _short(name), types.get(name, ""), _exchange_link(vhost, name), 4, y)
        for name, y in left.items()
    ]
    nodes += [
        DrawnNode(
            "queue", _short(name), _ready(vhost, name), queue_path(vhost.name, name), _RIGHT, y
        )
        for name, y in right.items()
    ]
    taken = {(b.source, b.destination, b.key) for b in route.bindings if b.matched} if route else ()
    edges = [_edge(binding, left, right, taken) for binding in bindings]
    height = max(len(left), len(right)) * _STEP + 16
    return Drawing(_RIGHT + 210, height, nodes, edges)


def _edge(binding: Binding, left: dict[str, int], right: dict[str, int], taken: Any) -> DrawnEdge:
    start = left[binding.source] + 19
    to_queue = binding.kind == "queue"
    end = (right if to_queue else left)[binding.destination] + 19
    lit = (binding.source, binding.destination, binding.key) in taken
    text = _short(describe_condition(binding.key, binding.arguments), 40)
    if not to_queue:
        path = f"M204 {start} C 280 {start}, 280 {end}, 204 {end}"
        return DrawnEdge(path, text, 268, (start + end) // 2, lit)
    path = f"M204 {start} C 330 {start}, 310 {end}, 440 {end} H {_RIGHT}"  # flat below its text
    return DrawnEdge(path, text, 452, end - 8, lit)


def _exchange_link(vhost: VirtualHost, name: str) -> str:
    return "/exchanges" + query_text({"vhost": vhost.name, "exchange": name})


def _ready(vhost: VirtualHost, name: str) -> str:
    queue = vhost.queues.get(name)
    return "" if queue is None else f"{len(queue):,} ready"


def _short(text: str, most: int = 24) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"

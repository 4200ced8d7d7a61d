"""The first page of a broker: its numbers as they change, and what needs attention; and the page to log in."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from headgate.insights import broker_facts, find_attention, node_facts, refresh
from headgate.web.pages.live import live_feed
from headgate.web.pages.visit import PageTable, Visit

pages: Final = PageTable()


@pages.get("/")
async def show_overview(visit: Visit) -> Response:
    broker, node = visit.site.running, visit.site.node
    refresh(broker)
    vhosts = visit.vhosts()
    return visit.render(
        "overview.html",
        node=node,
        facts=node_facts(broker, node),
        totals=broker_facts(broker, vhosts),
        attention=find_attention(broker, vhosts),
        snapshot=live_feed(visit.site).read(),
    )


@pages.get("/login", needs=None)
async def show_login(visit: Visit) -> Response:
    return visit.render("login.html", next=visit.ask("next", "/"), failed=visit.ask("failed") != "")

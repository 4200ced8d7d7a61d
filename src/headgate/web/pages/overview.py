"""The overview of a broker, with live numbers and what needs attention; and the login page."""

from __future__ import annotations

from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from headgate.errors import HeadgateError
from headgate.insights import (
    Attention,
    broker_facts,
    find_attention,
    find_sql_attention,
    node_facts,
    refresh,
)
from headgate.web.pages.live import live_feeds
from headgate.web.pages.site import Site
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
        delayed=broker.delays.count,
        attention=await _find_attention(visit),
        snapshot=live_feeds(visit.site).find(visit).read(),
    )


@pages.get("/fragments/attention")
async def show_attention(visit: Visit) -> Response:
    """Only the list of what needs attention, with which an open overview is updated."""
    return visit.render("attention.html", attention=await _find_attention(visit))


async def _find_attention(visit: Visit) -> list[Attention]:
    found = find_attention(visit.site.running, visit.vhosts())
    if visit.site.database is not None and visit.may_see_stored():
        found += await run_in_threadpool(_sql_attention, visit.site)
    return found


def _sql_attention(site: Site) -> list[Attention]:
    try:
        with site.open_database() as database:
            return find_sql_attention(database)
    except HeadgateError:  # its own page says what is wrong
        return []


@pages.get("/login", needs=None)
async def show_login(visit: Visit) -> Response:
    return visit.render("login.html", next=visit.ask("next", "/"), failed=visit.ask("failed") != "")

"""The pages: HTML from the server, over the answers of `insights`."""

from __future__ import annotations

from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from headgate.web import metrics, subscribe
from headgate.web.pages import (
    clients,
    exchanges,
    live,
    messages,
    overview,
    playground,
    queues,
    settings,
    sql_queues,
    streams,
)
from headgate.web.pages.rendering import STATIC
from headgate.web.pages.site import Site as Site
from headgate.web.pages.visit import page_routes


def make_pages(site: Site) -> list[BaseRoute]:
    """The routes of all pages that a site has."""
    tables = [streams.pages, sql_queues.pages, messages.pages, playground.pages, metrics.pages]
    if site.broker is None:
        tables.append(subscribe.pages)
    else:
        of_broker = (overview, live, queues, exchanges, clients, settings)
        tables += [module.pages for module in of_broker]
    routes = [route for table in tables for route in page_routes(site, table)]
    return [*routes, Mount("/static", StaticFiles(directory=STATIC))]

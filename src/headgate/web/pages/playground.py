"""The filter playground: errors while typing, recent messages that match, and the term that failed for the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from headgate.insights import (
    Sighting,
    SnippetPlace,
    TriedMessage,
    common_values,
    explain_filter,
    filter_snippets,
    find_problem,
    list_stream_names,
    newest_in_queue,
    newest_in_stream,
    queues_by_name,
    try_filter,
)
from headgate.web.pages.queues import read_queue
from headgate.web.pages.rendering import caret_text
from headgate.web.pages.site import Place, Site, parse_place, queue_place
from headgate.web.pages.streams import heat_values
from headgate.web.pages.visit import PageTable, Visit
from headgate.web.problems import HttpProblem

pages: Final = PageTable()

RECENT: Final = 60  # messages that a filter is tried on
MOST_PLACES: Final = 500  # queues that are offered
MOST_SAMPLED: Final = 300  # messages whose values are offered


@dataclass(frozen=True, slots=True)
class TriedPlace:
    """The recent messages of a place, each with the answer of the filter."""

    trials: list[TriedMessage]


@pages.get("/playground")
async def show_playground(visit: Visit) -> Response:
    places = broker_places(visit)
    if visit.may_see_stored():
        places += await run_in_threadpool(list_places, visit.site)
    of = visit.ask("of") or (places[0].of if places else "")
    seen = await recent_messages(visit, of, RECENT)
    values = await run_in_threadpool(_try_values, visit, of, seen)
    return visit.render("playground.html", places=places, **values)


@pages.get("/fragments/tried")
async def show_tried(visit: Visit) -> Response:
    """The trial of a filter that is being typed, as a part of the page."""
    of = visit.ask("of")
    seen = await recent_messages(visit, of, RECENT)
    values = await run_in_threadpool(_try_values, visit, of, seen)
    return visit.render("tried.html", **values)


@pages.get("/filter/check")
def check_filter(visit: Visit) -> Response:
    """Check the text of a filter; answer what is wrong, and where."""
    problem = find_problem(visit.ask("filter"))
    if problem is None:
        return JSONResponse({"ok": True})
    return JSONResponse({"ok": False, "at": problem.at, "text": caret_text(problem)})


@pages.get("/filter/fields")
async def offer_fields(visit: Visit) -> Response:
    """Names of headers and properties, and their most common values, from recent messages."""
    seen = await recent_messages(visit, visit.ask("of"), MOST_SAMPLED)
    return JSONResponse(common_values([each.message for each in seen]))


def broker_places(visit: Visit) -> list[Place]:
    """The queues of the broker that the user may read."""
    if visit.site.broker is None:
        return []
    queues = islice(queues_by_name(visit.vhosts()), MOST_PLACES)
    return [queue_place(q.vhost.name, q.name) for q in queues if visit.may_read(q)]


def list_places(site: Site) -> list[Place]:
    """The streams and queues that the playground can read."""
    places: list[Place] = []
    if site.data is not None:
        places += [Place("stream", name) for name in list_stream_names(site.data)]
    if site.database is not None:
        with site.open_database() as database:
            places += [Place("sql", info.name) for info in database.queues()]
    return places


async def recent_messages(visit: Visit, of: str, limit: int) -> tuple[Sighting, ...]:
    """The newest messages of a stream or queue, without a filter."""
    if not of:
        return ()
    place = parse_place(of)
    if place.kind != "queue":
        visit.check_stored()
        return await run_in_threadpool(_recent_stored, visit.site, place, limit)
    queue = visit.find_queue(place.vhost, place.queue_name)
    if not visit.may_read(queue):
        raise HttpProblem(403, "you may not read the messages of this queue")
    return (await read_queue(queue, None, limit=limit)).messages


def _recent_stored(site: Site, place: Place, limit: int) -> tuple[Sighting, ...]:
    if place.kind == "stream":
        return newest_in_stream(site.stream_path(place.name), limit=limit).messages
    with site.open_database() as database:
        return newest_in_queue(database.find(place.name), limit=limit).messages


def _try_values(visit: Visit, of: str, seen: Sequence[Sighting]) -> dict[str, Any]:
    """The values for the template `tried.html`."""
    text = visit.ask("filter")
    problem = find_problem(text)
    values: dict[str, Any] = {
        "of": of,
        "filter": text,
        "problem": problem,
        "tried": None,
        "strip": None,
        "explained": None,
        "matched": 0,
        "snippets": {},
    }
    if problem is not None or not text.strip():
        return values
    place = parse_place(of) if of else Place("", "orders")
    trials = try_filter(text, seen)
    explained = explain_filter(text)
    values |= {
        "tried": TriedPlace(trials),
        "matched": sum(each.matches for each in trials),
        "explained": explained,
        "snippets": filter_snippets(explained, _snippet_place(visit, place)),
    }
    if place.kind == "stream":
        values |= heat_values(visit, visit.site.stream_path(place.name), text)
    return values


def _snippet_place(visit: Visit, place: Place) -> SnippetPlace:
    site = visit.site
    if place.kind == "stream":
        return SnippetPlace("stream", str(site.directory / place.name))
    if place.kind == "sql":
        return SnippetPlace("sql", place.name, database=site.database_text)
    http = str(visit.request.base_url).rstrip("/")
    name, vhost = place.queue_name, place.vhost
    for listener in site.node.listeners:
        if listener.protocol == "amqp":
            amqp = f"amqp://{visit.request.url.hostname}:{listener.port}"
            return SnippetPlace(place.kind, name, vhost=vhost, http=http, amqp=amqp)
    return SnippetPlace(place.kind, name, vhost=vhost, http=http)

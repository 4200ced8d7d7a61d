"""The filter playground: errors as one types, recent messages that match, and the term that failed for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from headgate.insights import (
    Sighting,
    TriedMessage,
    common_values,
    explain_filter,
    filter_snippets,
    find_problem,
    list_stream_names,
    newest_in_queue,
    newest_in_stream,
    try_filter,
)
from headgate.web.pages.rendering import caret_text
from headgate.web.pages.site import Place, Site, parse_place
from headgate.web.pages.streams import heat_values
from headgate.web.pages.visit import PageTable, Visit

pages: Final = PageTable()

RECENT: Final = 60  # messages that a filter is tried on
SAMPLED: Final = 300  # messages whose values are offered


@dataclass(frozen=True, slots=True)
class TriedPlace:
    """The recent messages of a place, each with the answer of the filter."""

    trials: list[TriedMessage]


@pages.get("/playground")
def show_playground(visit: Visit) -> Response:
    places = list_places(visit.site)
    of = visit.ask("of") or (places[0].of if places else "")
    values = _try_values(visit, of)
    return visit.render("playground.html", places=places, **values)


@pages.get("/fragments/tried")
def show_tried(visit: Visit) -> Response:
    """What the filter does, for one that is being typed."""
    return visit.render("tried.html", **_try_values(visit, visit.ask("of")))


@pages.get("/filter/check")
def check_filter(visit: Visit) -> Response:
    """Whether a text is a filter; if not, what is wrong and where."""
    problem = find_problem(visit.ask("filter"))
    if problem is None:
        return JSONResponse({"ok": True})
    return JSONResponse({"ok": False, "at": problem.at, "text": caret_text(problem)})


@pages.get("/filter/fields")
def offer_fields(visit: Visit) -> Response:
    """Names of headers and properties, and their most common values, from recent messages."""
    seen = recent_messages(visit.site, visit.ask("of"), SAMPLED)
    return JSONResponse(common_values([each.message for each in seen]))


def list_places(site: Site) -> list[Place]:
    """What the playground can read."""
    places: list[Place] = []
    if site.data is not None:
        places += [Place("stream", name) for name in list_stream_names(site.data)]
    if site.database is not None:
        with site.open_database() as database:
            places += [Place("sql", info.name) for info in database.queues()]
    return places


def recent_messages(site: Site, of: str, limit: int) -> tuple[Sighting, ...]:
    """The newest messages of a place, whatever they are."""
    if not of:
        return ()
    place = parse_place(of)
    if place.kind == "stream":
        return newest_in_stream(site.stream_path(place.name), limit=limit).messages
    with site.open_database() as database:
        return newest_in_queue(database.find(place.name), limit=limit).messages


def _try_values(visit: Visit, of: str) -> dict[str, Any]:
    """What `tried.html` draws."""
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
    trials = try_filter(text, recent_messages(visit.site, of, RECENT))
    explained = explain_filter(text)
    values |= {
        "tried": TriedPlace(trials),
        "matched": sum(each.matches for each in trials),
        "explained": explained,
        "snippets": filter_snippets(explained, place.kind, _snippet_name(visit.site, place)),
    }
    if place.kind == "stream":
        values |= heat_values(visit, visit.site.stream_path(place.name), text)
    return values


def _snippet_name(site: Site, place: Place) -> str:
    return str(site.directory / place.name) if place.kind == "stream" else place.name

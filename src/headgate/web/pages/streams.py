"""The pages of streams: all of them, and one with its chunks and messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from starlette.responses import Response

from headgate.insights import (
    HeatStrip,
    MessagePage,
    find_problem,
    heat_strip,
    list_pipelines,
    list_spark_queries,
    list_streams,
    messages_from,
    newest_in_stream,
    stream_details,
    time_bounds,
)
from headgate.web.pages.visit import PageTable, Visit

pages: Final = PageTable()

LONG_S: Final = 20.0  # for reading all chunks that a filter needs


@pages.get("/streams", needs="monitoring")
def show_streams(visit: Visit) -> Response:
    found = list_streams(visit.site.data) if visit.site.data is not None else []
    example = (visit.site.data or Path("data")) / "orders"
    return visit.render("streams.html", streams=found, example=example)


@pages.get("/pipelines", needs="monitoring")
def show_pipelines(visit: Visit) -> Response:
    found = list_pipelines(visit.site.data) if visit.site.data is not None else []
    return visit.render("pipelines.html", pipelines=found)


@pages.get("/stream", needs="monitoring")
def show_stream(visit: Visit) -> Response:
    name, text, start = visit.ask("name"), visit.ask("filter"), visit.ask("from")
    path = visit.site.stream_path(name)
    details, problem = stream_details(path), find_problem(text)
    first_time, last_time = time_bounds(path)
    page = None if problem else _read_page(visit, path, text, start)
    following = page.following if page else None
    moved = {"from" if start else "before": following}
    return visit.render(
        "stream.html",
        name=name,
        of=f"stream:{name}",
        filter=text,
        start=start,
        budget="",
        problem=problem,
        details=details,
        facts=details.facts,
        queries=list_spark_queries(visit.site.directory, path),
        first_time=first_time,
        last_time=last_time,
        strip=None if problem else heat_strip(path, text or None),
        more=visit.link(budget="long"),
        path_text=str(path),
        page=page,
        following=None if following is None else visit.link(**moved),
        at_start=not visit.ask("before") and not start,
        beginning=visit.link(before=None, **{"from": None}),
    )


def _read_page(visit: Visit, path: Path, text: str, start: str) -> MessagePage:
    if start:
        return messages_from(path, start, text or None)
    return newest_in_stream(path, text or None, before=visit.ask_number("before"))


@pages.get("/fragments/heat", needs="monitoring")
def show_heat(visit: Visit) -> Response:
    """The heat strip alone, for a filter that is being typed."""
    name = visit.ask("of").partition(":")[2]
    path, text = visit.site.stream_path(name), visit.ask("filter")
    return visit.render("heat.html", **heat_values(visit, path, text))


def heat_values(visit: Visit, path: Path, text: str) -> dict[str, Any]:
    """The values for the template `heat.html`."""
    long = visit.ask("budget") == "long"
    strip: HeatStrip = (
        heat_strip(path, text or None, budget_s=LONG_S) if long else heat_strip(path, text or None)
    )
    return {"strip": strip, "more": visit.link(budget="long"), "path_text": str(path)}

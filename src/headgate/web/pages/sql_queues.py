"""The pages of queues on SQL: all of them, and one with its messages, which administrators of a broker may change."""

from __future__ import annotations

import time
from typing import Final

from starlette.responses import Response

from headgate.insights import find_problem, list_queues, newest_in_queue, queue_facts
from headgate.queues import State
from headgate.web.pages.visit import PageTable, Visit, parse_moment
from headgate.web.problems import HttpProblem

pages: Final = PageTable()


@pages.get("/sql-queues", needs="monitoring")
def show_queues(visit: Visit) -> Response:
    found = []
    if visit.site.database is not None:
        with visit.site.open_database() as database:
            found = list_queues(database)
    return visit.render("sql_queues.html", queues=found, database=visit.site.database_text)


@pages.get("/sql-queue", needs="monitoring")
def show_queue(visit: Visit) -> Response:
    name, text, since = visit.ask("name"), visit.ask("filter"), visit.ask("since")
    problem = find_problem(text)
    with visit.site.open_database() as database:
        facts = queue_facts(database, name)
        page, advice = None, None
        if problem is None:
            advice = database.find(name).index_advise(text) if text else None
            page = newest_in_queue(
                database.find(name),
                text or None,
                before=visit.ask_number("before"),
                state=_parse_state(visit.ask("state")),
                since=parse_moment(since),
            )
    following = page.following if page else None
    may_change = visit.identity is not None and visit.identity.has("administrator")
    return visit.render(
        "sql_queue.html",
        name=name,
        of=f"sql:{name}",
        filter=text,
        since=since,
        state=visit.ask("state"),
        problem=problem,
        facts=facts,
        rates=visit.site.samples.rates(facts, time.monotonic()),
        page=page,
        advice=advice if advice is not None and advice.scans else None,
        following=None if following is None else visit.link(before=following),
        at_start=not visit.ask("before"),
        beginning=visit.link(before=None),
        may_change=may_change,
        may_publish=may_change and facts.kind == "queue",
    )


def _parse_state(text: str) -> State | None:
    try:
        return State[text.upper()] if text else None
    except KeyError:
        raise HttpProblem(400, f"{text!r} is no state; try ready, leased, delayed, dead") from None

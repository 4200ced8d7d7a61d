"""One request for a page: its user, its query, and the rendering of its answer."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from headgate.broker import BrokerQueue, PermissionKind, VirtualHost
from headgate.errors import HeadgateError, QueueNotFound, StreamNotFound
from headgate.streams.read import parse_start
from headgate.web.guard import identity_of
from headgate.web.identity import Identity, Tag, identify_again
from headgate.web.pages.rendering import make_environment, query_text
from headgate.web.pages.site import Site
from headgate.web.problems import HttpProblem, not_authorised, problem_of, problem_response
from headgate.web.sessions import COOKIE

# The path of the list above each page of one object.
ABOVE: Final = {"/queue": "/queues", "/stream": "/streams", "/sql-queue": "/sql-queues"}
log: Final = logging.getLogger(__name__)


@cache
def _environment() -> Environment:
    return make_environment()


@dataclass(frozen=True, slots=True)
class Visit:
    """A request for a page of a site."""

    site: Site
    request: Request
    identity: Identity | None

    def ask(self, name: str, default: str = "") -> str:
        """A value of the query."""
        return self.request.query_params.get(name, default)

    def ask_number(self, name: str) -> int | None:
        text = self.ask(name)
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise HttpProblem(400, f"{name} must be a number, not {text!r}")
        return int(text)

    def vhosts(self) -> list[VirtualHost]:
        """The virtual hosts that the user may see."""
        broker = self.site.running
        return [vhost for name, vhost in sorted(broker.vhosts.items()) if self.may_see(name)]

    def may_see(self, vhost: str) -> bool:
        who = self.identity
        if who is None:
            return False
        return who.has("administrator") or self.site.running.access.may_enter(who.login, vhost)

    def find_queue(self, vhost: str, name: str) -> BrokerQueue:
        """A queue in a virtual host that the user may see; `may_read` tells whether its messages may be shown."""
        if (
            self.identity is None
            or vhost not in self.site.running.vhosts
            or not self.may_see(vhost)
        ):
            raise HttpProblem(404, f"there is no virtual host {vhost!r} for you")
        queue = self.site.running.vhosts[vhost].queues.get(name)
        if queue is None:
            raise HttpProblem(404, f"there is no queue {name!r} in {vhost!r}; was it deleted?")
        return queue

    def may_see_stored(self) -> bool:
        """Whether the user may look into streams and databases, which have no permissions of their own."""
        if self.site.broker is None:
            return True
        return self.identity is not None and self.identity.has("monitoring")

    def check_stored(self) -> None:
        if not self.may_see_stored():
            raise HttpProblem(403, "streams and queues on SQL need the tag monitoring")

    def may(self, kind: PermissionKind, vhost: str, name: str) -> bool:
        """Whether the user may configure, write or read the queue or exchange of this name."""
        access, who = self.site.running.access, self.identity
        return who is not None and access.may(who.login, vhost, kind, name)

    def may_read(self, queue: BrokerQueue) -> bool:
        """Whether the user may look into the messages of a queue."""
        return self.may("read", queue.vhost.name, queue.name)

    def may_watch(self, user: str) -> bool:
        """Whether the user may see what the clients of another do."""
        return self.identity is not None and self.identity.may_watch(user)

    def may_steer(self, user: str) -> bool:
        """Whether the user may change or close what a client of another does."""
        return self.identity is not None and self.identity.may_steer(user)

    def is_current(self) -> bool:
        """Whether the user is still logged in and may see pages; answers that last long check it again."""
        if self.site.broker is None:
            return True
        if self.identity is None:
            return False
        token = self.request.cookies.get(COOKIE)
        by_session = "authorization" not in self.request.headers
        if by_session and not self.request.app.state.sessions.holds(token or ""):
            return False
        known = identify_again(self.site.broker, self.identity)
        return known is not None and known.has("management")

    def link(self, **changes: Any) -> str:
        """This page with other values in its query."""
        return self.request.url.path + query_text({**self.request.query_params, **changes})

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(self.render_text(template, **values), status)

    def render_text(self, template: str, **values: Any) -> str:
        frame = {
            "site": self.site,
            "menu": self.site.menu,
            "identity": self.identity,
            "here": self.request.url.path,
            "above": ABOVE.get(self.request.url.path, ""),
            "notices": (),
        }
        return _environment().get_template(template).render(frame | values)


def parse_moment(text: str) -> datetime | None:
    """A time, or an interval that ends now: `10m`."""
    if not text:
        return None
    match parse_start(text):
        case datetime() as moment:
            return moment
        case timedelta() as span:
            with suppress(OverflowError):  # an interval longer than time itself
                return datetime.now(UTC) - span
    raise HttpProblem(400, f"{text!r} is no time; try 10m, or 2026-11-15T10:00:00Z")


Answer = Callable[[Visit], Any]


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A path and the function that answers it; one that is not a coroutine runs in a thread."""

    path: str
    answer: Answer
    needs: Tag | None = "management"


class PageTable:
    """Pages of one subject."""

    def __init__(self) -> None:
        self.pages: list[PageEntry] = []

    def get(self, path: str, *, needs: Tag | None = "management") -> Callable[[Answer], Answer]:
        def declare(answer: Answer) -> Answer:
            self.pages.append(PageEntry(path, answer, needs))
            return answer

        return declare


def page_routes(site: Site, table: PageTable) -> list[Route]:
    """The routes of a table."""
    return [_route(site, page) for page in table.pages]


def _route(site: Site, page: PageEntry) -> Route:
    async def respond(request: Request) -> Response:
        visit = Visit(site, request, identity_of(request.scope))
        if (refusal := _admit(visit, page)) is not None:
            return refusal
        try:
            return await _answer(page, visit)
        except HeadgateError as problem:
            return _show_problem(visit, _page_problem(problem))
        except Exception:
            log.exception("GET %s failed", page.path)
            return _show_problem(visit, HttpProblem(500, "internal error, see the log"))

    return Route(page.path, respond, methods=["GET"])


async def _answer(page: PageEntry, visit: Visit) -> Response:
    if inspect.iscoroutinefunction(page.answer):
        response: Response = await page.answer(visit)
        return response
    return await run_in_threadpool(page.answer, visit)


def _admit(visit: Visit, page: PageEntry) -> Response | None:
    """Refuse a user who may not see a page; without a broker there are no users, and nothing is refused."""
    if visit.site.broker is None or page.needs is None:
        return None
    if visit.identity is None or not visit.identity.has("management"):
        if page.path.startswith(("/metrics", "/api/")):
            return problem_response(page.path, not_authorised("Login failed"))
        target = visit.request.url.path
        if visit.request.url.query:
            target += f"?{visit.request.url.query}"
        return RedirectResponse(f"/login?{urlencode({'next': target})}", 303)
    if not visit.identity.has(page.needs):
        return _show_problem(visit, HttpProblem(403, f"this needs the tag {page.needs}"))
    return None


def _page_problem(problem: HeadgateError) -> HttpProblem:
    if isinstance(problem, StreamNotFound | QueueNotFound):
        return HttpProblem(404, str(problem))
    return problem_of(problem)


def _show_problem(visit: Visit, problem: HttpProblem) -> Response:
    title = {403: "Not allowed", 404: "Not found", 500: "Something failed"}.get(
        problem.status, "That did not work"
    )
    return visit.render("problem.html", problem.status, title=title, reason=problem.reason)

"""The table of the API: methods and paths, the tag that each needs, and the functions that answer.

Permissions are checked here: `_admit` compares the tags of the user with the one that a path needs, `Call.vhost` and
`Call.may_see` refuse virtual hosts, and the functions of a path ask the broker's access control for the rest.

Paths are matched by their raw segments, because the names of queues and virtual hosts may hold an encoded slash.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote

from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headgate.broker import Broker, Login, VirtualHost
from headgate.errors import HeadgateError
from headgate.web.audit import audited
from headgate.web.guard import SAFE_METHODS, identity_of
from headgate.web.identity import Identity, Tag
from headgate.web.problems import (
    HttpProblem,
    bad_request,
    missing,
    not_authorised,
    problem_of,
    problem_response,
)

log: Final = logging.getLogger(__name__)

BODY_S: Final = 60.0  # how long the body of a request may take
MOST_FORM: Final = 100_000  # bytes of the form of a page
MOST_FIELDS: Final = 100
COMMIT_S: Final = 30.0  # how long a change may take to be durable
LONG: Final = 500  # rows of a list that are encoded at once, at most

Answer = TypeVar("Answer", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the user, the path, the query, the headers and the body."""

    broker: Broker
    identity: Identity
    values: Mapping[str, str]  # the parts of the path that vary, decoded
    query: QueryParams
    headers: Mapping[str, str]
    body: bytes = b""
    shared: Mapping[str, Any] = field(default_factory=dict)  # what all requests share, by name

    @property
    def login(self) -> Login:
        return self.identity.login

    def vhost(self) -> VirtualHost:
        """The virtual host that the path names; refused to users who may not use it."""
        vhost = self.broker.vhosts.get(self.values["vhost"])
        if vhost is None:
            raise missing()
        if not self.may_see(vhost.name):
            raise not_authorised("User not authorised to access virtual host")
        return vhost

    def vhosts(self) -> list[VirtualHost]:
        """The virtual host that the path names, or all that the user may use."""
        if "vhost" in self.values:
            return [self.vhost()]
        return [vhost for name, vhost in self.broker.vhosts.items() if self.may_see(name)]

    def may_see(self, vhost: str) -> bool:
        is_admin = self.identity.has("administrator")
        return is_admin or self.broker.access.may_enter(self.login, vhost)

    def document(self) -> dict[str, Any]:
        """The body, which must be a JSON object; no body is an empty one."""
        if not self.body.strip():
            return {}
        try:
            value = json.loads(self.body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as problem:
            raise bad_request(f"the body is not JSON: {problem}") from problem
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise bad_request("the body must be a JSON object")
        if b"\\u" in self.body:
            _check_unicode(value)
        return value


def _refuse_constant(name: str) -> Any:
    """JSON has no NaN and no Infinity, although Python reads them."""
    raise ValueError(f"{name} is no number")


def _check_unicode(value: Any) -> None:
    """Refuse halves of surrogate pairs, which JSON can escape and nothing can store."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as problem:
        raise bad_request("the body holds text that is not Unicode") from problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A method of a path."""

    method: str
    path: str
    answer: Callable[[Call], Any]
    needs: Tag | None  # the tag that a user needs to ask; None: no login is needed
    query: tuple[str, ...] = ()
    body: Mapping[str, Any] | None = None  # JSON schema
    # The parts of the body that the audit trail shows; None: the request is not in it at all.
    told: tuple[str, ...] | None = ()

    @property
    def segments(self) -> list[str]:
        return self.path.strip("/").split("/")


class EndpointTable:
    """Endpoints of one group, in the order in which they are declared."""

    def __init__(self) -> None:
        self.endpoints: list[Endpoint] = []

    def add(
        self,
        method: str,
        path: str,
        *,
        needs: Tag | None = "management",
        query: Iterable[str] = (),
        body: Mapping[str, Any] | None = None,
        told: Iterable[str] | None = (),
    ) -> Callable[[Answer], Answer]:
        """Let the function below answer a method of a path."""

        def declare(answer: Answer) -> Answer:
            self.endpoints.append(
                Endpoint(
                    method=method,
                    path=path,
                    answer=answer,
                    needs=needs,
                    query=tuple(query),
                    body=body,
                    told=None if told is None else tuple(told),
                )
            )
            return answer

        return declare

    def get(self, path: str, **more: Any) -> Callable[[Answer], Answer]:
        return self.add("GET", path, **more)

    def put(self, path: str, **more: Any) -> Callable[[Answer], Answer]:
        return self.add("PUT", path, **more)

    def post(self, path: str, **more: Any) -> Callable[[Answer], Answer]:
        return self.add("POST", path, **more)

    def delete(self, path: str, **more: Any) -> Callable[[Answer], Answer]:
        return self.add("DELETE", path, **more)


class _Node:
    """A node in the tree of paths."""

    __slots__ = ("below", "endpoints", "varying")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.varying: _Node | None = None
        self.endpoints: dict[str, Endpoint] = {}

    def add(self, segments: list[str], endpoint: Endpoint) -> None:
        if not segments:
            self.endpoints[endpoint.method] = endpoint
            return
        head, *rest = segments
        if head.startswith("{"):
            self.varying = self.varying or _Node()
            self.varying.add(rest, endpoint)
        else:
            self.below.setdefault(head, _Node()).add(rest, endpoint)

    def find(self, segments: list[str]) -> Iterator[_Node]:
        """The nodes that a path may mean, those with more fixed words first."""
        if not segments:
            if self.endpoints:
                yield self
            return
        head, *rest = segments
        if head in self.below:
            yield from self.below[head].find(rest)
        if self.varying is not None:
            yield from self.varying.find(rest)


class ApiRouter:
    """An ASGI app that answers the endpoints of some tables."""

    def __init__(
        self, broker: Broker, tables: Iterable[EndpointTable], shared: Mapping[str, Any]
    ) -> None:
        self._broker, self._shared = broker, shared
        self._root = _Node()
        self.endpoints = [endpoint for table in tables for endpoint in table.endpoints]
        for endpoint in self.endpoints:
            self._root.add(endpoint.segments, endpoint)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._respond(scope, receive)
        except HeadgateError as problem:
            response = problem_response(scope["path"], problem_of(problem))
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            response = problem_response(
                scope["path"], HttpProblem(500, "internal error, see the log")
            )
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        segments = _segments(scope)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        endpoint = self._find(segments, method)
        if isinstance(endpoint, Response):
            return endpoint
        if endpoint.method in SAFE_METHODS or endpoint.told is None:
            return await self._answer(
                endpoint, await self._read_call(endpoint, segments, scope, receive)
            )
        with audited(scope, identity_of(scope)) as told:
            call = await self._read_call(endpoint, segments, scope, receive)
            told |= _tell(call, endpoint.told)
            return await self._answer(endpoint, call)

    async def _read_call(
        self, endpoint: Endpoint, segments: list[str], scope: Scope, receive: Receive
    ) -> Call:
        return Call(
            self._broker,
            _admit(endpoint, identity_of(scope)),
            dict(_values(endpoint, segments)),
            QueryParams(scope["query_string"]),
            {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
            await read_body(receive) if endpoint.method != "GET" else b"",
            self._shared,
        )

    def _find(self, segments: list[str], method: str) -> Endpoint | Response:
        allowed: dict[str, None] = {}
        for node in self._root.find(segments):
            if method in node.endpoints:
                return node.endpoints[method]
            allowed.update(dict.fromkeys(node.endpoints))
        if not allowed:
            raise missing()
        allow = ", ".join((*allowed, *(("HEAD",) if "GET" in allowed else ()), "OPTIONS"))
        if method == "OPTIONS":
            return Response(status_code=200, headers={"Allow": allow})
        raise HttpProblem(405, f"this path takes {allow}", {"Allow": allow})

    async def _answer(self, endpoint: Endpoint, call: Call) -> Response:
        if endpoint.method in SAFE_METHODS:
            answer = endpoint.answer(call)
            if inspect.isawaitable(answer):
                answer = await answer
            if isinstance(answer, list) and len(answer) > LONG:
                answer = await encode_long(answer)
            return make_response(answer)
        try:
            answer = endpoint.answer(call)
            if inspect.isawaitable(answer):
                answer = await answer
            done = note_commit(self._broker)
        finally:
            self._broker.flush()
        try:
            await asyncio.wait_for(done, COMMIT_S)
        except TimeoutError:
            raise HttpProblem(503, "done, but not on disk yet: the store cannot commit") from None
        return make_response(answer)


def _tell(call: Call, names: Iterable[str]) -> dict[str, Any]:
    """The parts of a body that the audit trail shows: those that hold no secret."""
    if not names:
        return {}
    given = call.document()
    return {name: given[name] for name in names if name in given}


def note_commit(broker: Broker) -> asyncio.Future[None]:
    """Make a future that is done when everything that was done so far is durable."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    broker.after_commit(lambda: None if done.done() else done.set_result(None))
    return done


def make_response(answer: Any) -> Response:
    """Make a response: None becomes 204, a response stays, bytes are JSON already, other values become JSON."""
    if answer is None:
        return Response(status_code=204)
    if isinstance(answer, Response):
        return answer
    data = answer if isinstance(answer, bytes) else encode_json(answer)
    return Response(data, media_type="application/json")


async def encode_long(items: list[Any]) -> bytes:
    """Encode a long list as JSON in parts, so that other clients have their turn in between."""
    parts = []
    for start in range(0, len(items), LONG):
        parts.append(encode_json(items[start : start + LONG])[1:-1])
        await asyncio.sleep(0)
    return b"[%s]" % b",".join(parts)


def encode_json(value: Any) -> bytes:
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), default=_encode_other
    ).encode(errors="replace")


def _encode_other(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value)


def _segments(scope: Scope) -> list[str]:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0].decode("ascii", errors="replace")
    try:
        return [unquote(part, errors="strict") for part in path.strip("/").split("/")]
    except UnicodeDecodeError as problem:
        raise bad_request("the path is not UTF-8") from problem


def _values(endpoint: Endpoint, segments: list[str]) -> Iterator[tuple[str, str]]:
    for pattern, segment in zip(endpoint.segments, segments, strict=True):
        if pattern.startswith("{"):
            yield pattern[1:-1], segment


def _admit(endpoint: Endpoint, identity: Identity | None) -> Identity:
    """The identity, if it may use the endpoint; otherwise the request is refused."""
    if endpoint.needs is None:
        return identity or Identity(Login(""))
    if identity is None:
        raise not_authorised("Login failed")
    if not identity.has("management"):
        raise not_authorised("Not management user")
    if not identity.has(endpoint.needs):
        raise not_authorised(f"Not {endpoint.needs} user")
    return identity


async def read_body(receive: Receive, most: int | None = None) -> bytes:
    """The body of a request, which must not take long."""
    try:
        async with asyncio.timeout(BODY_S):
            return await _receive_all(receive, most)
    except TimeoutError:
        raise HttpProblem(408, "the body took too long", {"Connection": "close"}) from None


async def read_form(receive: Receive) -> dict[str, str]:
    """The fields of a form, few and short ones only: the form of the login can be sent without a login."""
    body = (await read_body(receive, MOST_FORM)).decode(errors="replace")
    try:
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise bad_request("the form has too many fields") from None


async def _receive_all(receive: Receive, most: int | None) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise bad_request("the client went away")
        parts.append(message.get("body", b""))
        if most is not None and sum(map(len, parts)) > most:
            raise HttpProblem(413, f"the body is larger than {most} bytes", {"Connection": "close"})
        if not message.get("more_body"):
            return b"".join(parts)

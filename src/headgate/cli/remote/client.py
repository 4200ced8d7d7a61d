"""A client of a broker's HTTP API, and the options of all commands that use it."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import ssl
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote, unquote, urlencode, urlsplit

import typer
from rich.table import Table
from rich.text import Text

from headgate.cli.output import print_json, print_json_lines, print_table
from headgate.errors import HeadgateError

URL: Final = "http://guest:guest@127.0.0.1:15672"
URL_VARIABLE: Final = "HEADGATE_URL"
PASSWORD_VARIABLE: Final = "HEADGATE_PASSWORD"
TIMEOUT_S: Final = 30.0

BrokerUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url",
        help=f"The broker's HTTP API: http://user@host:15672; by default {URL_VARIABLE}, else this machine. "
        f"A password is best in {PASSWORD_VARIABLE}; without one it is asked for.",
        metavar="ADDRESS",
    ),
]
Vhost: TypeAlias = Annotated[
    str, typer.Option("--vhost", "-p", help="The virtual host.", metavar="VHOST")
]
ApiObject: TypeAlias = dict[str, Any]
ShownColumns: TypeAlias = Mapping[str, str | Callable[[ApiObject], object]]


class BrokerRefused(HeadgateError):
    """The broker answered that it will not."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(reason)


class BrokerApi:
    """Requests to one broker."""

    def __init__(self, url: str | None = None) -> None:
        given = url or os.environ.get(URL_VARIABLE) or URL
        parts = urlsplit(given if "://" in given else f"http://{given}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise HeadgateError(
                f"a broker is named by http://user@host:15672, not {hide_password(given)}"
            )
        self.place = f"{parts.scheme}://{parts.hostname}:{parts.port or 15_672}"
        self._prefix = parts.path.rstrip("/")
        name = unquote(parts.username or "guest")
        credentials = f"{name}:{_find_password(name, parts.password)}".encode()
        self._headers = {"Authorization": f"Basic {base64.b64encode(credentials).decode()}"}
        port = parts.port or 15_672
        if parts.scheme == "https":
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, port, timeout=TIMEOUT_S, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, port, timeout=TIMEOUT_S)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """Ask, and return the answer's JSON; None where there is none."""
        data = None if body is None else json.dumps(body).encode()
        target = f"{self._prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            self._connection.request(method, target, data, {**self._headers, **(headers or {})})
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as problem:
            raise HeadgateError(
                f"no answer from {self.place}: {problem}; is `headgate serve` running there?"
            ) from problem
        finally:
            self._connection.close()
        if answer.status >= 400:
            raise BrokerRefused(answer.status, _reason(self.place, path, answer.status, content))
        return json.loads(content) if content else None

    def get(self, *segments: str, **query: str) -> Any:
        return self.request("GET", path_of(*segments), query=query)

    def put(self, *segments: str, body: Any = None) -> Any:
        return self.request("PUT", path_of(*segments), {} if body is None else body)

    def post(self, *segments: str, body: Any = None) -> Any:
        return self.request("POST", path_of(*segments), {} if body is None else body)

    def delete(self, *segments: str, headers: Mapping[str, str] | None = None, **query: str) -> Any:
        return self.request("DELETE", path_of(*segments), headers=headers, query=query)


def path_of(*segments: str) -> str:
    """A path of the API; each segment may hold anything, also a slash."""
    return "/api/" + "/".join(quote(segment, safe="") for segment in segments)


def name_object(path: str) -> str:
    """The object that a path of the API is about, for a message."""
    match [unquote(segment) for segment in path.removeprefix("/api/").split("/")]:
        case ["bindings", vhost, "e", source, kind, destination, *_]:
            target = "queue" if kind == "q" else "exchange"
            return f"exchange {source} or {target} {destination} in vhost {vhost}"
        case ["headgate", "consumers", vhost, queue, tag, *_]:
            return f"queue {queue} in vhost {vhost}, or its consumer {tag}"
        case ["queues" | "exchanges" as kind, vhost, name, *_]:
            return f"{kind[:-1]} {name} in vhost {vhost}"
        case ["headgate", "queues", vhost, name, *_]:
            return f"queue {name} in vhost {vhost}"
        case ["users" | "vhosts" | "connections" as kind, name, *_]:
            return f"{kind[:-1]} {name}"
        case ["policies" | "operator-policies", vhost, name]:
            return f"policy {name} in vhost {vhost}"
        case [kind, *names]:
            return f"{kind.replace('-', ' ')} {', '.join(names)}"
    return path


def hide_password(url: str) -> str:
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:…@", url)


def _find_password(name: str, given: str | None) -> str:
    if given is not None:
        return unquote(given)
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is not None:
        return password
    if name == "guest":
        return "guest"
    return str(typer.prompt(f"Password of {name}", hide_input=True, err=True))


def ask_new_password() -> str:
    """A new password, from standard input: typed twice, or one line of a pipe."""
    if not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\n")
        if not password:
            raise HeadgateError("there is no password on standard input; write one line to it")
        return password
    return str(typer.prompt("New password", hide_input=True, confirmation_prompt=True, err=True))


def _reason(place: str, path: str, status: int, content: bytes) -> str:
    try:
        document = json.loads(content)
        reason = document.get("reason") or document.get("detail") or document.get("error")
    except (ValueError, AttributeError):
        reason = content.decode(errors="replace")[:200]
    match status:
        case 401 if reason == "Login failed":
            return f"{place} refused the login; check the user, {PASSWORD_VARIABLE} and where guest may log in from"
        case 401:
            return f"{place}: this user may not: {reason}"
        case 404:
            return f"there is no such object on the broker: {name_object(path)}"
    return f"{place} answered {status}: {reason}"


# ---- what commands print


def print_rows(
    rows: Iterable[ApiObject],
    columns: ShownColumns,
    as_json: bool,
) -> None:
    """A table of some columns, each a path of keys or a function; or one JSON object per line with everything."""
    if as_json:
        print_json_lines(rows)
        return
    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(_show(_cell(row, column))) for column in columns.values()))
    print_table(table)


def print_facts(row: ApiObject, as_json: bool) -> None:
    """One thing: its facts below each other."""
    if as_json:
        print_json(row)
        return
    table = Table("", "", show_header=False)
    for name, value in row.items():
        table.add_row(name, Text(_show(value)))
    print_table(table)


def _cell(row: ApiObject, column: str | Callable[[ApiObject], object]) -> object:
    if callable(column):
        return column(row)
    value: Any = row
    for name in column.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _show(value: object) -> str:
    match value:
        case None | {} | []:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
        case list():
            return ", ".join(map(_show, value))
        case dict():
            return ", ".join(f"{key}={_show(inner)}" for key, inner in value.items())
    return str(value)


def rate(name: str) -> Callable[[ApiObject], object]:
    """The rate of a counter in `message_stats`, per second."""
    return lambda row: row.get("message_stats", {}).get(f"{name}_details", {}).get("rate", 0.0)


def when(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))

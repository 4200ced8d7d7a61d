"""Which queue of which database a text names, however it is spelled.

queue:sqlite:///orders.db#eu-high        a file; its path is made absolute
queue:postgresql://user@host/db#eu-high  a database on a server; ?schema=… where it is not `headgate`
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from headgate.errors import SparkOptionsError
from headgate.queues import State
from headgate.queues.postgres import DEFAULT_SCHEMA, target_of

QUEUE: Final = "queue:"  # begins the text that names one
SERVERS: Final = ("postgresql://", "postgres://")
SQLITE: Final = "sqlite:///"
ARCHIVED: Final = "archived"  # the state of what was acked and kept
STATES: Final = tuple(state.name.lower() for state in State)  # by their numbers
_ALL: Final = "all"
# A password may hold any character but those that end it; where it is not written as a URL wants it, rather too much is
# hidden than too little.
_BETWEEN: Final = re.compile(r"(://[^:/@?#]*:).*@")
_ASIDE: Final = re.compile(r"([?&](?:password|sslpassword)=)[^&#]*", re.IGNORECASE)
_HOW: Final = "write queue:sqlite:///PATH#name or queue:postgresql://host/database#name"

Tables: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A queue and the URL of its database, in its one spelling."""

    url: str
    name: str

    @property
    def file(self) -> Path | None:
        """Of a SQLite database; None for one on a server."""
        return sqlite_file(self.url)

    @property
    def shown(self) -> str:
        """The text for people: without user, password and settings."""
        parts = urlsplit(self.url)
        if self.file is not None:
            return f"{QUEUE}{SQLITE}{parts.path[1:]}#{self.name}"
        schema = target_of(self.url).schema
        query = "" if schema == DEFAULT_SCHEMA else f"schema={schema}"
        host = parts.netloc.rpartition("@")[2]
        return f"{QUEUE}postgresql://{host}{parts.path}{'?' if query else ''}{query}#{self.name}"


def queue_place(text: str, queue: str = "") -> QueuePlace:
    """The place of a `queue:…`; `queue` is the queue's name where the text gives none."""
    url, _, name = text.removeprefix(QUEUE).partition("#")
    if not url.startswith(SERVERS) and url.removeprefix(SQLITE) in ("", url):
        raise SparkOptionsError(f"{without_password(text)!r} is no database; {_HOW}")
    if not name and not queue:
        shown = without_password(text)
        raise SparkOptionsError(
            f"{shown!r} names no queue; write {shown}#name, or set option 'queue'"
        )
    try:
        place = QueuePlace(one_spelling(url), name or queue)
        tables_of(place.url)
    except (OSError, ValueError) as problem:  # a NUL, half an address in brackets
        raise SparkOptionsError(f"{without_password(text)!r} is no database: {problem}") from None
    return place


def without_password(text: str) -> str:
    """The text that names a place as it may be shown: passwords are three dots, wherever a URL can have one."""
    return _ASIDE.sub(r"\1…", _BETWEEN.sub(r"\1…@", text))


def one_spelling(url: str) -> str:
    """The URL as we write it: one name for the scheme, and the path of a file without links and dots."""
    if url.startswith(SERVERS):
        return SERVERS[0] + url.partition("://")[2]
    parts = urlsplit(url)
    path = Path(unquote(parts.path[1:])).resolve()
    return f"{SQLITE}{quote(str(path))}{'?' if parts.query else ''}{parts.query}"


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite database; None for a database on a server."""
    return Path(unquote(urlsplit(url).path[1:])) if url.startswith("sqlite:") else None


# ---- the same database -------------------------------------------------------------------------------


def tables_of(url: str) -> Tables:
    """What two URLs have in common when they lead to the same tables: nothing that says who asks, or how."""
    file = sqlite_file(url)
    return _on_server(url) if file is None else ("sqlite", str(file.resolve()))


def _on_server(url: str) -> Tables:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    who, _, where = parts.netloc.rpartition("@")
    user = unquote(who.partition(":")[0]) or options.get("user", "")
    name = options.get("dbname") or unquote(parts.path[1:]) or os.environ.get("PGDATABASE") or user
    hosts = options.get("host") or unquote(where) or os.environ.get("PGHOST", "")
    port = options.get("port") or os.environ.get("PGPORT", "5432")
    return ("postgresql", *_addresses(hosts, port), name, target_of(url).schema)


def _addresses(hosts: str, port: str) -> Iterator[str]:
    for host in hosts.split(","):
        name, colon, own = host.rpartition(":")
        if colon and own.isdigit() and not host.startswith("/"):
            yield f"{name.lower()}:{own}"
        else:
            yield f"{host if host.startswith('/') else host.lower()}:{port}"


def states_of(text: str) -> tuple[State, ...]:
    """The states that a text lists; none for the archive."""
    names = [name.strip().lower() for name in text.split(",")]
    if names == [ARCHIVED]:
        return ()
    if names == [_ALL]:
        return tuple(State)
    unknown = [name for name in names if name not in STATES]
    if unknown:
        alone = (
            f"{unknown[0]!r} stands alone" if unknown[0] in (ARCHIVED, _ALL) else f"not {text!r}"
        )
        raise SparkOptionsError(
            f"states: give some of {', '.join(STATES)}, or {_ALL}, or {ARCHIVED}; {alone}"
        )
    return tuple(State(STATES.index(name)) for name in STATES if name in names)

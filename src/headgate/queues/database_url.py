"""Database URLs: the one place where they are parsed, compared and shown.

memory:                          for tests
sqlite:///orders.db              a file with a relative path, four slashes before an absolute one;
                                 ?synchronous=NORMAL
postgresql://user@host/database  ?schema=orders where it is not `headgate`: several Headgates can share a database;
                                 ?pooler=session behind a pooler in session mode
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, get_args
from typing import Literal as OneOf
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from headgate.errors import QueueOptionsError

Synchronous: TypeAlias = OneOf["FULL", "NORMAL", "EXTRA", "OFF"]
TablesKey: TypeAlias = tuple[str, ...]  # equal for two URLs that lead to the same tables

DEFAULT_SCHEMA: Final = "headgate"
SQLITE: Final = "sqlite:///"
SERVERS: Final = ("postgresql://", "postgres://")
_SCHEMES: Final = ("postgresql", "postgres")
_OWN_PARAMETERS: Final = ("schema", "pooler")  # libpq does not know them
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")
# A password may contain any character but those that end it; where it is not quoted, rather too much is hidden.
_PASSWORD: Final = re.compile(r"(://[^:/@?#]*:).*@")
_PASSWORD_PARAMETER: Final = re.compile(r"([?&](?:password|sslpassword)=)[^&#]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MemoryTarget:
    """A database in memory, which starts empty."""


@dataclass(frozen=True, slots=True)
class SqliteTarget:
    """A SQLite file, and the level of `synchronous` that its URL sets."""

    path: Path
    synchronous: str | None = None


@dataclass(frozen=True, slots=True)
class PostgresTarget:
    """A schema of a PostgreSQL database."""

    url: str  # as libpq takes it
    schema: str = DEFAULT_SCHEMA
    # Whether a pooler in between keeps one server connection for each of ours.
    has_session_pooler: bool = False

    @property
    def search_path(self) -> str:
        return f'"{self.schema}", pg_temp'

    @property
    def channel(self) -> str:
        """The channel to LISTEN to; as in `wake_up` and `wake_waiting` of the schema."""
        return f"headgate.{self.schema}"


DatabaseTarget: TypeAlias = MemoryTarget | SqliteTarget | PostgresTarget


def parse_database_url(url: str) -> DatabaseTarget:
    """Return the database that the URL names; QueueOptionsError if it names none."""
    if not isinstance(url, str):
        hint = f"sqlite:///{url}" if isinstance(url, Path) else "sqlite:///path.db"
        raise QueueOptionsError(f"the URL of a database is text, for example {hint!r}, not {url!r}")
    try:
        scheme = urlsplit(url).scheme
    except ValueError as problem:
        raise QueueOptionsError(f"{url!r} is no URL: {problem}") from problem
    if scheme == "memory":
        return MemoryTarget()
    if scheme == "sqlite":
        return SqliteTarget(sqlite_path(url), _parse_synchronous(url))
    if scheme in _SCHEMES:
        return postgres_target(url)
    file = "sqlite:///path.db" if scheme or not url else f"sqlite:///{url}"
    raise QueueOptionsError(
        f"cannot connect to {url!r}; use {file}, postgresql://host/name or memory:"
    )


def sqlite_path(url: str) -> Path:
    """Return the file of a SQLite URL."""
    parts = urlsplit(url)
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path:
        file = unquote(parts.netloc + parts.path) or "orders.db"
        raise QueueOptionsError(f"{url!r} names no file; write sqlite:///{file}")
    if "#" in url:
        raise QueueOptionsError(
            f"{url!r}: a queue is named apart from its database; for a # in the name of a file write %23"
        )
    if "\0" in path:
        raise QueueOptionsError(f"{url!r}: the name of a file cannot contain NUL")
    if path == ":memory:":
        raise QueueOptionsError("SQLite in memory cannot be shared by connections; use memory:")
    return Path(path)


def _parse_synchronous(url: str) -> str | None:
    """Return the value of `synchronous`, the only parameter of a SQLite URL; None without it."""
    parameters = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    level = parameters.get("synchronous")
    levels = get_args(Synchronous)
    if not parameters.keys() <= {"synchronous"} or (level or "FULL").upper() not in levels:
        raise QueueOptionsError(
            f"{url!r}: the only parameter is synchronous, which is one of {', '.join(levels)}"
        )
    return level


def postgres_target(url: str, schema: str | None = None) -> PostgresTarget:
    """Return the database of a PostgreSQL URL; `schema` overrides the schema in the URL."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in pairs if name in _OWN_PARAMETERS}
    others = [(name, value) for name, value in pairs if name not in _OWN_PARAMETERS]
    query = urlencode(others, safe="/", quote_via=quote)  # libpq does not read a plus as a space
    named = schema or own.get("schema") or DEFAULT_SCHEMA
    pooler = own.get("pooler")
    if pooler not in (None, "session"):
        raise QueueOptionsError(f"pooler is session, or left out, not {pooler!r}")
    if not _SCHEMA.fullmatch(named):
        raise QueueOptionsError(
            f"the schema {named!r} cannot be used: at most 40 of a-z, 0-9 and _, not beginning with a digit"
        )
    # Only if something was removed: without a host, urlunsplit drops the two slashes that libpq needs.
    conninfo = urlunsplit(parts._replace(query=query)) if own else url
    return PostgresTarget(conninfo, named, pooler is not None)


# ---- comparing and showing -----------------------------------------------------------------------------


def canonical_url(url: str) -> str:
    """Return the URL with one name for each scheme, and the absolute path of a file without links and dots."""
    if url.startswith(SERVERS):
        return SERVERS[0] + url.partition("://")[2]
    query = urlsplit(url).query
    return f"{SQLITE}{quote(str(sqlite_path(url).resolve()))}{'?' if query else ''}{query}"


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite database; None for a database on a server."""
    return sqlite_path(url) if url.startswith("sqlite:") else None


def tables_key(url: str) -> TablesKey:
    """Return a key that is equal for URLs that lead to the same tables, whatever their users and settings."""
    file = sqlite_file(url)
    return _server_key(url) if file is None else ("sqlite", str(file.resolve()))


def _server_key(url: str) -> TablesKey:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    credentials, _, where = parts.netloc.rpartition("@")
    user = unquote(credentials.partition(":")[0]) or options.get("user", "")
    name = options.get("dbname") or unquote(parts.path[1:]) or os.environ.get("PGDATABASE") or user
    hosts = options.get("host") or unquote(where) or os.environ.get("PGHOST", "")
    port = options.get("port") or os.environ.get("PGPORT", "5432")
    return ("postgresql", *_addresses(hosts, port), name, postgres_target(url).schema)


def _addresses(hosts: str, port: str) -> Iterator[str]:
    for host in hosts.split(","):
        name, colon, own = host.rpartition(":")
        if colon and own.isdigit() and not host.startswith("/"):
            yield f"{name.lower()}:{own}"
        else:
            yield f"{host if host.startswith('/') else host.lower()}:{port}"


def hide_password(text: str) -> str:
    """Return the text with three dots in the place of passwords, wherever a URL can have one."""
    return _PASSWORD_PARAMETER.sub(r"\1…", _PASSWORD.sub(r"\1…@", text))


def hide_credentials(url: str) -> str:
    """Return the URL without user, password and settings."""
    parts = urlsplit(url)
    if url.startswith("sqlite:"):
        return f"{SQLITE}{parts.path[1:]}"
    schema = postgres_target(url).schema
    query = "" if schema == DEFAULT_SCHEMA else f"?schema={schema}"
    return f"{SERVERS[0]}{parts.netloc.rpartition('@')[2]}{parts.path}{query}"

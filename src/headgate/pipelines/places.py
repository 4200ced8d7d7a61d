"""The one parser of places for messages, as options, commands and pipeline files write them.

stream:data/orders                       a Headgate stream
queue:sqlite:///orders.db#eu-high        a queue in a database; the sink's own queue unless #name says another
queue:postgresql://user@host/db#eu-high  a database on a server; ?schema=… where it is not `headgate`
parquet:out/orders                       Parquet files
none:                                    counted, and not kept: only in a pipeline file
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias
from typing import Literal as OneOf
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from headgate.errors import SparkOptionsError
from headgate.queues.postgres import DEFAULT_SCHEMA, target_of

PlaceKind: TypeAlias = OneOf["stream", "queue", "parquet", "none"]
TablesKey: TypeAlias = tuple[str, ...]

NOWHERE: Final = "none:"
_KINDS: Final[dict[str, PlaceKind]] = {
    "stream": "stream",
    "queue": "queue",
    "parquet": "parquet",
    "none": "none",
}
_SERVERS: Final = ("postgresql://", "postgres://")
_SQLITE: Final = "sqlite:///"
_EXAMPLES: Final[dict[PlaceKind, str]] = {
    "stream": "stream:data/orders",
    "queue": "queue:sqlite:///orders.db",
    "parquet": "parquet:data/orders",
    "none": "none: and nothing after it",
}
_PLACE_HINT: Final = "write stream:PATH, queue:sqlite:///PATH, queue:postgresql://… or parquet:PATH"
_QUEUE_HINT: Final = "write queue:sqlite:///PATH#name or queue:postgresql://host/database#name"
_URL_CODES: Final = {ord(c): quote(c) for c in "%#?"}  # these end a path in a URL, or begin a code
# A password may contain any character but those that end it. When it is not encoded as a URL requires, rather too much
# is hidden than too little.
_PASSWORD: Final = re.compile(r"(://[^:/@?#]*:).*@")
_PASSWORD_OPTION: Final = re.compile(r"([?&](?:password|sslpassword)=)[^&#]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    """A directory of messages: a stream, or Parquet files."""

    kind: OneOf["stream", "parquet"]
    path: str


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A queue and the URL of its database in canonical form."""

    url: str
    name: str

    @property
    def file(self) -> Path | None:
        """The file of a SQLite database; None for a database on a server."""
        return sqlite_file(self.url)

    @property
    def shown(self) -> str:
        """The text to show to people: without user, password and settings."""
        parts = urlsplit(self.url)
        if self.file is not None:
            return f"queue:{_SQLITE}{parts.path[1:]}#{self.name}"
        schema = target_of(self.url).schema
        query = "" if schema == DEFAULT_SCHEMA else f"?schema={schema}"
        host = parts.netloc.rpartition("@")[2]
        return f"queue:postgresql://{host}{parts.path}{query}#{self.name}"


# ---- parsing -----------------------------------------------------------------------------------------


def place_kind(text: str) -> PlaceKind | None:
    """The kind of place the text begins with; None when it begins with no kind."""
    kind, colon, _ = text.partition(":")
    return _KINDS.get(kind) if colon else None


def is_queue(text: str) -> bool:
    """Whether the text names a queue."""
    return place_kind(text) == "queue"


def parse_place(text: str, queue: str = "") -> DirectoryPlace | QueuePlace:
    """Parse a place that keeps messages; `queue` is the queue's name where the text gives none."""
    kind, rest = _split_place(text)
    if kind == "none":
        raise SparkOptionsError(f"{text!r} keeps no messages; {_PLACE_HINT}")
    if kind == "queue":
        return queue_place(text, queue)
    path = local_path(rest)
    if path is None:
        raise SparkOptionsError(f"{text!r} is not in a file system mounted here; {_PLACE_HINT}")
    return DirectoryPlace(kind, str(path))


def absolute_place(text: str, queue: str, base: Path) -> str:
    """Write the place of a pipeline file in full: paths relative to `base`, and the queue's name at the end."""
    kind, rest = _split_place(text, hint=f"{_PLACE_HINT}, or none:")
    if kind == "none":
        return text
    return f"{kind}:{_absolute_queue(rest, queue, base) if kind == 'queue' else absolute_path(rest, base)}"


def _split_place(text: str, hint: str = _PLACE_HINT) -> tuple[PlaceKind, str]:
    kind, rest = place_kind(text), text.partition(":")[2]
    if kind is None:
        raise SparkOptionsError(f"{hide_password(text)!r} is no place for messages; {hint}")
    if bool(rest) is (kind == "none"):
        raise SparkOptionsError(f"{text!r} names no place; write {_EXAMPLES[kind]}")
    return kind, rest


def queue_place(text: str, queue: str = "") -> QueuePlace:
    """Parse `queue:…`; `queue` is the queue's name where the text gives none."""
    url, _, name = text.removeprefix("queue:").partition("#")
    if not url.startswith(_SERVERS) and url.removeprefix(_SQLITE) in ("", url):
        raise SparkOptionsError(f"{hide_password(text)!r} is no database; {_QUEUE_HINT}")
    if not name and not queue:
        shown = hide_password(text)
        raise SparkOptionsError(
            f"{shown!r} names no queue; write {shown}#name, or set option 'queue'"
        )
    try:
        place = QueuePlace(_canonical_url(url), name or queue)
        tables_key(place.url)
    except (OSError, ValueError) as problem:  # a NUL, half an address in brackets
        raise SparkOptionsError(f"{hide_password(text)!r} is no database: {problem}") from None
    return place


def _absolute_queue(rest: str, queue: str, base: Path) -> str:
    url, hash_, name = rest.partition("#")
    shown = hide_password(f"queue:{rest}")
    if hash_ and not name:
        raise SparkOptionsError(
            f"{shown!r} names no queue after the #; write #name or leave it out"
        )
    if url.startswith(_SERVERS):
        return f"{url}#{name or queue}"
    if not url.startswith(_SQLITE):
        raise SparkOptionsError(f"{shown!r} is no database; {_QUEUE_HINT}")
    file, mark, options = url.removeprefix(_SQLITE).partition("?")
    if not file:
        raise SparkOptionsError(f"{url!r} names no file; write sqlite:///orders.db")
    folder = Path(str(base).translate(_URL_CODES))
    return f"{_SQLITE}{absolute_path(file, folder)}{mark}{options}#{name or queue}"


def hide_password(text: str) -> str:
    """The text with three dots instead of passwords, wherever a URL can contain one."""
    return _PASSWORD_OPTION.sub(r"\1…", _PASSWORD.sub(r"\1…@", text))


# ---- databases ---------------------------------------------------------------------------------------


def _canonical_url(url: str) -> str:
    """One name for the scheme, and the path of a file without links and dots."""
    if url.startswith(_SERVERS):
        return _SERVERS[0] + url.partition("://")[2]
    parts = urlsplit(url)
    path = Path(unquote(parts.path[1:])).resolve()
    return f"{_SQLITE}{quote(str(path))}{'?' if parts.query else ''}{parts.query}"


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite database; None for a database on a server."""
    return Path(unquote(urlsplit(url).path[1:])) if url.startswith("sqlite:") else None


def tables_key(url: str) -> TablesKey:
    """A key that is equal for two URLs of one set of tables, whatever user and settings they connect with."""
    file = sqlite_file(url)
    return _server_key(url) if file is None else ("sqlite", str(file.resolve()))


def _server_key(url: str) -> TablesKey:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    login, _, address = parts.netloc.rpartition("@")
    user = unquote(login.partition(":")[0]) or options.get("user", "")
    name = options.get("dbname") or unquote(parts.path[1:]) or os.environ.get("PGDATABASE") or user
    hosts = options.get("host") or unquote(address) or os.environ.get("PGHOST", "")
    port = options.get("port") or os.environ.get("PGPORT", "5432")
    return ("postgresql", *_addresses(hosts, port), name, target_of(url).schema)


def _addresses(hosts: str, port: str) -> Iterator[str]:
    for host in hosts.split(","):
        name, colon, own = host.rpartition(":")
        if colon and own.isdigit() and not host.startswith("/"):
            yield f"{name.lower()}:{own}"
        else:
            yield f"{host if host.startswith('/') else host.lower()}:{port}"


# ---- directories -------------------------------------------------------------------------------------


def absolute_path(path: str, base: Path) -> str:
    """The path relative to `base`; a URI is left as it is."""
    if "://" in path or path.startswith("file:"):
        return path
    return str((base / Path(path).expanduser()).absolute())


def is_same_location(one: str, other: str) -> bool:
    """Whether two spellings name one directory: relative or not, through links, with `file:` or a slash at the end."""
    return one == other or canonical_location(one) == canonical_location(other)


def canonical_location(location: str) -> str:
    """The path without links and dots; a location on another file system as it is written."""
    try:
        local = local_path(location)
    except SparkOptionsError:  # what cannot be a path is equal to no other location
        return location
    return location.rstrip("/") if local is None else str(local)


def local_path(location: str) -> Path | None:
    """The location as a path without links and dots; None when it is on another file system."""
    try:
        parts = urlsplit(location)
        if not parts.scheme:
            return Path(location).resolve()
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            return Path(unquote(parts.path)).resolve()
    except (OSError, ValueError) as problem:  # a NUL, half an address in brackets, a loop of links
        raise SparkOptionsError(f"{location[:200]!r} is no path: {problem}") from None
    return None

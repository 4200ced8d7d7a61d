"""The one parser of places for messages, as options, commands and pipeline files write them.

stream:data/orders                       a Headgate stream
queue:sqlite:///orders.db#eu-high        a queue in a database; the sink's own queue unless #name says another
queue:postgresql://user@host/db#eu-high  a database on a server; ?schema=… where it is not `headgate`
parquet:out/orders                       Parquet files
amqp://user:password@host/vhost#orders   an exchange of a running broker, Headgate or RabbitMQ; amqps:// with TLS
none:                                    counted, and not kept: only in a pipeline file
spark:delta:path:/data/orders            what Spark writes: only inside, made of format = "delta" and path in a pipeline file
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias
from typing import Literal as OneOf
from urllib.parse import quote, unquote, urlsplit

from headgate.errors import SparkOptionsError
from headgate.queues import (
    SERVERS,
    SQLITE,
    canonical_url,
    hide_credentials,
    hide_password,
    sqlite_file,
    tables_key,
)

PlaceKind: TypeAlias = OneOf["stream", "queue", "parquet", "amqp", "none", "spark"]

NOWHERE: Final = "none:"
_KINDS: Final[dict[str, PlaceKind]] = {
    "stream": "stream",
    "queue": "queue",
    "parquet": "parquet",
    "amqp": "amqp",
    "amqps": "amqp",
    "none": "none",
    "spark": "spark",
}
_EXAMPLES: Final[dict[PlaceKind, str]] = {
    "stream": "stream:data/orders",
    "queue": "queue:sqlite:///orders.db",
    "parquet": "parquet:data/orders",
    "amqp": "amqp://host/vhost#exchange",
}
_PLACE_HINT: Final = "write stream:PATH, queue:sqlite:///PATH, queue:postgresql://…, parquet:PATH or amqp://HOST/#EXCHANGE"
_QUEUE_HINT: Final = "write queue:sqlite:///PATH#name or queue:postgresql://host/database#name"
_URL_CODES: Final = {
    ord(c): quote(c) for c in "%#?"
}  # these end a path in a URL, or begin a %-escape


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
        return f"queue:{hide_credentials(self.url)}#{self.name}"


@dataclass(frozen=True, slots=True)
class ExchangePlace:
    """An exchange, and the URL of its broker."""

    url: str
    exchange: str

    @property
    def shown(self) -> str:
        """The text to show to people: without user and password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}#{self.exchange}"


@dataclass(frozen=True, slots=True)
class SparkPlace:
    """What a format of Spark writes to: a path, a table, or what its options name, for the messages of one queue."""

    format: str
    kind: OneOf["path", "table", "queue"]
    name: str

    @property
    def text(self) -> str:
        return f"spark:{self.format}:{self.kind}:{self.name}"


# ---- parsing -----------------------------------------------------------------------------------------


def place_kind(text: str) -> PlaceKind | None:
    """Return the kind of place that the text begins with; None if it begins with no kind."""
    kind, colon, _ = text.partition(":")
    return _KINDS.get(kind) if colon else None


def is_queue(text: str) -> bool:
    """Whether the text names a queue."""
    return place_kind(text) == "queue"


MessagePlace: TypeAlias = DirectoryPlace | QueuePlace | ExchangePlace | SparkPlace


def parse_place(text: str, queue: str = "") -> MessagePlace:
    """Parse a place that keeps messages; `queue` is the queue's name where the text gives none."""
    kind, rest = _split_place(text)
    if kind == "spark":
        format, _, target = rest.partition(":")
        target_kind, _, name = target.partition(":")
        if target_kind not in ("path", "table", "queue") or not format:
            raise SparkOptionsError(
                f'{text!r} is no place; write format = "{format or "delta"}" and path in [[sink]] of a pipeline file'
            )
        return SparkPlace(format, target_kind, name)  # type: ignore[arg-type]  # refused above
    if kind == "none":
        raise SparkOptionsError(f"{text!r} keeps no messages; {_PLACE_HINT}")
    if kind == "queue":
        return queue_place(text, queue)
    if kind == "amqp":
        return exchange_place(text)
    path = local_path(rest)
    if path is None:
        raise SparkOptionsError(f"{text!r} is not in a file system mounted here; {_PLACE_HINT}")
    return DirectoryPlace(kind, str(path))


def absolute_place(text: str, queue: str, base: Path) -> str:
    """Write the place of a pipeline file in full: paths relative to `base`, and the queue's name at the end."""
    kind, rest = _split_place(text, hint=f"{_PLACE_HINT}, or none:")
    if kind == "none":
        return text
    if kind == "amqp":
        place = exchange_place(text)
        return f"{place.url}#{place.exchange}"
    if kind == "spark":
        raise SparkOptionsError(f'{text!r}: write format = "delta" and path = "…" instead of to')
    return f"{kind}:{_absolute_queue(rest, queue, base) if kind == 'queue' else absolute_path(rest, base)}"


def _split_place(text: str, hint: str = _PLACE_HINT) -> tuple[PlaceKind, str]:
    kind, rest = place_kind(text), text.partition(":")[2]
    if kind is None:
        raise SparkOptionsError(f"{hide_password(text)!r} is no place for messages; {hint}")
    if kind == "none" and rest:
        raise SparkOptionsError(f"{text!r}: none: discards messages and takes no path; write none:")
    if kind != "none" and not rest:
        raise SparkOptionsError(f"{text!r} names no place; write {_EXAMPLES[kind]}")
    return kind, rest


def queue_place(text: str, queue: str = "") -> QueuePlace:
    """Parse `queue:…`; `queue` is the queue's name where the text gives none."""
    url, _, name = text.removeprefix("queue:").partition("#")
    if not url.startswith(SERVERS) and url.removeprefix(SQLITE) in ("", url):
        raise SparkOptionsError(f"{hide_password(text)!r} is no database; {_QUEUE_HINT}")
    if not name and not queue:
        shown = hide_password(text)
        raise SparkOptionsError(
            f"{shown!r} names no queue; write {shown}#name, or set option 'queue'"
        )
    try:
        place = QueuePlace(canonical_url(url), name or queue)
        tables_key(place.url)
    except (OSError, ValueError) as problem:  # a NUL, half an address in brackets
        raise SparkOptionsError(f"{hide_password(text)!r} is no database: {problem}") from None
    return place


def exchange_place(text: str) -> ExchangePlace:
    """Parse `amqp://…#exchange`."""
    url, _, exchange = text.partition("#")
    try:
        parts = urlsplit(url)
        known = bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or not exchange:
        what = "names no exchange" if known else "is no address of a broker"
        raise SparkOptionsError(
            f"{hide_password(text)!r} {what}; write amqp://user:password@host:port/vhost#exchange"
        )
    return ExchangePlace(url, unquote(exchange))


def _absolute_queue(rest: str, queue: str, base: Path) -> str:
    url, hash_, name = rest.partition("#")
    shown = hide_password(f"queue:{rest}")
    if hash_ and not name:
        raise SparkOptionsError(
            f"{shown!r} names no queue after the #; write #name or leave it out"
        )
    if url.startswith(SERVERS):
        return f"{url}#{name or queue}"
    if not url.startswith(SQLITE):
        raise SparkOptionsError(f"{shown!r} is no database; {_QUEUE_HINT}")
    file, mark, options = url.removeprefix(SQLITE).partition("?")
    if not file:
        raise SparkOptionsError(f"{url!r} names no file; write sqlite:///orders.db")
    folder = Path(str(base).translate(_URL_CODES))
    return f"{SQLITE}{absolute_path(file, folder)}{mark}{options}#{name or queue}"


# ---- directories -------------------------------------------------------------------------------------


def absolute_path(path: str, base: Path) -> str:
    """Return the path in full, relative to `base`; a URI is left as it is, and so is the ~ of a user that does not exist."""
    if "://" in path or path.startswith("file:"):
        return path
    return str((base / os.path.expanduser(path)).absolute())


def is_same_location(one: str, other: str) -> bool:
    """Whether two spellings name one directory: relative or not, through links, with `file:` or a slash at the end."""
    return one == other or canonical_location(one) == canonical_location(other)


def canonical_location(location: str) -> str:
    """Return the path without links and dots; a location on another file system as it is written."""
    try:
        local = local_path(location)
    except SparkOptionsError:  # what cannot be a path is equal to no other location
        return location
    return location.rstrip("/") if local is None else str(local)


def local_path(location: str) -> Path | None:
    """Return the location as a path without links and dots; None if it is on another file system."""
    try:
        parts = urlsplit(location)
        if not parts.scheme:
            return Path(location).resolve()
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            return Path(unquote(parts.path)).resolve()
    except (OSError, ValueError) as problem:  # a NUL, half an address in brackets, a loop of links
        raise SparkOptionsError(f"{location[:200]!r} is no path: {problem}") from None
    return None

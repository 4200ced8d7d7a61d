"""What the pages are about: streams below a directory, queues of a database, and perhaps a running broker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from headgate.broker import Broker
from headgate.errors import HeadgateError
from headgate.insights import find_stream
from headgate.queues import Database, connect


class Link(NamedTuple):
    path: str
    text: str


class LinkGroup(NamedTuple):
    title: str
    links: tuple[Link, ...]


STORED: Final = LinkGroup(
    "Data", (Link("/streams", "Streams"), Link("/sql-queues", "Queues on SQL"))
)
FILTERS: Final = LinkGroup("Filters", (Link("/playground", "Playground"),))


@dataclass(frozen=True, slots=True)
class Site:
    """The data that pages show. Without a broker there is no login, and nothing can be changed."""

    data: Path | None = None
    database: str | None = None
    broker: Broker | None = None

    @property
    def about(self) -> str:
        """What a person recognises this site by."""
        return str(self.data or self.database or "in memory")

    @property
    def menu(self) -> tuple[LinkGroup, ...]:
        return (STORED, FILTERS)

    @property
    def directory(self) -> Path:
        """Where streams are."""
        if self.data is None:
            raise HeadgateError("this broker keeps everything in memory, and has no streams")
        return self.data

    def stream_path(self, name: str) -> Path:
        """The directory of a stream of this site."""
        return find_stream(self.directory, name)

    def open_database(self) -> Database:
        """The database, to be looked at only."""
        if self.database is None:
            raise HeadgateError("no database is named; start with --db sqlite:///queue.db")
        return connect(self.database, access="look")


class Place(NamedTuple):
    """Messages that a page reads: `stream:orders`, `sql:orders`."""

    kind: str
    name: str

    @property
    def of(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def text(self) -> str:
        return f"{self.kind} {self.name}"


def parse_place(text: str) -> Place:
    """Read `kind:name`."""
    kind, colon, name = text.partition(":")
    if not colon or kind not in ("stream", "sql"):
        raise HeadgateError(f"{text!r} names no messages: give stream:NAME or sql:NAME")
    return Place(kind, name)

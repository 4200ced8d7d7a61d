"""The data of the pages: streams below a directory, queues of a database, and perhaps a running broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from headgate.broker import Broker
from headgate.errors import HeadgateError
from headgate.insights import NodeOptions, QueueSamples, find_stream
from headgate.queues import Database, connect, hide_password


class Link(NamedTuple):
    path: str
    text: str


class LinkGroup(NamedTuple):
    title: str
    links: tuple[Link, ...]


STORED: Final = LinkGroup(
    "Data",
    (
        Link("/streams", "Streams"),
        Link("/sql-queues", "Queues on SQL"),
        Link("/pipelines", "Pipelines"),
    ),
)
BROKER: Final = LinkGroup(
    "Broker",
    (
        Link("/", "Overview"),
        Link("/queues", "Queues"),
        Link("/exchanges", "Exchanges"),
        Link("/consumers", "Consumers"),
        Link("/connections", "Connections"),
        Link("/channels", "Channels"),
    ),
)
ADMIN: Final = LinkGroup(
    "Settings",
    (
        Link("/policies", "Policies"),
        Link("/users", "Users"),
        Link("/vhosts", "Virtual hosts"),
        Link("/definitions", "Definitions"),
    ),
)
FILTERS: Final = LinkGroup("Filters", (Link("/playground", "Playground"),))


@dataclass(frozen=True, slots=True)
class Site:
    """The data that pages show. Without a broker there is no login, and nothing can be changed."""

    data: Path | None = None
    database: str | None = None
    broker: Broker | None = None
    node: NodeOptions = field(default_factory=NodeOptions)
    samples: QueueSamples = field(default_factory=QueueSamples)  # of the queues of the database

    @property
    def running(self) -> Broker:
        """The broker; only pages that a broker has may ask for it."""
        assert self.broker is not None
        return self.broker

    @property
    def about(self) -> str:
        """The name of this site for people: its directory or database."""
        return str(self.data or self.database_text or "in memory")

    @property
    def database_text(self) -> str:
        """The URL of the database as pages may show it: without its password."""
        return hide_password(self.database or "")

    @property
    def menu(self) -> tuple[LinkGroup, ...]:
        """The links to all pages."""
        return (STORED, FILTERS) if self.broker is None else (BROKER, STORED, FILTERS, ADMIN)

    @property
    def directory(self) -> Path:
        """The directory of streams; an error if the broker keeps everything in memory."""
        if self.data is None:
            raise HeadgateError("this broker keeps everything in memory, and has no streams")
        return self.data

    def stream_path(self, name: str) -> Path:
        """The directory of a stream of this site."""
        return find_stream(self.directory, name)

    def open_database(self) -> Database:
        """Open the database read-only."""
        if self.database is None:
            raise HeadgateError("no database is named; start with --db sqlite:///queue.db")
        return connect(self.database, access="look")


class Place(NamedTuple):
    """Messages that a page reads: `stream:orders`, `sql:orders`, `queue:%2F/orders` with its virtual host."""

    kind: str
    name: str

    @property
    def of(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def text(self) -> str:
        if self.kind == "queue":
            return f"queue {self.queue_name}"
        return f"{'SQL queue' if self.kind == 'sql' else 'stream'} {self.name}"

    @property
    def vhost(self) -> str:
        return unquote(self.name.partition("/")[0])

    @property
    def queue_name(self) -> str:
        """The name of a broker's queue, without its virtual host."""
        return self.name.partition("/")[2]


def queue_place(vhost: str, name: str) -> Place:
    """The messages of a broker's queue."""
    return Place("queue", f"{quote(vhost, safe='')}/{name}")


def parse_place(text: str) -> Place:
    """Read `kind:name`."""
    kind, colon, name = text.partition(":")
    if not colon or kind not in ("stream", "sql", "queue"):
        raise HeadgateError(
            f"{text!r} names no messages: give stream:NAME, sql:NAME or queue:VHOST/NAME"
        )
    return Place(kind, name)

"""The engine that a database URL names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias, get_args
from typing import Literal as OneOf
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from headgate.clock import Clock
from headgate.errors import DatabaseNotFound, MissingExtra, QueueOptionsError
from headgate.queues.engine import Access, Engine

Synchronous: TypeAlias = OneOf["FULL", "NORMAL", "EXTRA", "OFF"]
_SYNCHRONOUS: Final = get_args(Synchronous)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The options of connect(); None leaves the choice to the engine."""

    clock: Clock | None = None
    access: Access = "create"
    synchronous: Synchronous | None = None  # SQLite
    schema: str | None = None  # PostgreSQL
    most_connections: int | None = None  # PostgreSQL

    def __post_init__(self) -> None:
        if self.access not in get_args(Access):
            raise QueueOptionsError(f"access is {', '.join(get_args(Access))}, not {self.access!r}")

    def only(self, database: str, *names: str) -> dict[str, Any]:
        """The options given, for an engine that takes those names; others are refused."""
        given = {name: getattr(self, name) for name in _ENGINE_OPTIONS}
        given = {name: value for name, value in given.items() if value is not None}
        if unknown := given.keys() - set(names):
            raise QueueOptionsError(
                f"{database} has no option {', '.join(sorted(unknown))}; leave it out"
            )
        return given


_ENGINE_OPTIONS: Final = ("synchronous", "schema", "most_connections")


def open_engine(url: str, options: ConnectOptions) -> Engine:
    """Open the engine that the URL names: `memory:`, `sqlite:///path.db` or `postgresql://…`."""
    parts = _split(url)
    if parts.scheme == "memory":
        return _open_memory(options)
    if parts.scheme == "sqlite":
        return _open_sqlite(url, parts.query, options)
    if is_postgres(url):
        engine: Engine = import_postgres().PostgresEngine(url, **postgres_options(options))
        return engine
    raise QueueOptionsError(
        f"cannot connect to {url!r}; use sqlite:///path.db, postgresql://host/name or memory:"
    )


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as problem:
        raise QueueOptionsError(f"{url!r} is no URL: {problem}") from problem


# ---- memory --------------------------------------------------------------------------------------------


def _open_memory(options: ConnectOptions) -> Engine:
    from headgate.queues.memory.engine import MemoryEngine

    if options.access != "create":
        raise DatabaseNotFound("memory: begins empty, so there is nothing to look at or change")
    return MemoryEngine(clock=options.clock, **options.only("memory:"))


# ---- PostgreSQL ----------------------------------------------------------------------------------------


def is_postgres(url: str) -> bool:
    return _split(url).scheme in ("postgresql", "postgres")


def import_postgres() -> ModuleType:
    """The module of the PostgreSQL engines, or MissingExtra with the pip line."""
    try:
        import headgate.queues.postgres.engine as postgres
    except ImportError as missing:
        if missing.name is not None and missing.name.split(".")[0] != "psycopg":
            raise
        raise MissingExtra("postgres", "PostgreSQL") from missing
    return postgres


def postgres_options(options: ConnectOptions) -> dict[str, Any]:
    """The keyword arguments of a PostgreSQL engine."""
    given = options.only("PostgreSQL", "schema", "most_connections")
    return {"clock": options.clock, "access": options.access, **given}


# ---- SQLite --------------------------------------------------------------------------------------------


def _open_sqlite(url: str, query: str, options: ConnectOptions) -> Engine:
    from headgate.queues.sqlite.engine import SqliteEngine

    given = {**_sqlite_query(url, query), **options.only("SQLite", "synchronous")}
    return SqliteEngine(sqlite_path(url), clock=options.clock, access=options.access, **given)


def _sqlite_query(url: str, query: str) -> dict[str, Any]:
    """The options behind the question mark of a sqlite URL."""
    options = dict(parse_qsl(query, keep_blank_values=True))
    level = options.get("synchronous", "FULL").upper()
    if not options.keys() <= {"synchronous"} or level not in _SYNCHRONOUS:
        raise QueueOptionsError(
            f"{url!r}: behind the question mark may stand synchronous=FULL or another of {', '.join(_SYNCHRONOUS)}"
        )
    return options


def sqlite_path(url: str) -> Path:
    """The file a sqlite URL names: three slashes before a relative path, four before an absolute one."""
    parts = urlsplit(url)
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path:
        raise QueueOptionsError(f"{url!r} names no file; write sqlite:///orders.db")
    if "#" in url:
        raise QueueOptionsError(
            f"{url!r}: a queue is named apart from its database; for a # in the name of a file write %23"
        )
    if "\0" in path:
        raise QueueOptionsError(f"{url!r}: the name of a file cannot hold NUL")
    if path == ":memory:":
        raise QueueOptionsError("SQLite in memory cannot be shared by connections; use memory:")
    return Path(path)

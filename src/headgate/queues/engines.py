"""Opens the engine of a database URL, with the options of connect()."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, get_args

from headgate.clock import Clock
from headgate.errors import DatabaseNotFound, MissingExtra, QueueOptionsError
from headgate.queues.database_url import (
    MemoryTarget,
    PostgresTarget,
    SqliteTarget,
    parse_database_url,
)
from headgate.queues.database_url import Synchronous as Synchronous
from headgate.queues.engine import Access, Engine


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
        """Return the options that are not None, for an engine that takes these names; refuse any other that is set."""
        values = {name: getattr(self, name) for name in _ENGINE_OPTIONS}
        set_options = {name: value for name, value in values.items() if value is not None}
        if unknown := set_options.keys() - set(names):
            raise QueueOptionsError(
                f"{database} has no option {', '.join(sorted(unknown))}; leave it out"
            )
        return set_options


_ENGINE_OPTIONS: Final = ("synchronous", "schema", "most_connections")


def open_engine(url: str, options: ConnectOptions) -> Engine:
    """Open the engine that the URL names: `memory:`, `sqlite:///path.db` or `postgresql://…`."""
    match parse_database_url(url):
        case MemoryTarget():
            return _open_memory(options)
        case SqliteTarget() as target:
            return _open_sqlite(target, options)
        case PostgresTarget():
            engine: Engine = import_postgres().PostgresEngine(url, **postgres_options(options))
            return engine


def is_postgres(url: str) -> bool:
    return isinstance(parse_database_url(url), PostgresTarget)


def import_postgres() -> ModuleType:
    """Return the module of the PostgreSQL engines; MissingExtra if psycopg is not installed."""
    try:
        import headgate.queues.postgres.engine as postgres
    except ImportError as missing:
        if missing.name is not None and missing.name.split(".")[0] != "psycopg":
            raise
        raise MissingExtra("postgres", "PostgreSQL") from missing
    return postgres


def postgres_options(options: ConnectOptions) -> dict[str, Any]:
    """Return the keyword arguments of a PostgreSQL engine."""
    own = options.only("PostgreSQL", "schema", "most_connections")
    return {"clock": options.clock, "access": options.access, **own}


def _open_memory(options: ConnectOptions) -> Engine:
    from headgate.queues.memory.engine import MemoryEngine

    if options.access != "create":
        raise DatabaseNotFound("memory: begins empty, so there is nothing to look at or change")
    return MemoryEngine(clock=options.clock, **options.only("memory:"))


def _open_sqlite(target: SqliteTarget, options: ConnectOptions) -> Engine:
    from headgate.queues.sqlite.engine import SqliteEngine

    own = options.only("SQLite", "synchronous")
    if target.synchronous is not None:
        own.setdefault("synchronous", target.synchronous)
    return SqliteEngine(target.path, clock=options.clock, access=options.access, **own)

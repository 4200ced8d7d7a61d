"""Migrations of the tables in one schema. A second process waits, and then finds nothing to do."""

from __future__ import annotations

from headgate.errors import DatabaseNotFound, QueueOptionsError
from headgate.queues.database_url import PostgresTarget
from headgate.queues.engine import (
    Access,
    Operation,
    Statement,
    Transaction,
    TransactionMode,
)
from headgate.queues.sql.dialect import check_version, migrations_of, too_new

# Read from the system's tables: the answers of to_regclass and the like may be older than the lock.
_IS_THERE = """
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1::text),
    EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = $1::text AND c.relname = 'migration'),
    coalesce((SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = $1::text), true),
    current_user::text
"""
_VERSION = "SELECT coalesce(max(version), 0) FROM migration"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))"
_TABLE = "CREATE TABLE migration (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"


def prepare(target: PostgresTarget, access: Access) -> Operation[None]:
    """Bring the tables up to date. Unless they may be created, refuse a schema without queues; for a reader, also refuse
    tables of another version."""
    if access != "create":
        version = yield from _version(target)
        if not version:
            raise DatabaseNotFound(
                f"there are no queues in schema {target.schema!r} of that database; check the URL "
                "(postgresql://host/database?schema=name), or create the first one: headgate queue create NAME"
            )
        if access == "look":
            check_version(version, migrations_of("postgres")[-1][0], f"schema {target.schema!r}")
            return
    yield from migrate(target)


def migrate(target: PostgresTarget) -> Operation[None]:
    """Apply the missing migrations. The role needs the right to create tables, and the schema, only if there are any."""
    if (yield from _version(target)) != migrations_of("postgres")[-1][0]:
        yield Transaction(TransactionMode.WRITE, lambda: _migrate(target))


def _migrate(target: PostgresTarget) -> Operation[None]:
    migrations = migrations_of("postgres")
    newest = migrations[-1][0]
    yield Statement(_LOCK, (f"headgate.migration.{target.schema}",))
    version = yield from _version(target)
    if version > newest:
        raise too_new(version, newest, f"schema {target.schema!r}")
    yield from _prepare(target)
    for number, text in migrations:
        if number > version:
            yield Statement(text)
            yield Statement("INSERT INTO migration (version) VALUES ($1)", (number,))


def _version(target: PostgresTarget) -> Operation[int]:
    [(_, has_table, may_use, role)] = yield Statement(_IS_THERE, (target.schema,))
    if not may_use:
        raise QueueOptionsError(
            f"the role {role!r} may not use the schema {target.schema!r}, where the queues are; its owner can grant it: "
            f'GRANT USAGE ON SCHEMA "{target.schema}" TO "{role}", and the same for its tables and sequences'
        )
    if not has_table:
        return 0
    [(version,)] = yield Statement(_VERSION)
    number: int = version
    return number


def _prepare(target: PostgresTarget) -> Operation[None]:
    """Create the schema and the table of migrations, unless they exist."""
    [(has_schema, has_table, *_)] = yield Statement(_IS_THERE, (target.schema,))
    if not has_schema:
        yield Statement(f'CREATE SCHEMA "{target.schema}"')
    if not has_table:
        yield Statement(_TABLE)

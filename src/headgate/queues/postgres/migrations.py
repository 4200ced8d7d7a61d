"""Bringing the tables of one schema up to date. Whoever comes second waits, and finds it done."""

from __future__ import annotations

from headgate.errors import DatabaseNotFound, QueueOptionsError, SchemaTooNew
from headgate.queues.engine import Access, Operation, Statement, Transaction
from headgate.queues.postgres.target import Target
from headgate.queues.sql.statements import check_version, migrations_of

# Asked of the tables: what to_regclass and its like answer was remembered before the lock was had.
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


def prepare(target: Target, access: Access) -> Operation[None]:
    """Bring the tables up to date; where none are to be made, refuse a schema that has none, and to look at tables
    that other versions of Headgate made."""
    if access != "create":
        version = yield from _version(target)
        if not version:
            raise DatabaseNotFound(
                f"there are no queues in schema {target.schema!r} of that database; check the URL "
                "(postgresql://host/database?schema=name), or make the first one: headgate queue create NAME"
            )
        if access == "look":
            check_version(version, migrations_of("postgres")[-1][0], f"schema {target.schema!r}")
            return
    yield from migrate(target)


def migrate(target: Target) -> Operation[None]:
    """Nothing is asked of the role when nothing is to be done; otherwise it must be allowed to create tables in
    the schema, and the schema itself where it is not there."""
    wanted = migrations_of("postgres")
    newest = wanted[-1][0]
    if (yield from _version(target)) == newest:
        return
    yield Transaction.WRITE
    yield Statement(_LOCK, (f"headgate.migration.{target.schema}",))
    version = yield from _version(target)
    if version > newest:
        raise SchemaTooNew(
            f"the tables in schema {target.schema!r} are of version {version}, this Headgate knows {newest}; upgrade it"
        )
    yield from _prepare(target)
    for number, text in wanted:
        if number > version:
            yield Statement(text)
            yield Statement("INSERT INTO migration (version) VALUES ($1)", (number,))
    yield Transaction.COMMIT


def _version(target: Target) -> Operation[int]:
    [(_, has_table, may_use, role)] = yield Statement(_IS_THERE, (target.schema,))
    if not may_use:
        raise QueueOptionsError(
            f"the role {role!r} may not use the schema {target.schema!r}, where the queues are; let its owner say: "
            f'GRANT USAGE ON SCHEMA "{target.schema}" TO "{role}", and the same for its tables and sequences'
        )
    if not has_table:
        return 0
    [(version,)] = yield Statement(_VERSION)
    number: int = version
    return number


def _prepare(target: Target) -> Operation[None]:
    """The schema and the table that remembers, where they are not there yet."""
    [(has_schema, has_table, *_)] = yield Statement(_IS_THERE, (target.schema,))
    if not has_schema:
        yield Statement(f'CREATE SCHEMA "{target.schema}"')
    if not has_table:
        yield Statement(_TABLE)

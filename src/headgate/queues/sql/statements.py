"""The named statements of a dialect, read from its .sql files.

    -- name: ack
    -- Why it is written this way.
    DELETE FROM …

A statement may have named gaps, `{where}`, that are filled with fragments of SQL, never with values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Final

from headgate.errors import QueueError, SchemaTooNew
from headgate.filters.compile.sql import SqlDialect

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_MIGRATION: Final = re.compile(r"(\d{4})_\w+\.sql")


@lru_cache(maxsize=2)
def statements_of(dialect: SqlDialect) -> dict[str, str]:
    """Every named statement of the dialect."""
    found: dict[str, str] = {}
    for name, text in _read(dialect):
        if not _MIGRATION.fullmatch(name):
            found.update(split_statements(text))
    return found


def migrations_of(dialect: SqlDialect) -> list[tuple[int, str]]:
    """The numbered migrations of the dialect, in order."""
    found = [(_MIGRATION.fullmatch(name), text) for name, text in _read(dialect)]
    return sorted((int(number[1]), text) for number, text in found if number)


def check_version(version: int, newest: int, where: str) -> None:
    """Refuse to look at tables of another version: looking does not bring them up to date."""
    if version > newest:
        raise SchemaTooNew(
            f"{where}: the tables are of version {version}, this Headgate knows {newest}; upgrade it"
        )
    if version < newest:
        raise QueueError(
            f"{where}: the tables are of version {version}, and {newest} is needed to look at them; whatever publishes "
            "or claims with this Headgate brings them up to date"
        )


def split_statements(text: str) -> dict[str, str]:
    """The statements of one file by name, without their comments."""
    parts = _NAME.split(text)
    named = zip(parts[1::2], parts[2::2], strict=True)
    return {name: _COMMENT.sub("", body).strip().rstrip(";") for name, body in named}


def _read(dialect: SqlDialect) -> Iterator[tuple[str, str]]:
    for file in (files("headgate.queues") / "sql" / dialect).iterdir():
        if file.name.endswith(".sql"):
            yield file.name, file.read_text(encoding="utf-8")

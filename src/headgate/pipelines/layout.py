"""How messages lie in a folder of Parquet files: the columns of its files, the folders they are in, when they are merged.

    schema = "timestamp timestamp, topic string, region string, amount long, payload binary"
    partition_by = ["region", "day(timestamp)"]     region=EU/day=2026-11-18/part-….parquet
    compact_after = 50                               small files in one folder

Without a schema, a file has all parts of a message, with headers and properties as maps. A name means what it means in the
schema of a read: a part of the message, else the header of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.errors import SparkOptionsError

_ALIASES: Final = {
    "long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "bool": "boolean",
    "real": "float", "text": "string",
}  # fmt: skip
_SCALARS: Final = frozenset(
    {"string", "bigint", "int", "smallint", "tinyint", "double", "float", "boolean", "binary", "timestamp"}
)  # fmt: skip
_MAP: Final = re.compile(r"map<string,(string|struct<s:string,i:bigint,f:double,b:boolean>)>")
_COLUMN: Final = re.compile(r"(?:`([^`]+)`|([^\s`]+))\s+(\S.*)", re.DOTALL)
_OF_TIMESTAMP: Final = re.compile(r"(day|hour)\(timestamp\)")
_NOT_FOLDERS: Final = frozenset({"payload", "headers", "properties"})


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The layout of a folder of Parquet files."""

    columns: tuple[tuple[str, str], ...] = ()  # (name, type as Spark writes it); empty: all parts
    partition_by: tuple[str, ...] = ()
    compact_after: int | None = None  # None: small files are never merged by the writer

    def partition_names(self) -> tuple[str, ...]:
        """Return the names of the folders: region, and day for day(timestamp)."""
        return tuple(
            found[1] if (found := _OF_TIMESTAMP.fullmatch(entry)) else entry
            for entry in self.partition_by
        )

    def as_options(self) -> dict[str, str]:
        """Return the layout as options of the sink."""
        options = {
            "schema": ", ".join(f"`{name}` {type_}" for name, type_ in self.columns),
            "partitionBy": ", ".join(self.partition_by),
            "compactAfter": "" if self.compact_after is None else str(self.compact_after),
        }
        return {name: text for name, text in options.items() if text}


def parse_layout(
    schema: str | None, partition_by: Iterable[str], compact_after: int | None
) -> TableLayout:
    """Parse the layout of a sink, and refuse one that no table can have."""
    columns = () if schema is None else tuple(_parse_columns(schema))
    layout = TableLayout(columns, tuple(_compact(entry) for entry in partition_by), compact_after)
    _check_partitions(layout)
    if compact_after is not None and compact_after < 2:
        raise SparkOptionsError(f"compact_after: merge 2 files or more, not {compact_after}")
    return layout


def split_partitions(text: str) -> tuple[str, ...]:
    """Return the entries of a list that an option separates by commas."""
    return tuple(entry.strip() for entry in text.split(",") if entry.strip())


def _compact(text: str) -> str:
    return re.sub(r"\s+", "", text) if "(" in text else text.strip()


def _parse_columns(text: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for part in _split_columns(text):
        found = _COLUMN.fullmatch(part.strip())
        if found is None:
            raise SparkOptionsError(
                f'schema: {part.strip()!r} is no column; write "region string, amount long"'
            )
        name, type_ = found[1] or found[2], _parse_type(found[3])
        if name.lower() in seen:
            raise SparkOptionsError(f"schema: the column {name!r} occurs twice")
        seen.add(name.lower())
        yield name, type_


def _split_columns(text: str) -> Sequence[str]:
    """Split a schema into its columns; commas inside <> are part of a type."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _parse_type(text: str) -> str:
    type_ = re.sub(r"\s+", "", text.lower())
    type_ = re.sub(r"[a-z]+", lambda word: _ALIASES.get(word[0], word[0]), type_)
    if type_ not in _SCALARS and _MAP.fullmatch(type_) is None:
        raise SparkOptionsError(
            f"schema: a column of a table cannot be {text.strip()!r}; give one of {', '.join(sorted(_SCALARS))}, "
            "or map<string, string> for headers and properties"
        )
    return type_


def _check_partitions(layout: TableLayout) -> None:
    types, names = dict(layout.columns), layout.partition_names()
    for entry, name in zip(layout.partition_by, names, strict=True):
        of_timestamp = _OF_TIMESTAMP.fullmatch(entry) is not None
        if of_timestamp and name in types:
            raise SparkOptionsError(f"partition_by: {entry} would be a second column {name!r}")
        if "(" in entry and not of_timestamp:
            raise SparkOptionsError(
                f"partition_by: {entry!r} is unknown; write the name of a column, day(timestamp) or hour(timestamp)"
            )
        if not of_timestamp and (name in _NOT_FOLDERS or name not in types):
            raise SparkOptionsError(
                f'partition_by: {name!r} needs a type: add it to schema = "{name} string, payload binary, …"'
            )
        if types.get(name) in ("binary", "timestamp", "double", "float"):
            raise SparkOptionsError(
                f"partition_by: {name!r} is {types[name]}; folders are named by texts, whole numbers and booleans"
                + (", or day(timestamp)" if types[name] == "timestamp" else "")
            )
    if len(set(names)) < len(names):
        raise SparkOptionsError(f"partition_by: {max(names, key=names.count)!r} occurs twice")
    if types and not set(types) - set(names):
        raise SparkOptionsError("partition_by: a table needs a column besides those of its folders")

"""The statements that read a queue in ranges of ids, and what is left to ask of the rows they give."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headgate.filters.columns import BatchColumns
from headgate.filters.nodes import TRUE, Field, Filter, Scope, fields_read
from headgate.filters.targets.arrow import compile_mask
from headgate.filters.targets.sql import compile_sql
from headgate.queues.contract import SqlValue, State
from headgate.queues.dialect import ON_MESSAGE, Dialect
from headgate.queues.records import MESSAGE_COLUMNS
from headgate.spark.queues.documents import Wanted, message_columns
from headgate.spark.queues.rows import Rows
from headgate.spark.schema import Column

_DOCUMENT_OF: Final[dict[Scope, str]] = {"header": "headers", "property": "properties"}
_FIRST_GAP: Final = 5  # the first parameter of the filter
_FIRST_PAGE: Final = 256
_LARGEST_PAGE: Final = 1 << 14  # rows
_PAGE_BYTES: Final = 16 << 20
# `d` is the delivery, `m` the message or its copy in the archive.
_OF_MESSAGE: Final = {name: f"m.{name}" for name in MESSAGE_COLUMNS if name != "message_id"}
_DELIVERED: Final = {
    "offset": "d.message",
    "_state": "d.state",
    "_attempts": "d.attempts",
    "_group": "d.grp",
    "_reason": "d.reason",
    "id": "m.message_id",
    **_OF_MESSAGE,
}
_ARCHIVED: Final = {
    **_DELIVERED,
    "offset": "m.id",
    "_state": str(len(State)),
    "_attempts": "m.attempts",
    "_group": "m.grp",
    "_reason": "CAST(NULL AS TEXT)",
}


@dataclass(frozen=True, slots=True)
class Scan:
    """A statement for a range of ids, and what it leaves to be asked."""

    queue: int
    text: str
    params: tuple[SqlValue, ...]
    wanted: Wanted
    residual: Filter | None


def scan_of(
    queue: int,
    states: Sequence[State],
    filter: Filter,
    columns: Sequence[Column],
    dialect: Dialect,
    now_ms: int,
) -> Scan:
    """The scan that fills these columns with what the filter matches; without states, of the archive."""
    plan = compile_sql(
        filter, dialect.name, first_parameter=_FIRST_GAP, layout=ON_MESSAGE, now_ms=now_ms
    )
    where = dialect.numbered(plan.where, _FIRST_GAP)
    wanted = wanted_for(columns, plan.residual)
    held = _DELIVERED if states else _ARCHIVED
    text = dialect.text(
        "deliveries" if states else "archived_messages",
        columns=", ".join(held[name] for name in wanted.names),
        states=listed(states),
        where=where.text,
    )
    return Scan(queue, text, where.params, wanted, plan.residual)


def listed(states: Iterable[State]) -> str:
    """As numbers in the text, so that the indexes of one state are found."""
    return ", ".join(str(int(state)) for state in states)


def wanted_for(columns: Iterable[Column], residual: Filter | None) -> Wanted:
    """What must be read of each message to fill the columns and to ask what is left."""
    columns = tuple(columns)
    fields = {column.field for column in columns if column.holds == "field" and column.field}
    fields |= fields_read(TRUE if residual is None else residual)
    names = {field.name for field in fields if field.scope == "sys"}
    names |= {column.name for column in columns if column.holds in ("system", "standing")}
    maps = {column.scope for column in columns if column.holds in ("values", "texts")}
    headers, properties = (_names_in(scope, fields, maps) for scope in _DOCUMENT_OF)
    names |= {_DOCUMENT_OF[scope] for scope in maps | {field.scope for field in fields} - {"sys"}}
    return Wanted(
        tuple(name for name in _DELIVERED if name in {"offset", *names}), headers, properties
    )


def _names_in(
    scope: Scope, fields: Iterable[Field], maps: Collection[Scope]
) -> frozenset[str] | None:
    if scope in maps:
        return None
    return frozenset(field.name for field in fields if field.scope == scope)


# ---- reading -----------------------------------------------------------------------------------------


def matches(rows: Rows, scan: Scan, low: int, high: int) -> Iterator[pa.RecordBatch]:
    """What matches of the ids [low, high), as stream columns in the order of ids."""
    ask = None if scan.residual is None else compile_mask(scan.residual)
    for page in pages(rows, scan, low, high):
        batch = message_columns(page, scan.wanted)
        yield batch if ask is None else batch.filter(pa.array(ask(BatchColumns(batch))))


def pages(rows: Rows, scan: Scan, low: int, high: int) -> Iterator[pa.RecordBatch]:
    """The rows of the statement, a page after the other: a database hands over a whole answer at once."""
    limit = _FIRST_PAGE
    while low < high:
        count = nbytes = 0
        params = (scan.queue, low, high, limit, *scan.params)
        for batch in rows.batches(scan.text, params, scan.wanted.names):
            if batch.num_rows:
                low = batch.column(0)[-1].as_py() + 1
                count, nbytes = count + batch.num_rows, nbytes + batch.nbytes
                yield batch
        if count < limit:
            return
        limit = next_page(limit, nbytes)


def next_page(rows: int, nbytes: int) -> int:
    """How many rows to ask for, after so many were so many bytes."""
    fitting = rows * _PAGE_BYTES // max(nbytes, 1)
    return max(1, min(fitting, rows * 8, _LARGEST_PAGE))


def spans(borders: Collection[int], end: int, parts: int) -> list[tuple[int, int]]:
    """The ids from the first border to `end`, on at most `parts` ranges with about as many borders each."""
    firsts = list(borders)
    if not firsts:
        return []
    count = min(parts, len(firsts))
    chosen = [firsts[len(firsts) * part // count] for part in range(count)]
    return list(zip(chosen, [*chosen[1:], end], strict=True))

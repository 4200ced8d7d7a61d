"""The statements that read a queue in ranges, and what is left to ask of the rows they give.

A row's key is where it stands in the order it is read in: its id, or in an archive that is followed its turn and its
id. Ranges go from one key up to another, which is not in them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import pyarrow as pa

from headgate.columns import BatchColumns
from headgate.filters import TRUE, Field, Filter, Scope, fields_read
from headgate.filters.compile.arrow import compile_mask
from headgate.filters.compile.sql import compile_sql
from headgate.queues import SqlValue, State
from headgate.queues.sql import MESSAGE_COLUMNS, ON_MESSAGE, QueueDialect
from headgate.spark.schema import Column
from headgate.spark.source.queue_documents import Wanted, message_columns
from headgate.spark.source.queue_rows import Rows

_DOCUMENT_OF: Final[dict[Scope, str]] = {"header": "headers", "property": "properties"}
_FIRST_PAGE: Final = 256
_LARGEST_PAGE: Final = 1 << 14  # rows
_PAGE_BYTES: Final = 16 << 20
Key: TypeAlias = tuple[int, ...]
K = TypeVar("K")

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
TURN: Final = "_turn"
_FOLLOWED: Final = {TURN: "m.turn", **_ARCHIVED}


@dataclass(frozen=True, slots=True)
class Scan:
    """A statement for a range, and what it leaves to be asked. It selects the key first, which ends with the id."""

    queue: int
    text: str
    params: tuple[SqlValue, ...]
    wanted: Wanted
    residual: Filter | None
    before_id: tuple[str, ...] = ()  # what of the key stands before the id

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.before_id, *self.wanted.names)


def scan_of(
    queue: int,
    states: Sequence[State],
    filter: Filter,
    columns: Sequence[Column] | None,
    dialect: QueueDialect,
    now_us: int,
    *,
    in_turn: bool = False,
) -> Scan:
    """The scan that fills these columns (None: all there are) with what the filter matches; without states, of the
    archive, by ids or in the order it was filled in."""
    before_id = (TURN,) if in_turn else ()
    gap = 5 + 2 * len(before_id)  # behind the queue, two keys and how many
    plan = compile_sql(filter, dialect.name, first_parameter=gap, layout=ON_MESSAGE, now_us=now_us)
    where = dialect.numbered(plan.where, gap)
    wanted = WHOLE if columns is None else wanted_for(columns, plan.residual)
    name, held = _rows_of(states, in_turn)
    text = dialect.text(
        name,
        columns=", ".join(held[name] for name in (*before_id, *wanted.names)),
        states=listed(states),
        where=where.text,
    )
    return Scan(queue, text, where.params, wanted, plan.residual, before_id)


def _rows_of(states: Sequence[State], in_turn: bool) -> tuple[str, Mapping[str, str]]:
    """The statement, and what it selects for each column."""
    if states:
        return "deliveries", _DELIVERED
    return ("archived_in_turn", _FOLLOWED) if in_turn else ("archived_messages", _ARCHIVED)


def listed(states: Iterable[State]) -> str:
    """As numbers in the text, so that the indexes of one state are found."""
    return ", ".join(str(int(state)) for state in states)


# All that is published of a message.
WHOLE: Final = Wanted(("offset", "id", *_OF_MESSAGE), None, None)


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


def matches(rows: Rows, scan: Scan, low: Key, high: Key) -> Iterator[pa.RecordBatch]:
    """What matches of the keys [low, high), as stream columns in the order of keys."""
    ask = None if scan.residual is None else compile_mask(scan.residual)
    for page in pages(rows, scan, low, high):
        batch = message_columns(page.select(scan.wanted.names), scan.wanted)
        yield batch if ask is None else batch.filter(pa.array(ask(BatchColumns(batch))))


def pages(rows: Rows, scan: Scan, low: Key, high: Key) -> Iterator[pa.RecordBatch]:
    """The rows of the statement, a page after the other: a database hands over a whole answer at once."""
    limit = _FIRST_PAGE
    while low < high:
        count = nbytes = 0
        params = (scan.queue, *low, *high, limit, *scan.params)
        for batch in rows.batches(scan.text, params, scan.names):
            if batch.num_rows:
                low = after(last_key(batch, len(low)))
                count, nbytes = count + batch.num_rows, nbytes + batch.nbytes
                yield batch
        if count < limit:
            return
        limit = next_page(limit, nbytes)


def last_key(batch: pa.RecordBatch, length: int) -> Key:
    """The key of the last row; it stands in the first columns."""
    return tuple(array[-1].as_py() for array in batch.columns[:length])


def after(key: Key) -> Key:
    """The least key above this one."""
    return (*key[:-1], key[-1] + 1)


def next_page(rows: int, nbytes: int) -> int:
    """How many rows to ask for, after so many were so many bytes."""
    fitting = rows * _PAGE_BYTES // max(nbytes, 1)
    return max(1, min(fitting, rows * 8, _LARGEST_PAGE))


def spans(borders: Collection[K], end: K, parts: int) -> list[tuple[K, K]]:
    """What lies from the first border to `end`, on at most `parts` ranges with about as many borders each."""
    firsts = list(borders)
    if not firsts:
        return []
    count = min(parts, len(firsts))
    chosen = [firsts[len(firsts) * part // count] for part in range(count)]
    return list(zip(chosen, [*chosen[1:], end], strict=True))

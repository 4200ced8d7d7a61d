"""The statements that read a queue in ranges of keys, and the filter that is left to apply to their rows.

A row's key is its position in the order of reading: its id, or in a followed archive its turn and its id. A range goes
from one key up to another, which is not in it. The archive is *followed*: its messages are ordered by turn, and all
messages below the end are there and stay unchanged. The messages a queue holds now are *read once*: by ids, up to the
newest id of one moment.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from headgate.columns import BatchColumns, shred_headers
from headgate.errors import DataLost
from headgate.filters import TRUE, Field, Filter, Scope, fields_read
from headgate.filters.compile.arrow import compile_mask
from headgate.filters.compile.sql import compile_sql
from headgate.message import OPAQUE, HeaderValue
from headgate.pipelines import ARCHIVED, STATES
from headgate.queues import SqlValue, State
from headgate.queues.sql import MESSAGE_COLUMNS, ON_MESSAGE, QueueDialect
from headgate.spark.schema import SchemaColumn
from headgate.spark.source.queue_rows import QueueRows, refuse_older, select_column, select_keys

TURN: Final = "_turn"
TURNS_SINCE: Final = 4  # the version of the tables
_FIRST_PAGE: Final = 256
_LARGEST_PAGE: Final = 1 << 14  # rows
_PAGE_BYTES: Final = 16 << 20
_DOCUMENT_OF: Final[dict[Scope, str]] = {"header": "headers", "property": "properties"}
_SCOPE_OF: Final = {document: scope for scope, document in _DOCUMENT_OF.items()}
_STATE_NAMES: Final = (*STATES, ARCHIVED)
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
_FOLLOWED: Final = {TURN: "m.turn", **_ARCHIVED}


class SelectedColumns(NamedTuple):
    """The columns that are read of each message, the id first; of headers and properties these names (None: all)."""

    names: tuple[str, ...]
    headers: Collection[str] | None
    properties: Collection[str] | None


# All published columns of a message.
ALL_COLUMNS: Final = SelectedColumns(("offset", "id", *_OF_MESSAGE), None, None)


@dataclass(frozen=True, slots=True)
class QueueScan:
    """A statement for a range, and the filter it leaves to apply. It selects the key first, which ends with the id."""

    queue: int
    text: str
    params: tuple[SqlValue, ...]
    columns: SelectedColumns
    residual: Filter | None
    key_prefix: tuple[str, ...] = ()  # the parts of the key before the id

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.key_prefix, *self.columns.names)


def scan_of(
    queue: int,
    states: Sequence[State],
    filter: Filter,
    columns: Sequence[SchemaColumn] | None,
    dialect: QueueDialect,
    now_us: int,
    *,
    in_turn: bool = False,
) -> QueueScan:
    """The scan that fills these columns (None: all) with the matches of the filter.

    Without states it reads the archive, by ids or `in_turn`: in the order in which it was filled.
    """
    key_prefix = (TURN,) if in_turn else ()
    gap = 5 + 2 * len(key_prefix)  # behind the queue, two keys and the limit
    plan = compile_sql(filter, dialect.name, first_parameter=gap, layout=ON_MESSAGE, now_us=now_us)
    where = dialect.number_placeholders(plan.where, gap)
    selected = ALL_COLUMNS if columns is None else select_columns(columns, plan.residual)
    name, expressions = _statement(states, in_turn)
    text = dialect.text(
        name,
        columns=", ".join(expressions[name] for name in (*key_prefix, *selected.names)),
        states=state_list(states),
        where=where.text,
    )
    return QueueScan(queue, text, where.params, selected, plan.residual, key_prefix)


def _statement(states: Sequence[State], in_turn: bool) -> tuple[str, Mapping[str, str]]:
    """The name of the statement, and the expression it selects for each column."""
    if states:
        return "deliveries", _DELIVERED
    return ("archived_in_turn", _FOLLOWED) if in_turn else ("archived_messages", _ARCHIVED)


def state_list(states: Iterable[State]) -> str:
    """The states as numbers in the statement's text, so that the partial indexes of one state are used."""
    return ", ".join(str(int(state)) for state in states)


def select_columns(columns: Iterable[SchemaColumn], residual: Filter | None) -> SelectedColumns:
    """The columns that must be read of each message to fill the schema and to apply the residual filter."""
    columns = tuple(columns)
    fields = {column.field for column in columns if column.holds == "field" and column.field}
    fields |= fields_read(TRUE if residual is None else residual)
    names = {field.name for field in fields if field.scope == "sys"}
    names |= {column.name for column in columns if column.holds in ("system", "standing")}
    maps = {column.scope for column in columns if column.holds in ("values", "texts")}
    headers, properties = (_names_in(scope, fields, maps) for scope in _DOCUMENT_OF)
    names |= {_DOCUMENT_OF[scope] for scope in maps | {field.scope for field in fields} - {"sys"}}
    return SelectedColumns(
        tuple(name for name in _DELIVERED if name in {"offset", *names}), headers, properties
    )


def _names_in(
    scope: Scope, fields: Iterable[Field], maps: Collection[Scope]
) -> frozenset[str] | None:
    if scope in maps:
        return None
    return frozenset(field.name for field in fields if field.scope == scope)


# ---- reading -----------------------------------------------------------------------------------------


def matches(rows: QueueRows, scan: QueueScan, low: Key, high: Key) -> Iterator[pa.RecordBatch]:
    """Read the matches with keys in [low, high), as stream columns in the order of keys."""
    mask = None if scan.residual is None else compile_mask(scan.residual)
    for page in pages(rows, scan, low, high):
        batch = message_columns(page.select(scan.columns.names), scan.columns)
        yield batch if mask is None else batch.filter(pa.array(mask(BatchColumns(batch))))


def pages(rows: QueueRows, scan: QueueScan, low: Key, high: Key) -> Iterator[pa.RecordBatch]:
    """Select the rows of the statement page by page, since a database returns a whole answer at once."""
    limit = _FIRST_PAGE
    while low < high:
        count = nbytes = 0
        params = (scan.queue, *low, *high, limit, *scan.params)
        for batch in rows.batches(scan.text, params, scan.names):
            if batch.num_rows:
                low = key_after(_last_key(batch, len(low)))
                count, nbytes = count + batch.num_rows, nbytes + batch.nbytes
                yield batch
        if count < limit:
            return
        limit = next_page(limit, nbytes)


def _last_key(batch: pa.RecordBatch, length: int) -> Key:
    """The key of the last row, from the first columns."""
    return tuple(array[-1].as_py() for array in batch.columns[:length])


def key_after(key: Key) -> Key:
    """The least key above this one."""
    return (*key[:-1], key[-1] + 1)


def next_page(rows: int, nbytes: int) -> int:
    """Choose how many rows to select next, when the last page of `rows` rows had `nbytes` bytes."""
    fitting = rows * _PAGE_BYTES // max(nbytes, 1)
    return max(1, min(fitting, rows * 8, _LARGEST_PAGE))


def split_range(borders: Collection[K], end: K, count: int) -> list[tuple[K, K]]:
    """Split the range from the first border to `end` into at most `count` ranges with similar numbers of borders."""
    firsts = list(borders)
    if not firsts:
        return []
    count = min(count, len(firsts))
    starts = [firsts[len(firsts) * part // count] for part in range(count)]
    return list(zip(starts, [*starts[1:], end], strict=True))


# ---- rows with JSON documents to stream columns ------------------------------------------------------


def message_columns(batch: pa.RecordBatch, selected: SelectedColumns) -> pa.RecordBatch:
    """Replace the documents of headers and properties by typed columns (h.s.region, …)."""
    arrays: dict[str, pa.Array] = {}
    for name, array in zip(selected.names, batch.columns, strict=True):
        if name in _SCOPE_OF:
            only = selected.headers if name == "headers" else selected.properties
            arrays.update(shred_headers(parse_documents(array), _SCOPE_OF[name], only))
        else:
            arrays[name] = pa.array(_STATE_NAMES).take(array) if name == "_state" else array
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def parse_documents(documents: pa.Array) -> list[dict[str, HeaderValue]]:
    """Parse all JSON objects in one call. A null in them is a value that no filter can compare."""
    text = f"[{','.join(documents.to_pylist())}]"
    parsed: list[dict[str, Any]] = json.loads(text)
    return list(map(_mark_opaque, parsed)) if "null" in text else parsed


def _mark_opaque(document: dict[str, Any]) -> dict[str, Any]:
    return {name: OPAQUE if value is None else value for name, value in document.items()}


# ---- the order of a query ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which a query reads a queue: the parts of its key, and the statements for ranges of it."""

    names: tuple[str, ...]
    count: str
    at: str
    borders: str
    states: tuple[State, ...] = ()

    @property
    def first(self) -> Key:
        return (0,) * len(self.names)


FOLLOWED: Final = Order((TURN, "offset"), "turn_count", "turn_at", "turn_borders")


def order_of(states: Sequence[State]) -> Order:
    """The order in which these states are read; without states, that of the archive."""
    if not states:
        return FOLLOWED
    return Order(("offset",), "delivery_count", "delivery_at", "delivery_borders", tuple(states))


def turns_end(rows: QueueRows, queue: int) -> int:
    """The turn below which no more messages arrive."""
    refuse_older(rows, TURNS_SINCE)
    [(end, foreign)] = select_keys(rows, "turns_end", (queue,), FOLLOWED.names)
    if foreign is not None:
        raise DataLost(
            f"the archive has turn {foreign}, which this server has not reached: it was restored from a dump of another "
            f"server; give its messages new turns, once: UPDATE archive SET turn = DEFAULT WHERE turn >= {end}"
        )
    return end


def has_archive(rows: QueueRows, queue: int) -> bool:
    """Whether the queue keeps an archive, or has one from earlier."""
    turns_end(rows, queue)
    kept = bool(select_column(rows, "keeps_archive", queue)[0].as_py())
    return kept or end_of(rows, FOLLOWED, queue) != FOLLOWED.first


def end_of(rows: QueueRows, order: Order, queue: int) -> Key:
    """The key after the last message; the first key when there is no message."""
    if order.states:
        states = state_list(order.states)
        last = select_keys(rows, "last_delivery", (queue,), order.names, states=states)
    else:
        last = select_keys(rows, "last_in_turn", (queue, turns_end(rows, queue)), order.names)
    return key_after(last[0]) if last else order.first


def count_of(rows: QueueRows, order: Order, queue: int, low: Key, high: Key) -> int:
    """Count the messages in the range."""
    gaps = {"states": state_list(order.states)}
    count: int = select_column(rows, order.count, queue, *low, *high, **gaps)[0].as_py()
    return count


def key_at(rows: QueueRows, order: Order, queue: int, low: Key, high: Key, skip: int) -> Key | None:
    """The key after the first `skip` messages of the range; None when it has no more messages."""
    params = (queue, *low, *high, skip)
    keys = select_keys(rows, order.at, params, order.names, states=state_list(order.states))
    return keys[0] if keys else None


def borders_of(
    rows: QueueRows, order: Order, queue: int, low: Key, high: Key, step: int
) -> list[Key]:
    """The keys of the first message of the range and of every `step`-th after it."""
    params = (queue, *low, *high, step)
    return select_keys(rows, order.borders, params, order.names, states=state_list(order.states))

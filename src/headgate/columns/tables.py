"""Arrow tables -> the columns of chunks, under the same rules as messages.

A column is taken by its name:

    timestamp, topic, filter_value, key, priority, id, payload    the field of the message; any may be missing
    h.s.region, h.i.amount, p.s.subject, …                        one typed view, as in `columns.names`
    overflow                                                      as in a scan of a stream with very many headers
    offset                                                        ignored: the stream gives its own
    anything else                                                 a header of that name, of the column's own type

A null is an absent header. Strings, integers, floats and booleans become headers; other types are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns import overflow
from headgate.columns.names import (
    SYSTEM_COLUMNS,
    TEXT_COLUMNS,
    header_of,
    is_header_column,
    is_typed_name,
    parse_column_name,
    typed_name,
)
from headgate.columns.rows import Arrays, in_order, stamped
from headgate.errors import InvalidMessage
from headgate.filters import Field, View
from headgate.message import (
    MAX_NAME_BYTES,
    MAX_PRIORITY,
    PROPERTY_NAMES,
    check_header_name,
    check_header_value,
)

_TYPE_OF: Final[dict[View, pa.DataType]] = {
    "string": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "opaque": pa.bool_(),
}
SMALL_BATCH: Final = 4096  # rows; many smaller ones are put together first


def batches_of(table: pa.Table | pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The record batches of what was given."""
    if isinstance(table, pa.RecordBatch):
        yield table
    elif isinstance(table, pa.Table):
        parts = max((column.num_chunks for column in table.columns), default=1)
        whole = table.combine_chunks() if table.num_rows < parts * SMALL_BATCH else table
        yield from whole.to_batches()
    else:
        raise InvalidMessage(
            "table", f"must be a pyarrow Table or RecordBatch, not {type(table).__name__}"
        )


def columns_of(batch: pa.RecordBatch, now_us: int) -> Arrays:
    """The batch as columns of messages; refuses what `validate` would refuse in a message."""
    found: Arrays = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name == "offset":
            continue
        column, canonical = _canonical(name, array)
        if column in found:
            raise InvalidMessage(f"column {name!r}", f"is there twice, as {column!r}")
        if canonical is not None:
            found[column] = canonical
    _check_one_value_each(found)
    return in_order(_with_defaults(found, batch.num_rows, now_us))


def _canonical(name: str, array: pa.Array) -> tuple[str, pa.Array | None]:
    """The column's name in a chunk and its array there; None when it says nothing."""
    where = f"column {name!r}"
    if name in SYSTEM_COLUMNS:
        return name, _system_array(where, name, array)
    if name == overflow.OVERFLOW:
        return name, _overflow_array(where, array)
    if is_typed_name(name):
        return name, _typed(where, array, _view_in_name(where, name))
    check_header_name(name)
    view = _view_of(where, array.type)
    return (
        (name, None)
        if view is None
        else (typed_name("header", view, name), _typed(where, array, view))
    )


def _view_in_name(where: str, name: str) -> View:
    """Return the view that the name of a typed column gives; refuse a name no message could have."""
    if is_header_column(name):
        check_header_name(header_of(name))
    field, view = parse_column_name(name)
    assert field is not None
    assert view is not None
    if field.scope == "property" and field.name not in PROPERTY_NAMES:
        raise InvalidMessage(where, f"{field.name!r} is not an AMQP property; use a header")
    return view


def _view_of(where: str, kind: pa.DataType) -> View | None:
    """What kind of header a column of this type is; None for a column of nulls."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return "string"
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_floating(kind):
        return "float"
    if pa.types.is_boolean(kind):
        return "bool"
    raise InvalidMessage(
        where, f"{kind} is no type of a header; cast it to a string, integer, float or boolean"
    )


def _typed(where: str, array: pa.Array, view: View) -> pa.Array | None:
    """The array in the one type its view has; None when it is all null."""
    if array.null_count == len(array):
        return None
    if view == "string":
        return _texts(where, array)
    array = _cast(where, array, _TYPE_OF[view])
    if view == "float" and not np.isfinite(pc.fill_null(array, 0.0).to_numpy()).all():
        raise InvalidMessage(where, "holds NaN or an infinity; put a null there instead")
    if view == "opaque":
        return array if pc.any(array).as_py() else None
    return array


def _cast(where: str, array: pa.Array, to: pa.DataType) -> pa.Array:
    if array.type == to:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        return array.cast(to)
    except pa.ArrowInvalid as problem:
        raise InvalidMessage(where, f"cannot be stored as {to}: {problem}") from None


def _texts(where: str, array: pa.Array) -> pa.Array:
    """Strings, as a dictionary when at most half as many are distinct."""
    if not pa.types.is_dictionary(array.type) or array.dictionary.null_count:
        array = _cast(where, array, pa.string()).dictionary_encode()
    texts = _cast(where, array.dictionary, pa.string())
    _check_texts(where, texts)
    return pa.DictionaryArray.from_arrays(array.indices, texts, safe=False)


def _check_texts(where: str, texts: pa.StringArray) -> None:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as problem:
        raise InvalidMessage(where, f"is no UTF-8 text: {problem}") from None
    content = texts.buffers()[2]
    # Rows outside a slice are searched too; only a find is worth a closer look.
    suspicious = content is not None and b"\0" in content.to_pybytes()
    if suspicious and pc.any(pc.match_substring(texts, "\0")).as_py():
        raise InvalidMessage(where, "text cannot hold NUL; move it to the payload")


def _overflow_array(where: str, array: pa.Array) -> pa.Array | None:
    array = _cast(where, array, pa.binary())
    try:
        rows = overflow.overflowing(array)
    except (ValueError, AttributeError) as problem:
        raise InvalidMessage(where, f"holds no JSON objects: {problem}") from None
    for row in rows:
        for name, value in row.items():
            check_header_name(name)
            check_header_value(f"header {name!r}", value)
    return None if array.null_count == len(array) else array


# ---- system columns ----------------------------------------------------------------------------------


def _system_array(where: str, name: str, array: pa.Array) -> pa.Array | None:
    if array.null_count == len(array):
        return None
    if name in TEXT_COLUMNS:
        return _short_texts(where, array)
    if name == "payload":
        payloads = _cast(where, array, pa.binary())
        return pc.fill_null(payloads, b"") if payloads.null_count else payloads
    if name == "timestamp":
        return _cast(where, _in_microseconds(array), pa.int64())
    numbers = pc.fill_null(_cast(where, array, pa.int64()), 0)
    if not 0 <= pc.min(numbers).as_py() <= pc.max(numbers).as_py() <= MAX_PRIORITY:
        raise InvalidMessage(where, f"must hold integers from 0 to {MAX_PRIORITY}")
    return numbers.cast(pa.uint8())


def _in_microseconds(array: pa.Array) -> pa.Array:
    return (
        array.cast(pa.timestamp("us", array.type.tz))
        if pa.types.is_timestamp(array.type)
        else array
    )


def _short_texts(where: str, array: pa.Array) -> pa.Array:
    encoded = _texts(where, array)
    if pc.max(pc.binary_length(encoded.dictionary)).as_py() > MAX_NAME_BYTES:
        raise InvalidMessage(where, f"holds text longer than {MAX_NAME_BYTES} bytes")
    return encoded


def _with_defaults(found: Arrays, rows: int, now_us: int) -> Arrays:
    found["timestamp"] = stamped(found.get("timestamp"), rows, now_us)
    topics = found.get("topic")
    found["topic"] = _no_topics(rows) if topics is None else _filled_topics(topics)
    if "priority" not in found:
        found["priority"] = pa.array(np.zeros(rows, np.uint8))
    if "payload" not in found:
        ends = pa.py_buffer(bytes(4 * (rows + 1)))
        found["payload"] = pa.Array.from_buffers(pa.binary(), rows, [None, ends, pa.py_buffer(b"")])
    return found


def _no_topics(rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([""]))


def _filled_topics(topics: pa.Array) -> pa.Array:
    if not topics.null_count:
        return topics
    if pa.types.is_dictionary(topics.type):
        topics = topics.dictionary_decode()
    return pc.fill_null(topics, "").dictionary_encode()


def _check_one_value_each(arrays: Arrays) -> None:
    """A header holds one value: no row may have it in two columns, or in a column and in its overflow."""
    columns: dict[Field, list[pa.Array]] = {}
    for name, array in arrays.items():
        field, view = parse_column_name(name)
        if field is not None and field.scope != "sys":
            values = pc.if_else(array, True, None) if view == "opaque" else array
            columns.setdefault(field, []).append(values)
    if overflow.OVERFLOW in arrays:
        rows = overflow.overflowing(arrays[overflow.OVERFLOW])
        for name in overflow.names_in(rows):
            if (field := Field("header", name)) in columns:
                columns[field].append(pa.array([True if name in row else None for row in rows]))
    for field, views in columns.items():
        if len(views) > 1 and np.sum([_present(view) for view in views], axis=0).max() > 1:
            raise InvalidMessage(f"header {field.name!r}", "has two values in one row")


def _present(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), np.bool_)


# ---- cutting -----------------------------------------------------------------------------------------


def cut(arrays: Arrays, start: int, rows: int) -> Arrays:
    """Some rows as a chunk of their own: without columns that are empty there, dictionaries just as needed."""
    found = {}
    for name, array in arrays.items():
        part = array.slice(start, rows)
        if part.null_count == rows:
            continue
        found[name] = _tightened(part) if isinstance(part, pa.DictionaryArray) else part
    return found


def _tightened(array: pa.DictionaryArray) -> pa.Array:
    """Only the words that occur; no dictionary at all when most of them are different."""
    indices, words = array.indices, array.dictionary
    if len(words) == 1 < len(array):
        return array  # as the topic often is: no need to look
    present = indices.drop_null() if array.null_count else indices
    used = _used(present.to_numpy(), len(words))
    if len(used) * 2 > len(array):
        return array.dictionary_decode()
    if len(used) == len(words):
        return array
    number = np.zeros(len(words), np.int32)
    number[used] = np.arange(len(used))
    missing = pc.is_null(array).to_numpy(zero_copy_only=False) if array.null_count else None
    codes = pc.fill_null(indices, 0) if array.null_count else indices
    renumbered = pa.array(number[codes.to_numpy()], mask=missing)
    return pa.DictionaryArray.from_arrays(renumbered, words.take(pa.array(used)), safe=False)


def _used(codes: npt.NDArray[Any], words: int) -> npt.NDArray[np.intp]:
    """Which words occur; counting beats sorting unless there are far more words than rows."""
    if words > 4 * len(codes) + 1024:
        return np.unique(codes).astype(np.intp)
    return np.flatnonzero(np.bincount(codes, minlength=words))

"""Arrow tables -> the columns of chunks. A row that makes no valid message is refused.

The name of a column says what it holds:

    timestamp, topic, filter_value, key, priority, id, payload    that field of the message; each is optional
    h.s.region, h.i.amount, p.s.subject, …                        one kind of a header, see `columns.names`
    overflow                                                      see `columns.overflow`
    offset                                                        ignored: the stream assigns offsets
    anything else                                                 a header of that name, of the column's type

A null is an absent header. Strings, integers, floats and booleans become headers; other types are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.columns.names import (
    SYSTEM_COLUMNS,
    TEXT_COLUMNS,
    header_of,
    is_header_column,
    is_typed_name,
    parse_column_name,
    typed_name,
    view_of,
)
from headgate.columns.overflow import OVERFLOW, overflow_names, read_overflow
from headgate.columns.shred import Arrays, fill_timestamps, order_columns
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
_UNNAMED_INDEX: Final = re.compile(r"__index_level_\d+__")  # in a data frame of pandas
SMALL_BATCH: Final = 4096  # rows; many smaller batches of a table are combined first
# Small batches are joined until they have this number of rows or bytes.
ENOUGH_ROWS: Final = 8192
ENOUGH_BYTES: Final = 8 << 20
# Whether texts repeat is seen in a sample: runs of rows, as equal texts may be adjacent, and scattered rows.
_RUNS: Final = 4
_RUN_ROWS: Final = 128
_SCATTERED: Final = np.arange(1, 513) ** 2 * 0.6180339887 % 1  # as parts of all rows
# Of a sample; with fewer, more than half the rows of a chunk are different.
_FEW_REPEATS: Final = 1 / 32


class ArrowStream(Protocol):
    """Anything that exports its rows as a stream of Arrow batches: tables, data frames, relations, readers."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


TableLike: TypeAlias = pa.Table | pa.RecordBatch | ArrowStream


def split_table(table: TableLike) -> Iterator[pa.RecordBatch]:
    """Split a table into its record batches; many small ones are combined first.

    A data frame of Polars or pandas, a relation of DuckDB, a reader: anything with `__arrow_c_stream__` is a table, and is
    read batch by batch. The index of a data frame of pandas is left out unless it has a name.
    """
    if isinstance(table, pa.RecordBatch):
        return iter((table,))
    if isinstance(table, pa.Table):
        parts = max((column.num_chunks for column in table.columns), default=1)
        whole = table.combine_chunks() if table.num_rows < parts * SMALL_BATCH else table
        return iter(whole.to_batches())
    if not hasattr(table, "__arrow_c_stream__"):
        raise InvalidMessage(
            "table",
            "must be an Arrow table, record batch or reader, a data frame or a relation (anything with "
            f"__arrow_c_stream__), not {type(table).__name__}; pyarrow.table() makes one of a dict of columns, "
            "and publish_many() takes messages",
        )
    reader = pa.RecordBatchReader.from_stream(table)
    at = [i for i, name in enumerate(reader.schema.names) if not _UNNAMED_INDEX.fullmatch(name)]
    return _join_equal(batch.select(at) for batch in reader)


def _join_equal(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine small batches of one schema; all results have one, too."""
    waiting: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows += batch.num_rows
        nbytes += batch.nbytes
        if rows >= ENOUGH_ROWS or nbytes >= ENOUGH_BYTES:
            yield _concat(waiting)
            waiting, rows, nbytes = [], 0, 0
    if waiting:
        yield _concat(waiting)


def _concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    names = batches[0].schema.names
    columns = [_concat_arrays([batch.column(i) for batch in batches]) for i in range(len(names))]
    return pa.RecordBatch.from_arrays(columns, names)


def _concat_arrays(arrays: list[pa.Array]) -> pa.Array:
    """Concatenate arrays of one type; those with dictionaries get one, and codes of 32 bits."""
    coded = pa.types.is_dictionary(arrays[0].type)
    if len(arrays) > 1:
        joined = pa.concat_arrays(map(_decode, arrays))
        return joined.dictionary_encode() if coded else joined
    [array] = arrays
    if not coded:
        return array
    return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), array.dictionary)


def read_table(batch: pa.RecordBatch, now_us: int) -> Arrays:
    """Turn a record batch into the columns of messages; refuse what `validate` refuses in a message."""
    found: Arrays = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name == "offset":
            continue
        column, converted = _convert(name, array)
        if column in found:
            raise InvalidMessage(
                f"column {name!r}", f"exists twice, as {column!r}; drop or rename one of them"
            )
        if converted is not None:
            found[column] = converted
    _check_one_value_each(found)
    return order_columns(_fill_defaults(found, batch.num_rows, now_us))


def _convert(name: str, array: pa.Array) -> tuple[str, pa.Array | None]:
    """Return the name and the array of the column in a chunk; None when it is all null."""
    where = f"column {name!r}"
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.dictionary_decode()  # so that its nulls are counted
    if name in SYSTEM_COLUMNS:
        return name, _system_array(where, name, array)
    if name == OVERFLOW:
        return name, _overflow_array(where, array)
    if is_typed_name(name):
        return name, _typed_array(where, array, _check_typed_name(where, name))
    check_header_name(name)
    view = _view_of_type(where, array.type)
    return (
        (name, None)
        if view is None
        else (typed_name("header", view, name), _typed_array(where, array, view))
    )


def _check_typed_name(where: str, name: str) -> View:
    """Return the view that a typed column holds; refuse a header or property that no message can have."""
    field_name = header_of(name)
    if is_header_column(name):
        check_header_name(field_name)
    elif field_name not in PROPERTY_NAMES:
        raise InvalidMessage(where, f"{field_name!r} is not an AMQP property; use a header")
    return view_of(name)


def _view_of_type(where: str, kind: pa.DataType) -> View | None:
    """Return the view that a column of this type holds; None for a column of nulls."""
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
        where, f"{kind} is not a type of a header; cast it to a string, integer, float or boolean"
    )


def _typed_array(where: str, array: pa.Array, view: View) -> pa.Array | None:
    """Cast the array to the type of its view; None when it is all null."""
    if array.null_count == len(array):
        return None
    if view == "string":
        return _encode_texts(where, array)
    array = _cast(where, array, _TYPE_OF[view])
    if view == "float" and not np.isfinite(pc.fill_null(array, 0.0).to_numpy()).all():
        raise InvalidMessage(where, "holds NaN or an infinity; put a null there instead")
    if view == "opaque":
        return array if pc.any(array).as_py() else None
    return array


def _cast(where: str, array: pa.Array, to: pa.DataType) -> pa.Array:
    if array.type == to:
        return array
    try:
        return _decode(array).cast(to)
    except pa.ArrowException as problem:
        raise InvalidMessage(where, f"cannot be stored as {to}: {problem}") from None


def _decode(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _encode_texts(where: str, array: pa.Array) -> pa.Array:
    """Check strings, and encode them as a dictionary unless nearly all are different."""
    # Words that no row uses, as a filter leaves them, are not judged.
    if not pa.types.is_dictionary(array.type) or _has_unused_words(array):
        array = _cast(where, array, pa.string())
        if not _may_repeat(array):
            _check_texts(where, array)
            return _without_hidden_bytes(array)
        array = array.dictionary_encode()
    texts = _cast(where, array.dictionary, pa.string())
    _check_texts(where, texts)
    return pa.DictionaryArray.from_arrays(array.indices, texts, safe=False)


def _may_repeat(texts: pa.StringArray) -> bool:
    """Return False when nearly all texts are different, by a sample: a dictionary would cost much and save nothing."""
    rows = len(texts)
    if rows <= 2 * len(_SCATTERED) or texts.null_count * 2 >= rows:
        return True
    runs = np.arange(_RUNS)[:, None] * (rows // _RUNS) + np.arange(_RUN_ROWS)
    at = np.unique(np.concatenate([runs.ravel(), (_SCATTERED * rows).astype(np.int64)]))
    sample = texts.take(pa.array(at)).drop_null()
    return len(sample) - len(sample.unique()) >= len(sample) * _FEW_REPEATS


def _without_hidden_bytes(texts: pa.StringArray) -> pa.StringArray:
    """Copy texts that have bytes behind their nulls, which were not checked, without these bytes."""
    first, last = _content_bounds(texts)
    if not texts.null_count or pc.sum(pc.binary_length(texts)).as_py() == last - first:
        return texts
    return texts.dictionary_encode().dictionary_decode()


def _content_bounds(texts: pa.StringArray) -> tuple[int, int]:
    """Return where the content of the rows begins and ends in the buffer, which may hold other rows, too."""
    if not len(texts):
        return 0, 0
    ends = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + texts.offset + 1)
    return int(ends[texts.offset]), int(ends[-1])


def _has_unused_words(array: pa.DictionaryArray) -> bool:
    words = len(array.dictionary)
    return len(_used_words(array.indices.drop_null().to_numpy(), words)) < words


def _check_texts(where: str, texts: pa.StringArray) -> None:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as problem:
        raise InvalidMessage(
            where, f"is not valid UTF-8: {problem}; move it to the payload"
        ) from None
    first, last = _content_bounds(texts)
    content = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[first:last]
    # Bytes behind a null are no text: a NUL among them is only a hint.
    if content.min(initial=1) == 0 and pc.any(pc.match_substring(texts, "\0")).as_py():
        raise InvalidMessage(where, "text cannot hold NUL; move it to the payload")


def _overflow_array(where: str, array: pa.Array) -> pa.Array | None:
    array = _cast(where, array, pa.binary())
    try:
        rows = read_overflow(array)
    except (ValueError, AttributeError) as problem:
        raise InvalidMessage(where, f"must hold JSON objects: {problem}") from None
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
        return _cast(where, _to_microseconds(where, _decode(array)), pa.int64())
    numbers = pc.fill_null(_cast(where, array, pa.int64()), 0)
    if not 0 <= pc.min(numbers).as_py() <= pc.max(numbers).as_py() <= MAX_PRIORITY:
        raise InvalidMessage(where, f"must hold integers from 0 to {MAX_PRIORITY}")
    return numbers.cast(pa.uint8())


def _to_microseconds(where: str, array: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(array.type):
        return _cast(where, array, pa.timestamp("us", array.type.tz))
    if pa.types.is_temporal(array.type):
        raise InvalidMessage(where, f"{array.type} is not a timestamp; cast it to one")
    return array


def _short_texts(where: str, array: pa.Array) -> pa.Array:
    texts = _encode_texts(where, array)
    distinct = texts.dictionary if pa.types.is_dictionary(texts.type) else texts
    if pc.max(pc.binary_length(distinct)).as_py() > MAX_NAME_BYTES:
        raise InvalidMessage(where, f"holds text longer than {MAX_NAME_BYTES} bytes")
    return texts


def _fill_defaults(found: Arrays, rows: int, now_us: int) -> Arrays:
    found["timestamp"] = fill_timestamps(found.get("timestamp"), rows, now_us)
    topics = found.get("topic")
    found["topic"] = _empty_topics(rows) if topics is None else _fill_topics(topics)
    if "priority" not in found:
        found["priority"] = pa.array(np.zeros(rows, np.uint8))
    if "payload" not in found:
        ends = pa.py_buffer(bytes(4 * (rows + 1)))
        found["payload"] = pa.Array.from_buffers(pa.binary(), rows, [None, ends, pa.py_buffer(b"")])
    return found


def _empty_topics(rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([""]))


def _fill_topics(topics: pa.Array) -> pa.Array:
    if not topics.null_count:
        return topics
    if pa.types.is_dictionary(topics.type):
        topics = topics.dictionary_decode()
    return pc.fill_null(topics, "").dictionary_encode()


def _check_one_value_each(arrays: Arrays) -> None:
    """Refuse a row that has a header twice: in two columns, or in a column and in its overflow."""
    columns: dict[Field, list[pa.Array]] = {}
    for name, array in arrays.items():
        field, view = parse_column_name(name)
        if field is not None and field.scope != "sys":
            values = pc.if_else(array, True, None) if view == "opaque" else array
            columns.setdefault(field, []).append(values)
    if OVERFLOW in arrays:
        rows = read_overflow(arrays[OVERFLOW])
        for name in overflow_names(rows):
            if (field := Field("header", name)) in columns:
                columns[field].append(pa.array([True if name in row else None for row in rows]))
    for field, views in columns.items():
        if len(views) > 1 and np.sum([_present(view) for view in views], axis=0).max() > 1:
            raise InvalidMessage(f"header {field.name!r}", "has two values in one row")


def _present(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), np.bool_)


# ---- cutting and joining chunks ---------------------------------------------------------------------


def cut_rows(arrays: Arrays, start: int, rows: int) -> Arrays:
    """Cut out rows as the columns of a chunk, without columns and words of dictionaries that do not occur in them."""
    found = {}
    for name, array in arrays.items():
        part = array.slice(start, rows)
        if part.null_count == rows:
            continue
        found[name] = _shrink_dictionary(part) if isinstance(part, pa.DictionaryArray) else part
    return found


def _shrink_dictionary(array: pa.DictionaryArray) -> pa.Array:
    """Keep only the words that occur; drop the dictionary when most of them are different."""
    indices, words = array.indices, array.dictionary
    if len(words) == 1 < len(array):
        return array  # the usual topic column: nothing to drop
    present = indices.drop_null() if array.null_count else indices
    used = _used_words(present.to_numpy(), len(words))
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


def _used_words(codes: npt.NDArray[Any], words: int) -> npt.NDArray[np.intp]:
    """Find the words that occur; counting beats sorting unless there are far more words than rows."""
    if words > 4 * len(codes) + 1024:
        return np.unique(codes).astype(np.intp)
    return np.flatnonzero(np.bincount(codes.astype(np.intp, copy=False), minlength=words))


def join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine small batches into few large ones: filters skip little in chunks of a few rows, and each has its cost."""
    pending: list[Arrays] = []
    rows = nbytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        arrays = _shrink_batch(batch)
        pending.append(arrays)
        rows += batch.num_rows
        nbytes += sum(array.nbytes for array in arrays.values())
        if rows >= ENOUGH_ROWS or nbytes >= ENOUGH_BYTES:
            yield _join_parts(pending)
            pending, rows, nbytes = [], 0, 0
    if pending:
        yield _join_parts(pending)


def _shrink_batch(batch: pa.RecordBatch) -> Arrays:
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    return cut_rows(arrays, 0, batch.num_rows) or {batch.schema.names[0]: batch.column(0)}


def _join_parts(parts: Sequence[Arrays]) -> pa.RecordBatch:
    if len(parts) == 1:
        return pa.record_batch(parts[0])
    lengths = [len(next(iter(part.values()))) for part in parts]
    names = dict.fromkeys(name for part in parts for name in part)
    return pa.record_batch(
        {name: _join_column([part.get(name) for part in parts], lengths) for name in names}
    )


def _join_column(parts: Sequence[pa.Array | None], lengths: Sequence[int]) -> pa.Array:
    kinds = {part.type for part in parts if part is not None}
    kind = next(iter(kinds))
    if len(kinds) > 1:
        # Text, with and without a dictionary, or dictionaries with codes of two widths.
        kind = pa.string()
        parts = [None if part is None else part.cast(kind) for part in parts]
    arrays = [
        pa.nulls(n, kind) if part is None else part for part, n in zip(parts, lengths, strict=True)
    ]
    if not pa.types.is_dictionary(kind):
        return pa.concat_arrays(arrays)
    return pa.chunked_array(arrays).unify_dictionaries().combine_chunks()

"""Where a batch of messages is cut into chunks: by count, by bytes, and by restricted values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby, takewhile
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.columns import Arrays, BatchColumns, count_rows
from headgate.errors import InvalidMessage
from headgate.message import Message, validate
from headgate.streams.format import MAX_BODY_BYTES
from headgate.streams.options import StreamOptions
from headgate.streams.segments.restriction import Restriction

TABLE_FACTOR: Final = 4  # chunks of Arrow tables may have this many times more rows
# A chunk may be this many times larger than its payloads should be, by what its messages hold.
HEADERS_FACTOR: Final = 2
# And this many times with the nulls of its columns. Where messages have many different headers, most of a column is null,
# and half a chunk costs nearly as much to write as all of it.
NULLS_FACTOR: Final = 4
MAX_MESSAGE_BYTES: Final = MAX_BODY_BYTES // 2


class Cut(NamedTuple):
    """Messages [start, end) become one chunk; `code` is the tuple of restricted values they share."""

    start: int
    end: int
    code: int


class PreparedChunk(NamedTuple):
    """Messages [start, end) of a batch, as the columns of one chunk."""

    start: int
    end: int
    code: int
    arrays: Arrays


def prepare_chunks(
    messages: Sequence[Message],
    options: StreamOptions,
    columns: Callable[[Sequence[Message], Sequence[bytes]], Arrays],
) -> Iterator[PreparedChunk]:
    """Yield the chunks of these messages in order; `columns` turns messages and payloads into columns."""
    restriction = Restriction(options.restrict_same_values)
    payloads = [message.payload for message in messages]
    for start, end, code in cut_messages(messages, payloads, restriction, options):
        yield PreparedChunk(start, end, code, columns(messages[start:end], payloads[start:end]))


def cut_messages(
    messages: Sequence[Message],
    payloads: Sequence[bytes],
    restriction: Restriction,
    options: StreamOptions,
) -> Iterator[Cut]:
    """Yield where these messages are cut."""
    sizes = _checked_sizes(messages, payloads)
    start = 0
    for code, count in _runs_of_messages(messages, restriction):
        run = sizes[start : start + count] if count < len(sizes) else sizes
        for first, last in cut_by_size(run, options.chunk_messages, options.chunk_bytes):
            yield Cut(start + first, start + last, code)
        start += count


def check_sizes(messages: Sequence[Message]) -> None:
    """Refuse a payload that is too large for a chunk."""
    _checked_sizes(messages, [message.payload for message in messages])


def _checked_sizes(messages: Sequence[Message], payloads: Sequence[bytes]) -> list[int]:
    try:
        sizes = list(map(len, payloads))
    except TypeError:
        for message in messages:
            validate(message)  # raises the error of the first payload that is not bytes
        raise
    if sizes and (largest := max(sizes)) > MAX_MESSAGE_BYTES:
        raise InvalidMessage(
            "payload", f"is {largest:,} bytes long, a chunk holds {MAX_MESSAGE_BYTES:,}"
        )
    return sizes


def _runs_of_messages(
    messages: Sequence[Message], restriction: Restriction
) -> Iterable[tuple[int, int]]:
    """Yield (code, number of messages) of every run of messages that may share a chunk."""
    if not restriction:
        return [(0, len(messages))]
    codes = (restriction.code(message.headers) for message in messages)
    return ((code, sum(1 for _ in run)) for code, run in groupby(codes))


def cut_by_size(
    sizes: Sequence[int], max_messages: int, max_bytes: int
) -> Iterator[tuple[int, int]]:
    """Yield [start, end) within the limits of messages and bytes; a larger message is alone."""
    start = 0
    while start < len(sizes):
        end = min(start + max_messages, len(sizes))
        if sum(sizes[start:end]) > max_bytes:
            totals = accumulate(sizes[start:end])
            end = start + max(sum(1 for _ in takewhile(max_bytes.__ge__, totals)), 1)
        yield start, end
        start = end


# ---- columns -----------------------------------------------------------------------------------------


def cut_columns(arrays: Arrays, restriction: Restriction, options: StreamOptions) -> Iterator[Cut]:
    """Yield where the rows of columns are cut, by their average size; these chunks may have more rows."""
    rows = count_rows(arrays)
    if not rows:
        return
    average = max(sum(array.nbytes for array in arrays.values()) // rows, 1)
    step = max(min(options.chunk_messages * TABLE_FACTOR, options.chunk_bytes // average), 1)
    start = 0
    for code, count in _runs_of_rows(arrays, restriction):
        for first in range(start, start + count, step):
            yield Cut(first, min(first + step, start + count), code)
        start += count


def is_too_large(arrays: Arrays, chunk_bytes: int) -> bool:
    """Whether headers make a chunk so much larger than it should be that it is to be cut in two."""
    nbytes = sum(int(array.nbytes) for array in arrays.values())
    if nbytes <= HEADERS_FACTOR * chunk_bytes:
        return False
    held = nbytes - sum(map(_null_bytes, arrays.values()))
    return held > HEADERS_FACTOR * chunk_bytes or nbytes > NULLS_FACTOR * chunk_bytes


def _null_bytes(array: pa.Array) -> int:
    """Count the bytes that an array has for its nulls: a code, a number or the end of a text each."""
    if not array.null_count:
        return 0
    kind = array.type.index_type if pa.types.is_dictionary(array.type) else array.type
    bits = 32 if pa.types.is_string(kind) or pa.types.is_binary(kind) else kind.bit_width
    return int(array.null_count * bits // 8)


def _runs_of_rows(arrays: Arrays, restriction: Restriction) -> Iterable[tuple[int, int]]:
    if not restriction:
        return [(0, count_rows(arrays))]
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
    return runs_of_codes(restriction.codes(BatchColumns(batch)))


def runs_of_codes(codes: npt.NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
    """Yield (code, number of rows) of every run of equal codes."""
    starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
    ends = np.append(starts[1:], len(codes))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield int(codes[start]), end - start

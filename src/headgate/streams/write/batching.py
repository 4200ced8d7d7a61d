"""Where a batch of messages is cut into chunks: by count, by bytes, and by restricted values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, takewhile
from typing import Final, NamedTuple

import pyarrow as pa

from headgate.columns import Arrays, BatchColumns, count_rows
from headgate.errors import InvalidMessage
from headgate.message import Message, validate
from headgate.streams.format import MAX_BODY_BYTES
from headgate.streams.options import StreamOptions
from headgate.streams.segments.restriction import Restriction, runs, runs_of_rows

TABLE_FACTOR: Final = 4
MAX_MESSAGE_BYTES: Final = MAX_BODY_BYTES // 2


class Cut(NamedTuple):
    """Messages [start, end) go into one chunk; `code` is the tuple they have in common."""

    start: int
    end: int
    code: int


class PreparedChunk(NamedTuple):
    """Messages [start, end) of a batch, as the columns of one chunk."""

    start: int
    end: int
    code: int
    arrays: Arrays


def prepare(
    messages: Sequence[Message],
    options: StreamOptions,
    columns: Callable[[Sequence[Message], Sequence[bytes]], Arrays],
) -> Iterator[PreparedChunk]:
    """The chunks of these messages, in their order; `columns` makes each one's from messages and payloads."""
    restriction = Restriction(options.restrict_same_values)
    payloads = [message.payload for message in messages]
    for start, end, code in cuts(messages, payloads, restriction, options):
        yield PreparedChunk(start, end, code, columns(messages[start:end], payloads[start:end]))


def cuts(
    messages: Sequence[Message],
    payloads: Sequence[bytes],
    restriction: Restriction,
    options: StreamOptions,
) -> Iterator[Cut]:
    """Where these messages are cut."""
    sizes = _checked_sizes(messages, payloads)
    start = 0
    for code, count in _runs(messages, restriction):
        run = sizes[start : start + count] if count < len(sizes) else sizes
        for first, last in cut_by_size(run, options.chunk_messages, options.chunk_bytes):
            yield Cut(start + first, start + last, code)
        start += count


def check_sizes(messages: Sequence[Message]) -> None:
    """Refuse a payload that no chunk could hold."""
    _checked_sizes(messages, [message.payload for message in messages])


def _checked_sizes(messages: Sequence[Message], payloads: Sequence[bytes]) -> list[int]:
    try:
        sizes = list(map(len, payloads))
    except TypeError:
        for message in messages:
            validate(message)  # says which is no payload at all
        raise
    if sizes and (largest := max(sizes)) > MAX_MESSAGE_BYTES:
        raise InvalidMessage(
            "payload", f"is {largest:,} bytes long, a chunk holds {MAX_MESSAGE_BYTES:,}"
        )
    return sizes


def _runs(messages: Sequence[Message], restriction: Restriction) -> Iterable[tuple[int, int]]:
    if not restriction:
        return [(0, len(messages))]
    return runs(restriction.code(message.headers) for message in messages)


def cuts_of_columns(
    arrays: Arrays, restriction: Restriction, chunk_messages: int, chunk_bytes: int
) -> Iterator[Cut]:
    """The same for rows of columns, by their average size. What comes in bulk may lie in larger chunks."""
    rows = count_rows(arrays)
    if not rows:
        return
    average = max(sum(array.nbytes for array in arrays.values()) // rows, 1)
    step = max(min(chunk_messages * TABLE_FACTOR, chunk_bytes // average), 1)
    start = 0
    for code, count in _runs_of_rows(arrays, restriction):
        for first in range(start, start + count, step):
            yield Cut(first, min(first + step, start + count), code)
        start += count


def _runs_of_rows(arrays: Arrays, restriction: Restriction) -> Iterable[tuple[int, int]]:
    if not restriction:
        return [(0, count_rows(arrays))]
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
    return runs_of_rows(restriction.codes(BatchColumns(batch)))


def cut_by_size(
    sizes: Sequence[int], most_messages: int, most_bytes: int
) -> Iterator[tuple[int, int]]:
    """Runs of at most so many messages and bytes; a larger message is alone."""
    start = 0
    while start < len(sizes):
        end = min(start + most_messages, len(sizes))
        if sum(sizes[start:end]) > most_bytes:
            totals = accumulate(sizes[start:end])
            end = start + max(sum(1 for _ in takewhile(most_bytes.__ge__, totals)), 1)
        yield start, end
        start = end

"""Small batches of columns -> few large ones: chunks of a handful of rows would prune nothing and cost the most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from headgate.columns.rows import Arrays
from headgate.columns.tables import cut

ENOUGH_ROWS: Final = 8192
ENOUGH_BYTES: Final = 8 << 20


def join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order: no batch without any, small ones put together, only the words that occur."""
    waiting: list[Arrays] = []
    rows = nbytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        arrays = _tightened(batch)
        waiting.append(arrays)
        rows += batch.num_rows
        nbytes += sum(array.nbytes for array in arrays.values())
        if rows >= ENOUGH_ROWS or nbytes >= ENOUGH_BYTES:
            yield _one(waiting)
            waiting, rows, nbytes = [], 0, 0
    if waiting:
        yield _one(waiting)


def _tightened(batch: pa.RecordBatch) -> Arrays:
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    return cut(arrays, 0, batch.num_rows) or {batch.schema.names[0]: batch.column(0)}


def _one(parts: Sequence[Arrays]) -> pa.RecordBatch:
    if len(parts) == 1:
        return pa.record_batch(parts[0])
    lengths = [len(next(iter(part.values()))) for part in parts]
    names = dict.fromkeys(name for part in parts for name in part)
    return pa.record_batch(
        {name: _column([part.get(name) for part in parts], lengths) for name in names}
    )


def _column(parts: Sequence[pa.Array | None], lengths: Sequence[int]) -> pa.Array:
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

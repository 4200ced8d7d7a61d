"""Many small batches as few large ones: a window is routed at once, and cut into queues at once.

The chunks of a stream need not agree: one has a header another lacks, one keeps its texts in a dictionary where
another does not, or counts its words in wider numbers. In a window all columns have one type each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

WINDOW_ROWS: Final = 1 << 18
WINDOW_BYTES: Final = 64 << 20


def windows(
    batches: Iterable[pa.RecordBatch], rows: int = WINDOW_ROWS, nbytes: int = WINDOW_BYTES
) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, in batches that just reach `rows` or `nbytes`, but for the last."""
    waiting: list[pa.RecordBatch] = []
    held = weight = 0
    for batch in batches:
        waiting.append(batch)
        held += batch.num_rows
        weight += batch.nbytes
        if held >= rows or weight >= nbytes:
            yield combined(waiting)
            waiting, held, weight = [], 0, 0
    if held:
        yield combined(waiting)


def combined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with the columns of all, null where a batch lacks one."""
    if len(batches) == 1:
        return batches[0]
    schema = _common(batches)
    table = pa.Table.from_batches([_fitted(batch, schema) for batch in batches], schema)
    whole = table.unify_dictionaries().combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], schema)


def _common(batches: Sequence[pa.RecordBatch]) -> pa.Schema:
    types: dict[str, pa.DataType] = {}
    for schema in {batch.schema for batch in batches}:
        for field in schema:
            types[field.name] = _wider(types.get(field.name), field.type)
    first = batches[0].schema.names
    order = [*first, *sorted(types.keys() - set(first))]
    return pa.schema([(name, types[name]) for name in order])


def _wider(known: pa.DataType | None, new: pa.DataType) -> pa.DataType:
    """One dictionary has 32-bit codes, since the words of a whole window go into it."""
    if pa.types.is_dictionary(new):
        new = pa.dictionary(pa.int32(), new.value_type)
    if known is None or known == new or pa.types.is_null(new):
        return known or new
    return known if pa.types.is_dictionary(known) else new


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [_column(batch, field.name, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(batch: pa.RecordBatch, name: str, wanted: pa.DataType) -> pa.Array:
    at = batch.schema.get_field_index(name)
    if at < 0:
        return pa.nulls(batch.num_rows, wanted)
    array = batch.column(at)
    if array.type == wanted:
        return array
    if not pa.types.is_dictionary(wanted):
        return array.cast(wanted)
    if not pa.types.is_dictionary(array.type):
        return array.cast(wanted.value_type).dictionary_encode()
    return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), array.dictionary)

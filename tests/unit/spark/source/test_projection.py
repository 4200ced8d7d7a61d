"""Batches are joined before they are converted, and keep every row in its order."""

from __future__ import annotations

import pyarrow as pa

from headgate.spark.source.projection import BATCH_ROWS, even_batches, join_short

WORDS = pa.array(["EU", "US", "APAC"])


def coded(first: int, codes: list[int | None]) -> pa.RecordBatch:
    """Rows with an offset and a region, of which batches of one segment share the dictionary."""
    regions = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), WORDS)
    offsets = pa.array(range(first, first + len(codes)))
    return pa.RecordBatch.from_arrays([offsets, regions], ["offset", "region"])


def rows(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_short_batches_are_joined_with_their_codes_and_nulls():
    parts = [coded(0, [0, None, 2]), coded(3, []), coded(3, [1]).slice(0, 1), coded(4, [2, 0])]
    joined = list(join_short(parts))
    assert len(joined) == 1
    assert rows(joined) == rows(parts)
    region = joined[0].column("region")
    assert pa.types.is_dictionary(region.type)
    assert region.dictionary.equals(WORDS)


def test_a_slice_is_joined_without_the_rows_around_it():
    parts = [coded(0, [0, 1, 2]).slice(1, 1), coded(3, [1, None, 2]).slice(1)]
    assert rows(list(join_short(parts))) == rows(parts)


def test_joined_batches_are_not_longer_than_the_largest_batch_for_spark():
    parts = [coded(n * 3000, [n % 3] * 3000) for n in range(20)]
    joined = list(join_short(parts))
    assert len(joined) < len(parts)
    assert max(batch.num_rows for batch in joined) <= BATCH_ROWS
    assert rows(joined) == rows(parts)


def test_long_batches_are_split_only_for_spark():
    long = coded(0, [0] * (2 * BATCH_ROWS + 1))
    assert [batch.num_rows for batch in join_short([long])] == [long.num_rows]
    assert [batch.num_rows for batch in even_batches([long])] == [BATCH_ROWS, BATCH_ROWS, 1]

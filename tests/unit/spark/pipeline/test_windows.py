"""Batches put together hold the same messages in the same order, however differently their columns are kept."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from headgate.columns.decode import decode_messages
from headgate.columns.shred import shred_messages
from headgate.message import Message
from headgate.spark.pipeline.windows import combined, windows
from tests import generate


def test_batches_with_different_columns_come_out_as_one(seed: int) -> None:
    rng = Random(seed)
    for _ in range(40):
        parts = [generate.messages(rng, rng.randint(1, 12)) for _ in range(rng.randint(1, 6))]
        batches = [shred_messages(part) for part in parts]
        expected = [message for batch in batches for message in decode_messages(batch)]
        assert decode_messages(combined(batches)) == expected


def test_a_column_may_be_a_dictionary_here_and_plain_there() -> None:
    words = pa.array(["a", "b", "a", None])
    wide = words.dictionary_encode()
    narrow = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["c", "a"]))
    batches = [pa.record_batch({"h.s.x": array}) for array in (narrow, words, wide)]
    whole = combined(batches).column("h.s.x")
    assert whole.to_pylist() == ["c", "a", "a", "b", "a", None, "a", "b", "a", None]


def test_more_words_than_the_codes_of_any_one_batch_could_count() -> None:
    def part(first: int) -> pa.RecordBatch:
        codes = pa.array(range(100), pa.int8())
        words = pa.array([f"w{n}" for n in range(first, first + 100)])
        return pa.record_batch({"h.s.x": pa.DictionaryArray.from_arrays(codes, words)})

    whole = combined([part(first) for first in range(0, 1000, 100)])
    assert whole.column("h.s.x").to_pylist() == [f"w{n}" for n in range(1000)]


def test_a_window_ends_when_it_is_long_or_heavy_enough() -> None:
    batches = [shred_messages([Message(b"", headers={"n": n})]) for n in range(10)]
    assert [w.num_rows for w in windows(batches, rows=4)] == [4, 4, 2]
    assert [w.num_rows for w in windows(batches, nbytes=1)] == [1] * 10
    assert [w.num_rows for w in windows(batches)] == [10]
    assert not list(windows([]))

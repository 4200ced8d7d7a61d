from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headgate.streams.segments import gather
from headgate.streams.segments.gather import column_of_chunks, copy_ranges, with_validity

WORDS = ["", "a", "é😀", "a longer word than an inline view holds", None]


def columns(rng: Random, rows: int) -> dict[str, pa.Array]:
    dictionary = pa.array(["x", "yy", "zzz"])
    codes = [rng.choice((0, 1, 2, None)) for _ in range(rows)]
    return {
        "int": pa.array([rng.choice((rng.randint(-9, 9), None)) for _ in range(rows)], pa.int64()),
        "byte": pa.array([rng.randint(0, 255) for _ in range(rows)], pa.uint8()),
        "float": pa.array([rng.random() for _ in range(rows)]),
        "bool": pa.array([rng.choice((True, False, None)) for _ in range(rows)]),
        "text": pa.array([rng.choice(WORDS) for _ in range(rows)], pa.string()),
        "bytes": pa.array([rng.randbytes(rng.randint(0, 30)) for _ in range(rows)], pa.binary()),
        "coded": pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), dictionary),
    }


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["int", "byte", "float", "bool", "text", "bytes", "coded"])
def test_rows_of_many_chunks_come_in_any_order(kind: str, seed: int) -> None:
    rng = Random(seed)
    parts = [columns(rng, rng.randint(1, 40))[kind] for _ in range(rng.randint(1, 6))]
    chunks = np.array([rng.randrange(len(parts)) for _ in range(100)])
    rows = np.array([rng.randrange(len(parts[chunk])) for chunk in chunks])
    found = column_of_chunks(parts).take(chunks, rows)
    found.validate(full=True)
    assert found.to_pylist() == [
        parts[c][int(r)].as_py() for c, r in zip(chunks, rows, strict=True)
    ]


@pytest.mark.parametrize("kind", ["int", "float", "bool", "text", "bytes", "coded"])
def test_a_slice_is_gathered_from_where_it_begins(kind: str) -> None:
    whole = columns(Random(7), 50)[kind]
    parts = [whole.slice(3, 20), whole.slice(29, 21)]
    chunks, rows = np.array([1, 0, 1, 0]), np.array([20, 0, 5, 19])
    assert column_of_chunks(parts).take(chunks, rows).to_pylist() == [
        parts[c][int(r)].as_py() for c, r in zip(chunks, rows, strict=True)
    ]


def test_a_column_with_one_value_is_not_confused_with_other_columns() -> None:
    same, other = pa.array([7, 7, 7], pa.uint8()), pa.array([7, 8], pa.uint8())
    chunks, rows = np.array([1, 0, 1]), np.array([1, 2, 0])
    assert column_of_chunks([same, same]).take(chunks, rows) == same
    assert column_of_chunks([same, other]).take(chunks, rows).to_pylist() == [8, 7, 7]
    absent = pa.array([7, None], pa.uint8())
    assert column_of_chunks([same, absent]).take(chunks, rows).to_pylist() == [None, 7, 7]


def test_no_rows_give_an_empty_array_of_the_column_type() -> None:
    nothing = np.array([], np.intp)
    for array in columns(Random(1), 9).values():
        found = column_of_chunks([array]).take(nothing, nothing)
        assert (len(found), found.type) == (0, array.type)


def test_ranges_may_repeat_overlap_and_go_backwards() -> None:
    memory = pa.py_buffer(b"abcdefgh")
    begins, ends = np.array([4, 0, 4, 7, 2]), np.array([8, 3, 8, 7, 5])
    found = copy_ranges(memory, begins, ends, pa.binary())
    found.validate(full=True)
    assert found.to_pylist() == [b"efgh", b"abc", b"efgh", b"", b"cde"]


def test_values_that_are_not_valid_become_null() -> None:
    found = with_validity(pa.array(["a", "b", "c"]), np.array([True, False, True]))
    found.validate(full=True)
    assert found.to_pylist() == ["a", None, "c"]


def test_a_memory_too_large_for_32_bits_is_addressed_with_64(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gather, "_INT32_MAX", 3)
    found = copy_ranges(pa.py_buffer(b"abcdefgh"), np.array([4, 0]), np.array([8, 3]), pa.string())
    assert (found.type, found.to_pylist()) == (pa.string(), ["efgh", "abc"])

"""Bloom filters: one for each chunk, built from all its values, and all of them probed at once.

Every value has two base hashes, h1 and h2. Text is hashed as a polynomial over its UTF-8 bytes; a number by its
float64 value, so that the integer 1 and the float 1.0, which a filter calls equal, are one value here. Hash i of a
value in a chunk is mix(h1 + i * h2 + salt), and the salt comes from the chunk's first offset: a false positive in
one chunk says nothing about the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.columns import OVERFLOW, column_name, read_overflow
from headgate.filters import KINDS, Field
from headgate.message import Scalar

Hashes = npt.NDArray[np.uint64]  # one row a value: h1, h2
Filters = npt.NDArray[np.uint8]  # one row a chunk
ColumnOf = Callable[[str], pa.Array | None]  # the columns of a chunk by their names
_Ints = npt.NDArray[np.int64]

HASHED_BYTES: Final = 256  # only the first bytes of a text are hashed, and its length
# Chunks probed at a time: their filters stay in the cache of the processor.
_BLOCK: Final = 1 << 15


class Hash(NamedTuple):
    """The base hashes of one value of one field."""

    h1: int
    h2: int


@dataclass(frozen=True, slots=True)
class BloomShape:
    """The bytes of a filter, and the number of bits that a value sets in it."""

    nbytes: int
    hashes: int

    @property
    def bits(self) -> int:
        return self.nbytes * 8


# ---- hashing -----------------------------------------------------------------------------------------


@lru_cache(1 << 14, typed=True)
def hash_value(field: Field, value: Scalar) -> Hash:
    """Hash one value."""
    if isinstance(value, str):
        hashes = hash_texts(field, pa.array([value], pa.string()))
    else:
        hashes = hash_numbers(field, np.array([value]))
    return Hash(int(hashes[0, 0]), int(hashes[0, 1]))


def hash_texts(field: Field, texts: pa.StringArray | Sequence[str]) -> Hashes:
    """Hash texts to one row each: mix(seed + length + sum of (byte[i] + 1) * base^i)."""
    texts = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    seeds, bases = _keys(field, "s"), _keys(field, "p") | np.uint64(1)
    starts, lengths = _extents(texts)
    content = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    sums = _sums_of_table if _one_length(lengths) else _sums_of_ranges
    return mix(sums(content, starts, lengths, bases) + lengths.astype(np.uint64)[:, None] + seeds)


def _one_length(lengths: _Ints) -> bool:
    shortest, longest = int(lengths.min(initial=HASHED_BYTES)), int(lengths.max(initial=0))
    return 0 < shortest == longest <= HASHED_BYTES


def _sums_of_table(
    content: npt.NDArray[np.uint8], starts: _Ints, lengths: _Ints, bases: Hashes
) -> Hashes:
    """Sum texts of one length (codes, dates): their bytes are the rows of a table already."""
    rows, width = len(lengths), int(lengths[0])
    letters = content[starts[0] : starts[0] + rows * width].reshape(rows, width).astype(np.uint64)
    letters += np.uint64(1)
    return letters @ np.stack([_powers(base)[:width] for base in bases.tolist()], 1)


def _sums_of_ranges(
    content: npt.NDArray[np.uint8], starts: _Ints, lengths: _Ints, bases: Hashes
) -> Hashes:
    hashed = np.minimum(lengths, HASHED_BYTES)
    before = np.cumsum(hashed) - hashed
    within = np.arange(hashed.sum()) - np.repeat(before, hashed)
    letters = content[within + np.repeat(starts, hashed)].astype(np.uint64) + np.uint64(1)
    sums = [_sums(letters * _powers(base)[within], before, hashed) for base in bases.tolist()]
    return np.stack(sums, 1)


def hash_numbers(field: Field, values: npt.NDArray[Any]) -> Hashes:
    """Hash integers, floats or booleans to one row each."""
    as_float = values.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    return mix(as_float.view(np.uint64)[:, None] ^ _keys(field, _tag(values)))


def _tag(values: npt.NDArray[Any]) -> str:
    return "b" if values.dtype == np.bool_ else "n"


def _extents(texts: pa.StringArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    if not len(texts):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    stored = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + texts.offset + 1)
    ends = stored[texts.offset :].astype(np.int64)
    return ends[:-1], ends[1:] - ends[:-1]


def _sums(
    terms: npt.NDArray[np.uint64], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Sum the terms of each text; an empty one has sum 0."""
    found = np.zeros(len(starts), np.uint64)
    filled = lengths > 0
    if filled.any():
        found[filled] = np.add.reduceat(terms, starts[filled])
    return found


@lru_cache(1024)
def _powers(base: int) -> npt.NDArray[np.uint64]:
    factors = np.full(HASHED_BYTES, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors)


@lru_cache(1024)
def _keys(field: Field, purpose: str) -> npt.NDArray[np.uint64]:
    """Return two numbers for the field, so that equal values of two fields have different hashes."""
    name = f"{purpose}.{field.scope}.{field.name}".encode()
    return np.frombuffer(blake2b(name, digest_size=16).digest(), "<u8")


def hash_field(field: Field, column: ColumnOf, room: int) -> Hashes | None:
    """Hash the distinct values of a field in a chunk; None when there are more than `room`, or some are in the overflow."""
    values = distinct_values(field, column, room)
    return None if values is None else hash_values(field, values)


def distinct_values(field: Field, column: ColumnOf, room: int) -> list[pa.Array] | None:
    """Return the distinct values of a field in a chunk, an array for each kind that occurs.

    None when a kind has more than `room`, or when some are in the overflow.
    """
    if field.scope == "header" and _overflows(field.name, column):
        return None
    found = []
    for kind in KINDS if field.scope == "header" else ("string",):
        array = column(column_name(field, kind))
        if array is None:
            continue
        distinct = _distinct(array, room)
        if distinct is None or len(distinct) > room:
            return None
        found.append(distinct)
    return found


def _overflows(header: str, column: ColumnOf) -> bool:
    rest = column(OVERFLOW)
    return rest is not None and any(header in row for row in read_overflow(rest))


def _distinct(array: pa.Array, room: int) -> pa.Array | None:
    if isinstance(array, pa.DictionaryArray):
        return array.dictionary
    present = array.drop_null()
    if pa.types.is_string(array.type) and len(present) > 2 * room:
        return None  # texts without a dictionary are mostly distinct
    return present.unique()


def hash_values(field: Field, values: Sequence[pa.Array]) -> Hashes:
    """Hash the values of arrays of texts, numbers or booleans, to one row each."""
    found = [
        hash_texts(field, array)
        if pa.types.is_string(array.type)
        else hash_numbers(field, array.to_numpy(zero_copy_only=False))
        for array in values
    ]
    return np.concatenate(found) if found else np.empty((0, 2), np.uint64)


def mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64: every bit of the input reaches every bit of the output."""
    x = x ^ (x >> np.uint64(30))
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


_BIT: Final = np.left_shift(1, np.arange(8)).astype(np.uint8)


def salts(first_offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return the salt of each chunk."""
    return mix(first_offsets.astype(np.uint64))


# ---- building and probing ----------------------------------------------------------------------------


def build(shape: BloomShape, hashes: Hashes, first_offset: int) -> Filters:
    """Build the filter of one chunk from the hashes of its values."""
    salt = salts(np.array([first_offset]))
    steps = np.arange(shape.hashes, dtype=np.uint64)
    states = hashes[:, :1] + hashes[:, 1:] * steps + salt
    bits = np.zeros(shape.bits, np.bool_)
    bits[_positions(states, shape)] = True
    return np.packbits(bits, bitorder="little")


def probe(
    shape: BloomShape, filters: Filters, chunk_salts: npt.NDArray[np.uint64], value: Hash
) -> npt.NDArray[np.bool_]:
    """Return for each chunk whether it may hold the value. False is certain.

    `filters` has one row a chunk and may be wider than the shape.
    """
    found = np.zeros(len(filters), np.bool_)
    for start in range(0, len(filters), _BLOCK):
        block = slice(start, start + _BLOCK)
        found[start + _survivors(shape, filters[block], chunk_salts[block], value)] = True
    return found


def _survivors(
    shape: BloomShape, filters: Filters, chunk_salts: npt.NDArray[np.uint64], value: Hash
) -> npt.NDArray[np.intp]:
    left = np.arange(len(filters))
    for step in range(shape.hashes):
        state = np.uint64((value.h1 + step * value.h2) % 2**64)
        at = _positions(chunk_salts + state, shape)
        hit = np.flatnonzero(filters[left, at >> 3] & _BIT[at & 7])
        left, chunk_salts = left[hit], chunk_salts[hit]
    return left


def _positions(states: npt.NDArray[np.uint64], shape: BloomShape) -> npt.NDArray[np.intp]:
    # The high half, scaled to the number of bits: cheaper than a modulo, and just as even.
    high = mix(states)
    high >>= np.uint64(32)
    high *= np.uint64(shape.bits)
    high >>= np.uint64(32)
    return high.view(np.int64)

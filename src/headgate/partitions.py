"""The partition of a key in a super stream, for the library and for exchanges.

MurmurHash3 (x86, 32 bits) of the key's UTF-8 bytes, as an unsigned number, modulo the number of partitions: the hash of
RabbitMQ's stream clients, so that theirs and ours choose the same partition.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

SEED: Final = 104729
_MASK: Final = 0xFFFFFFFF


@lru_cache(maxsize=1 << 16)
def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key, counted from 0."""
    return murmur3_32(key.encode(), SEED) % partitions


def murmur3_32(data: bytes, seed: int) -> int:
    """Return the 32-bit MurmurHash3 of the data."""
    state = seed
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        state ^= _scramble(int.from_bytes(data[at : at + 4], "little"))
        state = (_rotate(state, 13) * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        state ^= _scramble(int.from_bytes(data[whole:], "little"))
    return _finalize(state ^ len(data))


def _scramble(block: int) -> int:
    return _rotate(block * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _MASK


def _finalize(state: int) -> int:
    """Make every bit of the input affect every bit of the output."""
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    return state ^ state >> 16

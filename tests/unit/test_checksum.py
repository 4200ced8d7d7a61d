"""The fast checksum and zlib's are one and the same: files written with either are read with the other."""

from __future__ import annotations

import zlib

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.checksum import crc32


@given(st.binary(max_size=5_000), st.integers(0, 2**32 - 1))
def test_crc32_equals_that_of_zlib(content, before):
    assert crc32(content, before) == zlib.crc32(content, before)


def test_crc32_takes_any_buffer():
    buffer = pa.py_buffer(b"some bytes of a column")
    assert crc32(buffer) == crc32(memoryview(buffer)) == zlib.crc32(buffer)

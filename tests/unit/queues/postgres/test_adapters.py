"""Lists have the bytes that psycopg itself would send."""

from __future__ import annotations

import pytest

pytest.importorskip("psycopg")

from psycopg.adapt import PyFormat, Transformer
from psycopg.types.array import ListBinaryDumper

from headgate.queues.postgres.adapters import ListDumper, array_type_of, pack_array

BIG = 2**40  # psycopg sends smaller ones as smaller types


@pytest.mark.parametrize(
    "values",
    [
        [BIG, -BIG, 0],
        [BIG, None, 1],
        ["", "ü", 'a"b'],
        [None, "x"],
        [b"", b"\x00\xff"],
        [1.5, -0.0],
        [True, False, None],
    ],
)
def test_an_array_has_the_bytes_psycopg_would_send(values):
    by_psycopg = ListBinaryDumper(list, Transformer()).upgrade(values, PyFormat.BINARY)
    assert pack_array(values, array_type_of(values)) == by_psycopg.dump(values)
    assert array_type_of(values).array == by_psycopg.oid


def test_an_empty_list_and_one_of_nones_are_sent_as_integers():
    dumper = ListDumper(list)
    for values in ([], [None, None]):
        assert dumper.get_key(values, PyFormat.BINARY) == dumper.get_key([1], PyFormat.BINARY)
        assert dumper.upgrade(values, PyFormat.BINARY).oid == array_type_of([1]).array

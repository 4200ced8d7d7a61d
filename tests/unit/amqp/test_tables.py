"""Tables, properties and contents: what is decoded is what was encoded, and nothing odd gets through."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.amqp.codec import AmqpCodec
from headgate.amqp.content import make_content
from headgate.amqp.methods import METHODS, decode_arguments, encode_arguments
from headgate.amqp.properties import decode_properties, encode_properties
from headgate.amqp.tables import MAX_DEPTH, Malformed, decode_table, encode_table

NAMES = st.text(max_size=40).filter(lambda text: len(text.encode()) <= 255)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary().map(bytearray)
    | st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(microsecond=0))
    | st.decimals(min_value=-(10**6), max_value=10**6, places=2)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4))  # fmt: skip


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_a_table_is_decoded_as_it_was_encoded(table):
    data = encode_table(table)
    assert decode_table(b"xy" + data + b"z", 2) == (table, 2 + len(data))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_table_are_refused_and_nothing_else_happens(data):
    try:
        decode_table(data)
    except Malformed:
        return


@given(st.dictionaries(NAMES, VALUES, max_size=4), st.data())
def test_a_table_that_is_cut_is_refused(table, data):
    encoded = encode_table(table)
    end = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(Malformed):
        decode_table(encoded[:end])


def test_every_type_of_rabbitmq_is_understood():
    fields = b"".join(
        [
            b"\1bb\xff", b"\1BB\xff", b"\1ss\xff\xfe", b"\1uu\xff\xfe", b"\1II\xff\xff\xff\xfe", b"\1ii\xff\xff\xff\xfe",
            b"\1ll" + b"\xff" * 8, b"\1LL" + b"\xff" * 8, b"\1ff\x3f\x80\0\0", b"\1dd\x3f\xf0\0\0\0\0\0\0", b"\1tt\1", b"\1VV",
            b"\1TT" + (1_700_000_000).to_bytes(8, "big"), b"\1DD\2\0\0\0\x7d", b"\1xx\0\0\0\1\xff", b"\1SS\0\0\0\1\xff",
        ]
    )  # fmt: skip
    table, _ = decode_table(len(fields).to_bytes(4, "big") + fields)
    assert table == {
        "b": -1, "B": 255, "s": -2, "u": 65534, "I": -2, "i": 4294967294, "l": -1, "L": -1, "f": 1.0, "d": 1.0,
        "t": True, "V": None, "T": datetime.fromtimestamp(1_700_000_000, UTC), "D": Decimal("1.25"), "x": bytearray(b"\xff"), "S": b"\xff",
    }  # fmt: skip


def test_tables_that_are_too_deep_are_refused():
    table: dict[str, object] = {}
    for _ in range(MAX_DEPTH + 2):
        table = {"t": table}
    with pytest.raises(Malformed, match="deep"):
        decode_table(encode_table(table))


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "content_type": NAMES, "headers": st.dictionaries(NAMES, VALUES, max_size=3), "delivery_mode": st.integers(0, 255),
            "priority": st.integers(0, 255), "correlation_id": NAMES, "expiration": NAMES, "timestamp": st.integers(0, 2**64 - 1),
            "cluster_id": NAMES,
        },
    ),
    st.binary(max_size=300),
)  # fmt: skip
def test_a_message_is_stored_and_restored_byte_by_byte(properties, body):
    raw = encode_properties(properties)
    assert decode_properties(raw) == properties
    content = make_content(b"\4amqx\1k", raw, body)
    again = AmqpCodec().decode(*content.parts())
    assert (again.raw, again.route, again.body) == (content.raw, content.route, body)


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_arguments_are_decoded_as_they_were_encoded(method):
    samples = {
        "o": 7,
        "H": 300,
        "L": 70_000,
        "Q": 2**40,
        "s": "täxt",
        "S": b"long",
        "T": {"a": [1]},
        "b": True,
    }
    values = [samples[letter] for letter in method.arguments]
    assert decode_arguments(method.arguments, encode_arguments(method.arguments, values)) == values


@given(st.sampled_from(list(METHODS.values())), st.binary(max_size=60))
def test_arguments_that_cannot_be_read_are_refused_and_nothing_else_happens(method, data):
    try:
        decode_arguments(method.arguments, data)
    except Malformed:
        return

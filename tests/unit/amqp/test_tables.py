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
from headgate.amqp.properties import (
    change_properties,
    decode_properties,
    encode_properties,
    raw_headers,
)
from headgate.amqp.tables import (
    MAX_DEPTH,
    Malformed,
    change_table,
    decode_table,
    encode_table,
    field_spans,
)

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


# Each type with a value that another type could hold as well.
FIELD_VALUES = [
    b"b\xff", b"B\xff", b"s\x80\0", b"u\xff\xff", b"I\0\0\0\1", b"i\0\0\0\1", b"l" + bytes(7) + b"\1", b"L" + bytes(7) + b"\1",
    b"f\x3f\x80\0\0", b"d\x3f\xf0" + bytes(6), b"t\1", b"V", b"T" + bytes(7) + b"\5", b"D\2\0\0\0\7",
    b"F\0\0\0\5" + b"\1as\0\1", b"A\0\0\0\3" + b"b\1V", b"x\0\0\0\2\xff\0", b"S\0\0\0\1z",
]  # fmt: skip
EVERY_FIELD = b"".join(b"\1" + value[:1] + value for value in FIELD_VALUES)


def test_fields_that_are_not_changed_keep_their_bytes():
    table = len(EVERY_FIELD).to_bytes(4, "big") + EVERY_FIELD
    assert len(field_spans(table)) == 18
    assert change_table(table, {}) == table
    added = change_table(table, {"x-delivery-count": 3})
    assert added[4:].startswith(EVERY_FIELD)
    assert change_table(added, {}, removed=("x-delivery-count",)) == table
    replaced = change_table(table, {"u": 7})
    assert decode_table(replaced)[0] == {**decode_table(table)[0], "u": 7}


def test_properties_that_are_not_changed_keep_their_bytes():
    raw = encode_properties({"content_type": "a", "headers": {"n": 1}, "expiration": "5", "app_id": "x", "priority": 3})  # fmt: skip
    assert change_properties(raw, {}) == raw
    without = change_properties(raw, {"expiration": None})
    assert decode_properties(without) == {k: v for k, v in decode_properties(raw).items() if k != "expiration"}  # fmt: skip
    assert change_properties(without, {"expiration": b"\x015"}) == raw
    assert raw_headers(change_properties(raw, {"headers": None})) == b"\0\0\0\0"

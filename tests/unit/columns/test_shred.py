"""Messages cut into columns, and checked by column: nothing lost, nothing let through."""

import enum
import random

import pyarrow as pa
import pytest

from headgate.columns import column_name
from headgate.columns.arrays import transpose_headers
from headgate.columns.decode import BatchColumns
from headgate.columns.shred import shred_headers, shred_messages, shred_valid
from headgate.columns.validate import validate_batch
from headgate.errors import InvalidMessage
from headgate.filters import VIEWS
from headgate.filters.nodes import KIND_OF, SYS_KINDS, Field
from headgate.message import INT64_MAX, INT64_MIN, OPAQUE, Message, Opaque, validate
from tests import generate


def types_of(batch):
    return {field.name: str(field.type) for field in batch.schema}


# ---- shredding ---------------------------------------------------------------------------------------


def test_a_header_becomes_one_column_for_each_kind_it_holds():
    values = ["a", 1, 2.5, True, OPAQUE, None]
    arrays = shred_headers([{"h": value} for value in values])
    assert {name: array.to_pylist() for name, array in arrays.items()} == {
        "h.s.h": ["a", None, None, None, None, None],
        "h.i.h": [None, 1, None, None, None, None],
        "h.f.h": [None, None, 2.5, None, None, None],
        "h.b.h": [None, None, None, True, None, None],
        "h.o.h": [False, False, False, False, True, False],
    }


def test_every_column_has_the_type_its_name_promises():
    message = Message(
        topic="t",
        headers={"s": "x", "i": 1, "f": 0.5, "b": False, "o": OPAQUE},
        timestamp=5,
        id="i",
        filter_value="f",
        key="k",
        subject="s",
    )
    assert types_of(shred_messages([message])) == {
        "topic": "dictionary<values=string, indices=int8, ordered=0>",
        "priority": "uint8",
        "timestamp": "int64",
        "id": "string",
        "filter_value": "string",
        "key": "string",
        "h.s.s": "string",
        "h.i.i": "int64",
        "h.f.f": "double",
        "h.b.b": "bool",
        "h.o.o": "bool",
        "p.s.subject": "string",
    }


def test_a_column_that_would_be_empty_is_not_there():
    assert types_of(shred_messages([Message(headers={"absent": None})])).keys() == {
        "topic",
        "priority",
    }


def test_no_messages_make_an_empty_batch():
    assert shred_messages([]).num_rows == 0
    assert shred_valid([]).num_rows == 0
    assert shred_headers([]) == {}


@pytest.mark.parametrize("rows", [1, 2, 50, 400])
def test_columns_hold_exactly_the_values_of_the_messages(rows, seed):
    messages = generate.messages(random.Random(seed), rows)
    columns = BatchColumns(shred_messages(messages))
    for name in SYS_KINDS:
        field = Field("sys", name)
        assert whole(columns, field) == [getattr(m, name) for m in messages]
    for name in generate.HEADERS:
        field = Field("header", name)
        assert typed(whole(columns, field)) == typed(m.headers.get(name) for m in messages)
    for name in generate.PROPERTIES:
        field = Field("property", name)
        assert typed(whole(columns, field)) == typed(m.properties.get(name) for m in messages)


def whole(columns, field):
    """The field's values put together again out of its views."""
    values = [None] * columns.num_rows
    for view in VIEWS:
        array = columns.view(field, view)
        for row, value in enumerate([] if array is None else array.to_pylist()):
            if view == "opaque":
                value = OPAQUE if value else None
            if value is not None:
                assert values[row] is None, "a row has one value"
                values[row] = value
    return values


def typed(values):
    return [(type(value), repr(value)) for value in values]


def test_messages_with_other_headers_keep_their_rows_apart():
    rows = [{"a": 1, "b": 2}, {"b": 3, "c": 4}, {}, {"a": 5, "b": None}]
    arrays = shred_headers(rows)
    assert {name: array.to_pylist() for name, array in arrays.items()} == {
        "h.i.a": [1, None, None, 5],
        "h.i.b": [2, 3, None, None],
        "h.i.c": [None, 4, None, None],
    }


@pytest.mark.parametrize("rows", [[{"a": 1, "b": "x"}] * 3, [{"a": 1}, {"b": "x", "c": 1}, {}]])
def test_the_headers_to_keep_can_be_named(rows):
    assert shred_headers(rows, only={"b"}).keys() == {"h.s.b"}
    assert shred_headers(rows, "property", only={"b", "none"}).keys() == {"p.s.b"}


@pytest.mark.parametrize(
    ("distinct", "layout"),
    [(1, "int8"), (128, "int8"), (129, "int16"), (500, "int16"), (501, None), (1000, None)],
)
def test_strings_are_a_dictionary_when_at_most_half_are_distinct(distinct, layout):
    values = [f"v{i % distinct}" for i in range(1000)]
    column = shred_headers([{"h": value} for value in values])["h.s.h"]
    assert column.to_pylist() == values
    encoded = f"dictionary<values=string, indices={layout}, ordered=0>"
    assert str(column.type) == (encoded if layout else "string")


def test_strings_that_repeat_only_at_the_beginning_are_no_dictionary():
    values = ["same"] * 300 + [f"v{i}" for i in range(700)]
    column = shred_headers([{"h": value} for value in values])["h.s.h"]
    assert column.to_pylist() == values
    assert column.type == pa.string()


def test_absent_values_do_not_count_as_distinct():
    column = shred_headers([{"h": "x"}, {"h": None}])["h.s.h"]
    assert pa.types.is_dictionary(column.type)
    assert column.to_pylist() == ["x", None]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Message(headers={"big": 2**63}), "header 'big'"),
        (Message(headers={"odd": "\ud800"}), "header 'odd'"),
        (Message(topic="\udfff"), "topic"),
        (Message(topic=b"bytes"), "topic"),
        (Message(id=5), "id"),
        (Message(priority=256), "priority"),
        (Message(priority=-1), "priority"),
        (Message(timestamp=2**63), "timestamp"),
        (Message(timestamp="now"), "timestamp"),
        (Message(key=b"bytes"), "key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_that_no_column_can_hold_is_refused_with_its_field(message, field):
    with pytest.raises(InvalidMessage) as refused:
        shred_messages([Message(headers={"big": 1, "odd": "x"}, id="i", key="k"), message])
    assert refused.value.field == field


# ---- columns -----------------------------------------------------------------------------------------


def test_a_system_field_has_the_view_of_its_kind_only():
    columns = BatchColumns(shred_messages([Message(topic="a", timestamp=1)]))
    assert columns.view(Field("sys", "topic"), "string").to_pylist() == ["a"]
    assert columns.view(Field("sys", "topic"), "int") is None
    assert columns.view(Field("sys", "timestamp"), "int").to_pylist() == [1]
    assert columns.view(Field("sys", "key"), "string") is None


def test_a_header_named_like_a_system_field_is_another_column():
    columns = BatchColumns(
        shred_messages([Message(topic="a", headers={"topic": "b"}, properties={"to": "c"})])
    )
    assert columns.view(Field("header", "topic"), "string").to_pylist() == ["b"]
    assert columns.view(Field("sys", "topic"), "string").to_pylist() == ["a"]
    assert columns.view(Field("header", "to"), "string") is None


def test_a_column_name_has_scope_view_and_name():
    assert column_name(Field("header", "a.b"), "float") == "h.f.a.b"
    assert column_name(Field("property", "subject"), "opaque") == "p.o.subject"
    assert column_name(Field("sys", "topic"), "string") == "topic"


# ---- validation --------------------------------------------------------------------------------------


class Word(enum.StrEnum):
    HELLO = "hello"


GOOD = [
    Message(
        b"",
        "a.b",
        {"s": "x", "i": 1, "f": 0.5, "b": True, "n": None, "o": OPAQUE},
        255,
        1,
        "i",
        "f",
        "k",
    ),
    Message(bytearray(b"x"), headers={"i": INT64_MIN, "s": ""}, timestamp=INT64_MAX, subject="s"),
    Message(
        memoryview(b"x"), topic="é" * 127, id="x" * 255, headers={"x" * 255: 1, "s": "x" * 10_000}
    ),
]
BAD = [
    Message("text"),
    Message(None),
    Message(topic=None),
    Message(topic=5),
    Message(topic=Word.HELLO),
    Message(topic="x" * 256),
    Message(topic="é" * 128),
    Message(topic="a\0"),
    Message(topic="\ud800"),
    Message(priority=256),
    Message(priority=-1),
    Message(priority=True),
    Message(priority=1.0),
    Message(timestamp=1.5),
    Message(timestamp=True),
    Message(timestamp=2**63),
    Message(timestamp=INT64_MIN - 1),
    Message(timestamp="now"),
    Message(id=5),
    Message(id="x" * 256),
    Message(filter_value=b"x"),
    Message(filter_value="\0"),
    Message(key="\udfff"),
    Message(headers={"i": 2**63}),
    Message(headers={"i": INT64_MIN - 1}),
    Message(headers={"f": float("nan")}),
    Message(headers={"f": float("-inf")}),
    Message(headers={"s": "a\0b"}),
    Message(headers={"s": "\ud800\udc00"}),
    Message(headers={"s": Word.HELLO}),
    Message(headers={"s": b"bytes"}),
    Message(headers={"o": Opaque()}),
    Message(headers={"o": [1]}),
    Message(headers={5: "x"}),
    Message(headers={"a\nb": 1}),
    Message(headers={"é" * 128: 1}),
    Message(headers={"\ud800": 1}),
    Message(properties={"colour": "red"}),
    Message(properties={"subject": float("inf")}),
    Message(properties={"subject": "\0"}),
]


@pytest.mark.parametrize("message", BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("company", [[], GOOD], ids=["alone", "among good ones"])
def test_a_batch_is_refused_with_the_error_of_its_first_bad_message(message, company):
    with pytest.raises(InvalidMessage) as expected:
        validate(message)
    batch = [*company, message, *company, Message(headers={"later": float("nan")})]
    for check in (validate_batch, shred_valid):
        with pytest.raises(InvalidMessage) as refused:
            check(batch)
        assert str(refused.value) == str(expected.value)


def test_a_batch_of_good_messages_passes():
    validate_batch(GOOD)
    validate_batch([])
    assert shred_valid(GOOD) == shred_messages(GOOD)


def test_random_messages_pass_in_bulk_as_they_do_one_by_one(seed):
    messages = generate.messages(random.Random(seed), 300)
    for message in messages:
        validate(message)
    validate_batch(messages)


@pytest.mark.parametrize("at", range(4))
def test_one_bad_value_among_many_is_found(at, seed):
    bad = ({"h": 2**63}, {"h": float("nan")}, {"h": "\0"}, {"h": ()})[at]
    kinds = ([1, 2], [0.5], ["a", "b"], [None])
    rng = random.Random(seed)
    messages = [Message(headers={"h": rng.choice(kinds[at])}) for _ in range(500)]
    validate_batch(messages)
    messages[rng.randrange(500)] = Message(headers=bad)
    with pytest.raises(InvalidMessage, match="header 'h'"):
        validate_batch(messages)


def test_every_kind_has_a_view():
    assert {*KIND_OF.values(), "opaque"} == set(VIEWS)


def test_headers_that_few_messages_have_are_kept_by_value_and_read_as_by_row():
    values = ["x", 7, 0.5, True, OPAQUE, None, "y", -0.0, 2**62]
    rows = [{f"h{i % 50}": values[i % 9], "all": i} for i in range(500)]
    columns = transpose_headers(rows)
    assert sum(len(column.values) for column in columns.values()) == 1000
    arrays = shred_headers(rows)
    kinds = {str: "s", int: "i", float: "f", bool: "b"}
    for i, row in enumerate(rows):
        for name, value in row.items():
            if type(value) in kinds:
                assert arrays[f"h.{kinds[type(value)]}.{name}"][i].as_py() == value
            elif value is OPAQUE:
                assert arrays[f"h.o.{name}"][i].as_py()
    marks = [sum(a.to_pylist()) for n, a in arrays.items() if n.startswith("h.o.")]
    assert sum(marks) == sum(row[name] is OPAQUE for row in rows for name in row)
    others = [a for n, a in arrays.items() if not n.startswith("h.o.")]
    filled = sum(len(a) - a.null_count for a in others)
    assert filled == sum(type(v) in kinds for row in rows for v in row.values())
    assert {len(array) for array in arrays.values()} == {500}

"""What a message holds, and what may be published."""

import dataclasses
import pickle
from collections import UserDict
from dataclasses import fields
from enum import IntEnum

import pytest

from headgate import OPAQUE, InvalidMessage, Message
from headgate.message import (
    INT64_MAX,
    INT64_MIN,
    PROPERTY_NAMES,
    SYSTEM_FIELDS,
    HeaderValue,
    MessageFields,
    message_of_fields,
    project_headers,
    validate,
)


def test_amqp_properties_are_given_by_name_and_read_as_attributes():
    message = Message(b"x", reply_to="answers", correlation_id=789, expiration=60_000)
    assert (message.reply_to, message.correlation_id, message.expiration) == (
        "answers",
        789,
        60_000,
    )
    assert message.properties == {
        "reply_to": "answers",
        "correlation_id": 789,
        "expiration": 60_000,
    }
    assert message.content_type is None


def test_the_keywords_of_publish_are_the_fields_and_properties_of_a_message():
    fields = {field.name for field in dataclasses.fields(Message)}
    assert MessageFields.__annotations__.keys() | {"payload"} == fields | PROPERTY_NAMES


def test_amqps_message_id_is_the_id():
    assert Message(properties={"message_id": "id-1"}).id == "id-1"
    assert Message(id="own", properties={"message_id": "id-1"}).id == "own"


def test_an_unknown_keyword_is_refused_like_any_other():
    with pytest.raises(TypeError, match="unexpected keyword argument 'prioritty'"):
        Message(b"", prioritty=3)


def test_a_message_is_frozen_equal_by_value_and_survives_pickling():
    message = Message(b"x", "a.b", {"n": 1, "list": OPAQUE}, priority=3)
    with pytest.raises(AttributeError):
        message.topic = "other"
    copy = pickle.loads(pickle.dumps(message))
    assert copy == message
    assert copy.headers["list"] is OPAQUE


def test_a_message_made_of_its_fields_is_like_any_other():
    fields = (b"x", "a.b", {"n": 1}, 3, 7, "id", "value", "key", {"reply_to": "answers"})
    message = message_of_fields(*fields)
    assert message == Message(*fields)
    assert message_of_fields(b"x", "a.b", {}) == Message(b"x", "a.b")
    assert type(message) is Message
    assert pickle.loads(pickle.dumps(message)) == message
    with pytest.raises(AttributeError):
        message.topic = "other"


def test_a_json_payload_decodes_to_the_encoded_value():
    message = Message.from_json({"total": 12.5, "name": "é"}, topic="orders")
    assert message.json() == {"total": 12.5, "name": "é"}
    assert (message.topic, message.content_type) == ("orders", "application/json")


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_message_owns_its_headers_and_its_payload(kind):
    headers, buffer, properties = kind(n=1), bytearray(b"a"), {"reply_to": "x"}
    message = Message(buffer, headers=headers, properties=properties)
    viewed = Message(memoryview(buffer)[::-1])
    headers["n"], buffer[0], properties["reply_to"] = 2, 98, "y"
    assert message == Message(b"a", headers={"n": 1}, reply_to="x")
    assert type(message.payload) is type(viewed.payload) is bytes
    assert viewed.payload == b"a"


GOOD = [
    {},
    {"s": "", "i": INT64_MIN, "j": INT64_MAX, "f": -0.0, "b": True, "gone": None, "list": OPAQUE},
    {"": 1, "é😀": "\U0010ffff", "n" * 255: 1},
]


@pytest.mark.parametrize("headers", GOOD, ids=range(len(GOOD)))
def test_valid_headers_are_accepted(headers):
    validate(Message(headers=headers))
    assert Message(headers=headers).headers == headers


@pytest.mark.parametrize(
    ("fields", "where", "why"),
    [
        ({"payload": "text"}, "payload", "must be bytes, not str"),
        ({"topic": "a\x00b"}, "topic", "NUL"),
        ({"topic": "t" * 256}, "topic", "256 bytes long, the limit is 255"),
        ({"topic": "é" * 128}, "topic", "256 bytes long"),
        ({"topic": 5}, "topic", "must be str"),
        ({"priority": 256}, "priority", "0 to 255"),
        ({"priority": -1}, "priority", "0 to 255"),
        ({"priority": True}, "priority", "0 to 255"),
        ({"timestamp": 1.5}, "timestamp", "microseconds"),
        ({"id": "\ud800"}, "id", "surrogates"),
        ({"key": 7}, "key", "must be str"),
        ({"headers": {5: 1}}, "header 5", "must be str"),
        ({"headers": {"a\nb": 1}}, "header 'a\\nb'", "control characters"),
        ({"headers": {"k" * 256: 1}}, "header", "the limit is 255"),
        ({"headers": {"x": float("nan")}}, "header 'x'", "not a finite number"),
        ({"headers": {"x": float("-inf")}}, "header 'x'", "not a finite number"),
        ({"headers": {"x": INT64_MAX + 1}}, "header 'x'", "64-bit integer"),
        ({"headers": {"x": "a\x00"}}, "header 'x'", "NUL"),
        ({"headers": {"x": "\udfff"}}, "header 'x'", "surrogates"),
        ({"headers": {"x": [1]}}, "header 'x'", "must be str, int, float or bool, not list"),
        ({"properties": {"colour": "red"}}, "property 'colour'", "use a header"),
        ({"properties": {"subject": b"x"}}, "property 'subject'", "not bytes"),
    ],
)  # fmt: skip
def test_an_invalid_field_is_refused_by_name(fields, where, why):
    with pytest.raises(InvalidMessage) as refused:
        validate(Message(**fields))
    assert refused.value.field.startswith(where)
    assert why in refused.value.problem
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


@pytest.mark.parametrize(
    "value", ["EU", "", 5, -(2**63), 2**63 - 1, 2.5, -0.0, 1.7e308, True, False]
)
def test_project_headers_keeps_values_that_filters_can_compare(value):
    assert repr(project_headers({"x": value})) == repr({"x": value})


@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), float("-inf"), 2**63, -(2**63) - 1, 10**400, "a\0b", "\ud800",
        b"EU", [1], {"k": 1}, (), object(), OPAQUE,
    ],
)  # fmt: skip
def test_project_headers_makes_other_values_opaque(value):
    assert project_headers({"x": value}) == {"x": OPAQUE}


def test_project_headers_copies_nothing_where_nothing_has_to_be_converted():
    headers = {"region": "EU", "amount": 7, "vip": True}
    assert project_headers(headers) is headers


def test_a_header_of_another_librarys_kind_is_seen_as_its_value():
    class Text(str):
        __slots__ = ()

    class Level(IntEnum):
        HIGH = 7

    found = project_headers({"text": Text("EU"), "level": Level.HIGH})
    assert {name: type(value) for name, value in found.items()} == {"text": str, "level": int}


def test_an_integer_too_long_for_python_to_print_is_refused_like_any_other():
    assert project_headers({"x": 10**5000}) == {"x": OPAQUE}
    with pytest.raises(InvalidMessage, match=r"header 'x': must be a 64-bit .* 16,610 bits"):
        validate(Message(headers={"x": 10**5000}))


def test_a_message_without_properties_gets_none_from_a_dict_that_is_used_again():
    properties: dict[str, HeaderValue] = {}
    message = Message(properties=properties)
    properties["subject"] = "late"
    assert message.properties == {}


def test_every_system_field_is_an_attribute_of_a_message_and_of_its_kind():
    message = Message(topic="t", priority=1, timestamp=2, id="i", filter_value="f", key="k")
    kinds = {"string": str, "int": int}
    others = {"payload", "headers", "properties"}
    assert {field.name for field in SYSTEM_FIELDS} == {f.name for f in fields(Message)} - others
    for field in SYSTEM_FIELDS:
        assert type(getattr(message, field.name)) is kinds[field.kind]
        assert (getattr(Message(), field.name) is not None) == field.required

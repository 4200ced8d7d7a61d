"""Messages of AMQP in streams: whatever headers a client sends, they come out as they went in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from headgate.amqp.content import Content, make_content
from headgate.amqp.properties import decode_properties, encode_properties
from headgate.amqp.stream_codec import from_stream, to_stream
from headgate.amqp.tables import short_text
from headgate.message import Message, validate
from headgate.streams import Stream
from tests.unit.amqp.test_tables import NAMES, VALUES

TEXTS = st.text(max_size=30).filter(lambda text: len(text.encode()) <= 255)
PROPERTIES = st.fixed_dictionaries(
    {"headers": st.dictionaries(NAMES, VALUES, max_size=5)},
    optional={
        "content_type": TEXTS,
        "content_encoding": TEXTS,
        "delivery_mode": st.integers(0, 255),
        "priority": st.integers(0, 255),
        "correlation_id": TEXTS,
        "reply_to": TEXTS,
        "message_id": TEXTS,
        "timestamp": st.integers(0, 2**64 - 1),
        "type": TEXTS,
        "user_id": TEXTS,
        "app_id": TEXTS,
        "cluster_id": TEXTS,
    },
)


def content(values: dict, body: bytes = b"body", exchange: str = "e", key: str = "k") -> Content:
    return make_content(short_text(exchange) + short_text(key), encode_properties(values), body)


def sent_properties(sent: Content) -> dict:
    return decode_properties(sent.raw[7 + 12 : sent.head_size - 1])


@given(PROPERTIES, TEXTS, TEXTS, st.binary(max_size=20))
def test_any_message_is_stored_and_sent_with_equal_bytes(values, exchange, key, body):
    original = content(values, body, exchange, key)
    stored = to_stream(original)
    validate(stored)
    sent = from_stream(7, stored)
    assert (sent.exchange, sent.routing_key, sent.body) == (exchange, key, body)
    found = sent_properties(sent)
    found["headers"].pop("x-stream-offset")
    values["headers"].pop("x-stream-offset", None)
    assert encode_properties(found) == encode_properties({"delivery_mode": 1, **values})


def test_the_bytes_of_headers_are_not_written_anew():
    """A client chose a short integer, which this broker would never write: it gets one back."""
    table = short_text("n") + b"s" + b"\x00\x05"
    raw = (0x2000).to_bytes(2, "big") + len(table).to_bytes(4, "big") + table
    sent = from_stream(3, to_stream(make_content(short_text("") + short_text("q"), raw, b"")))
    assert table in sent.raw


def test_a_stream_returns_what_it_was_given(tmp_path):
    originals = [
        content({"headers": {"n": n, "list": [n, None], "nan": float("nan")}, "message_id": str(n)})
        for n in range(50)
    ]
    with Stream.create(tmp_path / "s") as stream:
        with stream.producer() as producer:
            producer.publish_many([to_stream(original) for original in originals])
        found = [
            from_stream(record.offset, record.message) for record in stream.consume().records()
        ]
    assert [sent_properties(one)["message_id"] for one in found] == [str(n) for n in range(50)]
    assert [one.headers["list"] for one in found] == [[n, None] for n in range(50)]


def test_fields_that_were_changed_are_sent_as_they_are_now():
    stored = to_stream(content({"headers": {"region": "eu", "list": [1]}, "content_type": "a/b"}))
    changed = replace(stored, headers={"region": "us"})
    assert sent_properties(from_stream(0, changed)) == {
        "content_type": "a/b",
        "delivery_mode": 1,
        "headers": {"region": "us", "x-stream-offset": 0},
    }


def test_a_message_of_the_library_is_sent_with_its_fields():
    at = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    message = Message(
        b"x",
        "orders.eu",
        {"amount": 5, "ok": True},
        timestamp=at * 1_000_000,
        id="m1",
        filter_value="EU",
        priority=3,
        correlation_id="c",
    )
    sent = from_stream(2**40, message)
    assert (sent.exchange, sent.routing_key, sent.body) == ("", "orders.eu", b"x")
    assert sent_properties(sent) == {
        "headers": {
            "amount": 5,
            "ok": True,
            "x-stream-filter-value": "EU",
            "x-stream-offset": 2**40,
        },
        "delivery_mode": 1,
        "priority": 3,
        "correlation_id": "c",
        "message_id": "m1",
        "timestamp": at,
    }


def test_a_property_that_is_no_head_is_ignored():
    for text in ("%%%", "AAAA", "////", ""):
        assert from_stream(0, Message(b"", "t", amqp=text)).routing_key == "t"

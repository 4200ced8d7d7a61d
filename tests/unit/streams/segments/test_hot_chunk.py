"""A hot chunk gives back what was put in, touches only what is asked for, and notices every changed byte."""

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headgate.columns.shred import shred_chunk
from headgate.errors import InvalidMessage, StreamCorrupt
from headgate.filters.nodes import Field
from headgate.message import OPAQUE, Message, validate
from headgate.streams.segments.hot_chunk import (
    NO_META,
    ChunkMeta,
    HotChunk,
    encode_chunk,
    encode_hole,
)
from tests import generate

NOW = 1_750_000_000_000_000


def chunk_of(messages, *, first_offset=0, meta=NO_META, indexed=()):
    encoded = encode_chunk(
        shred_chunk(messages, [m.payload for m in messages], indexed, NOW),
        first_offset,
        meta,
    )
    data = b"".join(bytes(memoryview(part)) for part in encoded.parts)
    assert len(data) == encoded.length
    return HotChunk(pa.py_buffer(data), 0, "here.log"), data


def value_at(chunk, field, row):
    """What the views of a chunk say a message's field is."""
    for view in ("string", "int", "float", "bool"):
        array = chunk.view(field, view)
        if array is not None and array[row].is_valid:
            return array[row].as_py()
    opaque = chunk.view(field, "opaque")
    return OPAQUE if opaque is not None and opaque[row].as_py() else None


def valid_messages(seed, count):
    rng, found = Random(seed), []
    while len(found) < count:
        message = generate.message(rng)
        try:
            validate(message)
        except InvalidMessage:
            continue
        found.append(message)
    return found


def test_every_view_of_a_chunk_equals_the_headers_of_its_messages():
    messages = valid_messages(1, 300)
    chunk, _ = chunk_of(messages, first_offset=1000)
    for name in generate.HEADERS:
        field = Field("header", name)
        for row, message in enumerate(messages):
            found = value_at(chunk, field, row)
            assert (type(found), found) == (
                type(message.headers.get(name)),
                message.headers.get(name),
            )
    for row, message in enumerate(messages):
        assert value_at(chunk, Field("sys", "topic"), row) == message.topic
        assert value_at(chunk, Field("sys", "priority"), row) == message.priority
        expected = NOW if message.timestamp is None else message.timestamp
        assert value_at(chunk, Field("sys", "timestamp"), row) == expected
        for name in ("id", "filter_value", "key"):
            assert value_at(chunk, Field("sys", name), row) == getattr(message, name)


def test_headers_past_the_cap_are_read_back_from_the_overflow():
    messages = [
        Message(b"", headers={f"h{i}": value for i in range(k, k + 60)})
        for k, value in ((0, "text"), (50, 7), (100, 1.5), (150, True), (30, OPAQUE))
    ]
    chunk, _ = chunk_of(messages, indexed=("h205",))
    assert len([name for name in chunk.names if name.startswith("h.")]) == 128
    assert "h.b.h205" in chunk.names  # indexed headers keep their columns
    for row, message in enumerate(messages):
        for i in range(210):
            assert value_at(chunk, Field("header", f"h{i}"), row) == message.headers.get(f"h{i}")


def test_a_header_in_very_many_messages_keeps_its_column():
    messages = [Message(b"", headers={"common": i, f"only-{i}": "x"}) for i in range(300)]
    chunk, _ = chunk_of(messages)
    assert "h.i.common" in chunk.names
    assert chunk.overflowing()[299] == {"only-299": "x"}


def test_take_returns_offsets_and_the_columns_of_every_chunk():
    chunk, _ = chunk_of([Message(b"a"), Message(b"bb"), Message(b"ccc")], first_offset=50)
    batch = chunk.take(np.array([0, 2]))
    assert batch.schema.names == ["offset", "timestamp", "topic", "priority", "payload"]
    assert batch.column("offset").to_pylist() == [50, 52]
    assert batch.column("payload").to_pylist() == [b"a", b"ccc"]
    assert chunk.take(None, ["payload", "h.s.none"]).schema.names == ["offset", "payload"]


def test_a_system_column_with_one_value_is_not_stored():
    chunk, _ = chunk_of([Message(b""), Message(b"")])
    assert chunk.names == []
    batch = chunk.take(None)
    assert batch.column("timestamp").to_pylist() == [NOW, NOW]
    assert batch.column("topic").to_pylist() == ["", ""]
    assert batch.column("priority").to_pylist() == [0, 0]
    assert batch.column("payload").to_pylist() == [b"", b""]


def test_a_chunk_with_one_message_costs_a_few_hundred_bytes():
    message = Message(
        b"x" * 100, topic="orders.eu", headers={"region": "EU", "type": "order", "amount": 12}
    )
    chunk, data = chunk_of([message])
    assert chunk.nbytes == len(data) <= 500


def test_metadata_comes_from_the_header():
    messages = [Message(b"", timestamp=t, priority=p) for t, p in ((5, 1), (-3, 9), (8, 0))]
    meta = ChunkMeta({"pos-1": 17}, {"region": "eu"})
    chunk, _ = chunk_of(messages, first_offset=7, meta=meta)
    found = chunk.metadata()
    assert (found.first_offset, found.last_offset, found.count) == (7, 9, 3)
    assert (found.min_timestamp, found.max_timestamp) == (-3, 8)
    assert (found.min_priority, found.max_priority) == (0, 9)
    assert found.properties == {"region": "eu"}
    assert chunk.meta.producers == {"pos-1": 17}


def test_a_changed_byte_anywhere_fails_a_crc():
    messages = [
        Message(f"p{i}".encode(), topic="t", headers={"n": i, "s": f"s{i % 3}"}) for i in range(9)
    ]
    _, data = chunk_of(messages)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x10
        with pytest.raises(StreamCorrupt) as caught:
            HotChunk(pa.py_buffer(bytes(changed)), 0, "here.log", base=640).check()
        assert caught.value.file == "here.log"
        assert 640 <= caught.value.position < 640 + len(data)


def test_a_damaged_column_leaves_the_others_readable():
    messages = [Message(b"payload", headers={"a": f"x{i}", "b": i}) for i in range(5)]
    _, data = chunk_of(messages)
    at = data.rindex(b"payload")
    chunk = HotChunk(pa.py_buffer(data[:at] + b"PAYLOAD" + data[at + 7 :]), 0, "here.log")
    assert chunk.view(Field("header", "b"), "int").to_pylist() == [0, 1, 2, 3, 4]
    with pytest.raises(StreamCorrupt, match="column 'payload' of offsets 0 to 4"):
        chunk.column("payload")


def test_a_chunk_that_is_cut_off_is_an_error():
    _, data = chunk_of([Message(b"x" * 50)])
    for length in range(len(data)):
        with pytest.raises(StreamCorrupt, match="cut off"):
            HotChunk(pa.py_buffer(data[:length]), 0, "here.log")


def test_a_hole_has_a_length_and_no_rows():
    hole = HotChunk(pa.py_buffer(encode_hole(10, 5, 640)), 0, "here.log")
    assert (hole.nbytes, hole.num_rows, hole.head.messages) == (640, 0, 5)
    assert hole.metadata().last_offset == 14
    assert hole.take(None).num_rows == 0


def test_payloads_of_any_bytes_type_are_stored():
    messages = [Message(kind(b"abc")) for kind in (bytes, bytearray, memoryview)]
    chunk, _ = chunk_of(messages)
    assert chunk.column("payload").to_pylist() == [b"abc"] * 3


def test_a_missing_timestamp_is_the_time_of_the_commit():
    stamped = Message(b"", timestamp=1)
    chunk, _ = chunk_of([stamped, replace(stamped, timestamp=None)])
    assert chunk.column("timestamp").to_pylist() == [1, NOW]

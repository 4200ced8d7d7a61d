"""Arrow tables become messages, under the rules of messages."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from headgate.columns.tables import cut_rows, read_table
from headgate.errors import InvalidMessage
from headgate.message import OPAQUE, Message
from headgate.streams.stream import Stream

NOW = 1_750_000_000_000_000


def headers_of(stream):
    return [dict(message.headers) for message in stream.consume()]


def test_plain_columns_become_headers_of_their_own_type(stream):
    table = pa.table(
        {
            "payload": [b"a", None],
            "region": ["EU", None],
            "amount": pa.array([1, 2], pa.uint8()),
            "weight": pa.array([0.5, None], pa.float32()),
            "express": [None, True],
            "nothing": pa.nulls(2),
        }
    )
    assert stream.append(table) == 2
    first, second = stream.consume()
    assert (first.payload, second.payload) == (b"a", b"")
    assert dict(first.headers) == {"region": "EU", "amount": 1, "weight": 0.5}
    assert dict(second.headers) == {"amount": 2, "express": True}


def test_system_columns_become_fields(stream):
    moment = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    table = pa.table(
        {
            "timestamp": pa.array([moment, None], pa.timestamp("ms", "UTC")),
            "topic": ["a.b", None],
            "priority": [7, None],
            "id": ["m1", None],
            "key": [None, "k"],
            "filter_value": ["EU", None],
            "payload": ["text", "é"],
            "p.s.subject": ["hello", None],
        }
    )
    stream.append(table)
    first, second = stream.consume()
    assert first == Message(
        b"text", "a.b", {}, 7, int(moment.timestamp() * 1e6), "m1", "EU", None, subject="hello"
    )
    assert (second.topic, second.priority, second.id, second.key) == ("", 0, None, "k")
    assert abs(second.timestamp - NOW) > 0
    assert second.payload == "é".encode()


def test_a_scan_can_be_appended_to_another_stream_unchanged(tmp_path, stream):
    messages = [
        Message(b"a", "t", {"x": 1, "s": "é"}, 3, 5, "i", "f", "k", subject="s", group_sequence=4),
        Message(b"b", "t", {"x": "one", "y": 2.5, "o": OPAQUE}, timestamp=6),
        *(
            Message(b"c", timestamp=7, headers={f"h{j}": j for j in range(i, 150)})
            for i in range(3)
        ),
    ]
    with stream.producer() as producer:
        producer.publish_many(messages)
    with Stream.create(tmp_path / "copy") as copy:
        for batch in stream.scan():
            copy.append(batch)
        assert list(copy.consume()) == list(stream.consume()) == messages


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"when": pa.array([dt.date(2026, 1, 1)])}, "is not a type of a header; cast it"),
        ({"tags": [["a"]]}, "is not a type of a header"),
        ({"x": [float("nan")]}, "NaN or an infinity"),
        ({"x": pa.array([2**63], pa.uint64())}, "cannot be stored as int64"),
        ({"x": ["a\0b"]}, "cannot hold NUL"),
        ({"topic": ["x" * 256]}, "longer than 255 bytes"),
        ({"priority": [256]}, "from 0 to 255"),
        ({"priority": ["high"]}, "cannot be stored as int64"),
        ({"p.s.colour": ["red"]}, "is not an AMQP property"),
        ({"h.s.a": ["x"], "a": ["y"]}, "exists twice"),
        ({"h.s.a": ["x"], "h.i.a": [1]}, "has two values in one row"),
        ({"bad\nname": ["x"]}, "control characters"),
        ({"overflow": [b"not json"]}, "must hold JSON objects"),
        ({"overflow": [b'{"a":[1]}']}, "must be str, int, float or bool"),
    ],
)
def test_a_table_that_no_message_could_hold_is_refused(stream, table, complaint):
    with pytest.raises(InvalidMessage, match=complaint):
        stream.append(pa.table(table))
    assert stream.next_offset == 0


def test_only_tables_are_appended(stream):
    with pytest.raises(InvalidMessage, match=r"must be an Arrow table.* not list"):
        stream.append([{"a": 1}])


def test_a_header_may_be_a_number_in_one_row_and_text_in_another(stream):
    stream.append(pa.table({"h.s.a": ["x", None, None], "h.i.a": [None, 1, None]}))
    assert headers_of(stream) == [{"a": "x"}, {"a": 1}, {}]


def test_dictionaries_of_any_width_and_with_nulls_inside_are_accepted(stream):
    words = pa.array(["a", None, "b"])
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None], pa.int16()), words)
    large = pa.array(["x", "y", "x", "x"], pa.large_string()).dictionary_encode()
    stream.append(pa.table({"h": array, "l": large}))
    assert headers_of(stream) == [
        {"h": "a", "l": "x"},
        {"l": "y"},
        {"h": "b", "l": "x"},
        {"l": "x"},
    ]


def test_a_table_is_cut_by_bytes_and_rows(tmp_path):
    with Stream.create(tmp_path / "s", chunk_messages=10, chunk_bytes=10_000) as stream:
        stream.append(pa.table({"payload": [b"x" * 1000] * 25, "n": range(25)}))
        stream.append(pa.table({"n": range(100)}))
        from headgate.streams.read.catalog import SegmentCatalog

        catalog = SegmentCatalog(stream.path)
        segment = catalog.open(catalog.files[0])
        counts = [segment.metadata(i).count for i in range(len(segment))]
    assert sum(counts) == 125
    assert max(counts) == 40
    assert counts[0] < 10


def test_a_table_of_many_tiny_batches_makes_no_tiny_chunks(stream):
    tiny = pa.Table.from_batches(
        [pa.RecordBatch.from_pydict({"n": [i], "s": [f"s{i}"]}) for i in range(300)]
    )
    stream.append(tiny)
    assert [h["n"] for h in headers_of(stream)] == list(range(300))
    from headgate.streams.read.catalog import SegmentCatalog

    catalog = SegmentCatalog(stream.path)
    assert len(catalog.open(catalog.files[0])) == 1


def test_a_cut_keeps_only_the_words_it_needs():
    words = pa.array([f"w{i}" for i in range(100)])
    codes = pa.array([i % 100 if i % 7 else None for i in range(1000)], pa.int32())
    arrays = read_table(
        pa.RecordBatch.from_arrays([pa.DictionaryArray.from_arrays(codes, words)], ["w"]), NOW
    )
    part = cut_rows(arrays, 100, 40)["h.s.w"]
    assert part.to_pylist() == [f"w{i % 100}" if i % 7 else None for i in range(100, 140)]
    assert not pa.types.is_dictionary(part.type)  # most are different
    repeated = read_table(
        pa.RecordBatch.from_arrays([pa.array(["a", "b"] * 50 + ["c"] * 100)], ["w"]), NOW
    )
    part = cut_rows(repeated, 90, 100)["h.s.w"]
    assert part.to_pylist() == ["a", "b"] * 5 + ["c"] * 90
    assert len(cut_rows(repeated, 100, 50)["h.s.w"].dictionary) == 1


def test_a_cut_leaves_out_columns_that_are_empty_in_it():
    table = pa.RecordBatch.from_pydict({"a": [None] * 5 + [1] * 5})
    assert "h.i.a" not in cut_rows(read_table(table, NOW), 0, 5)
    assert "h.i.a" in cut_rows(read_table(table, NOW), 0, 6)


def test_more_columns_than_the_cap_go_to_the_overflow(stream):
    stream.append(pa.table({f"h{i}": np.arange(3) + i for i in range(200)}))
    assert headers_of(stream) == [{f"h{i}": i + row for i in range(200)} for row in range(3)]


def test_restricted_values_cut_a_table(tmp_path):
    with Stream.create(tmp_path / "s", restrict_same_values={"r": ["a", "b"]}) as stream:
        stream.append(pa.table({"r": ["a", "a", "b", "c", "d", "a"]}))
        from headgate.streams.read.catalog import SegmentCatalog

        catalog = SegmentCatalog(stream.path)
        segment = catalog.open(catalog.files[0])
        found = [
            (segment.metadata(i).count, dict(segment.metadata(i).properties))
            for i in range(len(segment))
        ]
    assert found == [(2, {"r": "a"}), (1, {"r": "b"}), (2, {}), (1, {"r": "a"})]

"""Arrow tables become messages, under the rules of messages."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from headgate.columns.tables import ENOUGH_BYTES, cut_rows, read_table, split_table
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
        ({"payload": [1]}, "cannot be stored as binary"),
        ({"topic": [["a"]]}, "cannot be stored as string"),
        ({"timestamp": pa.array([dt.date(2026, 1, 1)])}, "is not a timestamp"),
        ({"timestamp": pa.array([dt.date(2026, 1, 1)], pa.date64())}, "is not a timestamp"),
        ({"timestamp": pa.array([1], pa.timestamp("ns"))}, "cannot be stored as timestamp"),
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


def test_a_dictionary_of_timestamps_holds_timestamps(stream):
    seconds = pa.array([1, 2, 1], pa.timestamp("s"))
    stream.append(pa.table({"timestamp": seconds.dictionary_encode()}))
    assert [m.timestamp for m in stream.consume()] == [1_000_000, 2_000_000, 1_000_000]


def test_a_dictionary_whose_only_word_is_null_is_a_column_of_nulls(stream):
    nothing = pa.DictionaryArray.from_arrays(
        pa.array([0, 0], pa.int8()), pa.array([None], "string")
    )
    stream.append(pa.table({"topic": nothing, "key": nothing, "h": nothing}))
    assert [(m.topic, m.key, dict(m.headers)) for m in stream.consume()] == [("", None, {})] * 2


def test_words_that_no_row_uses_are_not_judged(stream):
    table = pa.table({"topic": ["a", "x" * 256], "h": ["b", "c\0d"]})
    encoded = pa.table({name: table[name].dictionary_encode() for name in table.column_names})
    stream.append(encoded.slice(0, 1))
    assert [(m.topic, dict(m.headers)) for m in stream.consume()] == [("a", {"h": "b"})]


@pytest.mark.parametrize("width", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()])
def test_dictionaries_may_have_codes_without_a_sign(stream, width):
    codes = pa.array([0, 1, None, 1], width)
    coded = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b"]))
    stream.append(pa.table({"topic": coded, "h": coded}))
    found = [(m.topic, m.headers.get("h")) for m in stream.consume()]
    assert found == [("a", "a"), ("b", "b"), ("", None), ("b", "b")]


def test_small_and_large_batches_of_a_reader_get_one_schema(stream):
    def batch(rows):
        words = pa.array([f"w{i % 3}" for i in range(rows)]).dictionary_encode()
        codes = words.indices.cast(pa.int8())
        return pa.record_batch(
            [pa.DictionaryArray.from_arrays(codes, words.dictionary), pa.array(range(rows))],
            schema=pa.schema(
                [
                    pa.field("w", pa.dictionary(pa.int8(), pa.string())),
                    pa.field("n", pa.int64(), nullable=False),
                ]
            ),
        )

    batches = [batch(rows) for rows in (10_000, 100, 100)]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    assert stream.deposit("p", 1, reader)
    found = [(m.headers["w"], m.headers["n"]) for m in stream.consume()]
    assert found == [(f"w{i % 3}", i) for rows in (10_000, 100, 100) for i in range(rows)]


def test_batches_are_joined_until_they_have_enough_bytes():
    batch = pa.record_batch({"payload": [bytes(1 << 20)]})
    read = []
    reader = pa.RecordBatchReader.from_batches(
        batch.schema, (read.append(i) or batch for i in range(40))
    )
    first = next(split_table(reader))
    assert ENOUGH_BYTES <= first.nbytes < 2 * ENOUGH_BYTES
    assert len(read) < 12


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


DISTINCT = [f"order-{i}" for i in range(5000)]


def column_of(texts, name="order"):
    array = texts if isinstance(texts, pa.Array) else pa.array(texts)
    return read_table(pa.RecordBatch.from_arrays([array], [name]), NOW)[f"h.s.{name}"]


@pytest.mark.parametrize(
    ("texts", "is_coded"),
    [
        (DISTINCT, False),
        ([text if i % 3 else None for i, text in enumerate(DISTINCT)], False),
        (DISTINCT[:100], True),  # so few that a dictionary costs nothing
        ([DISTINCT[i % 1000] for i in range(5000)], True),
        (DISTINCT[:2500] + ["same"] * 2500, True),
        ([DISTINCT[i // 2] for i in range(5000)], True),  # sorted: equal ones are adjacent
        ([text if i % 50 == 0 else None for i, text in enumerate(DISTINCT)], True),
    ],
)
def test_only_texts_that_may_repeat_get_a_dictionary(texts, is_coded):
    column = column_of(texts)
    assert pa.types.is_dictionary(column.type) == is_coded
    assert column.to_pylist() == texts


@pytest.mark.parametrize("at", [1, 2345, 4998])
@pytest.mark.parametrize(
    ("bad", "problem"), [(b"a\0b", "cannot hold NUL"), (b"\xff", "is not valid UTF-8")]
)
def test_texts_without_a_dictionary_are_checked(bad, problem, at):
    raw = pa.array([bad if i == at else text.encode() for i, text in enumerate(DISTINCT)])
    array = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    with pytest.raises(InvalidMessage, match=problem):
        column_of(array)
    # Rows outside of a slice are not judged.
    assert column_of(array.slice(at + 1)).to_pylist() == DISTINCT[at + 1 :]
    assert column_of(array.slice(0, at)).to_pylist() == DISTINCT[:at]


def test_bytes_behind_a_null_are_not_judged_and_not_stored(stream):
    texts = [f"order-{i}" if i != 7 else "se\0cret" for i in range(5000)]
    _, ends, content = pa.array(texts).buffers()
    valid = pa.array([i != 7 for i in range(5000)]).buffers()[1]
    array = pa.Array.from_buffers(pa.string(), 5000, [valid, ends, content])
    stream.append(pa.table({"order": array}))
    assert [h.get("order") for h in headers_of(stream)] == array.to_pylist()
    assert not any(b"cret" in path.read_bytes() for path in stream.path.glob("*.log"))


@pytest.mark.parametrize("name", ["topic", "key", "id", "filter_value"])
def test_fields_without_a_dictionary_are_limited_in_length_and_read_back(stream, name):
    stream.append(pa.table({name: DISTINCT}))
    assert [getattr(message, name) for message in stream.consume()] == DISTINCT
    with pytest.raises(InvalidMessage, match="longer than 255 bytes"):
        stream.append(pa.table({name: [*DISTINCT, "x" * 256]}))

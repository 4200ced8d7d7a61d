"""Producers: what is accepted, confirmed, refused, and stored only once."""

import itertools
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta

import pyarrow as pa
import pytest

from headgate.errors import InvalidMessage, StreamClosed, StreamError, StreamLocked
from headgate.message import OPAQUE, Message
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.stream import Stream
from headgate.streams.write import pending, writer
from headgate.streams.write import producer as producers

LATER = timedelta(hours=1)  # a linger no test waits for


def payloads(stream):
    return [message.payload for message in stream.consume()]


def chunk_counts(stream):
    catalog = SegmentCatalog(stream.path)
    segments = [catalog.open(file) for file in catalog.files]
    return [segment.metadata(i).count for segment in segments for i in range(len(segment))]


def test_a_message_is_consumed_as_it_was_published(stream):
    message = Message(
        b"\x00\xff", "a.b", {"s": "é\n", "i": -(2**63), "f": -0.0, "b": False, "o": OPAQUE}, 9, 12, "id",
        "EU", "key", correlation_id="c", group_sequence=3,
    )  # fmt: skip
    with stream.producer() as producer:
        producer.publish(message)
    assert list(stream.consume()) == [message]


def test_a_payload_is_published_with_the_fields_of_its_message(stream):
    fields = {"topic": "a.b", "headers": {"n": 1}, "priority": 9, "timestamp": 12, "id": "id"}
    fields |= {"filter_value": "EU", "key": "key", "correlation_id": "c"}
    with stream.producer() as producer:
        assert producer.publish(b"1", **fields)
        assert producer.publish(b"2")
        assert producer.publish(bytearray(b"3"), topic="t")
        assert producer.publish_many([b"4", Message(b"5", "t")]) == 2
    first, second, *others = stream.consume()
    assert first == Message(b"1", **fields)
    assert (second.payload, second.topic, second.headers) == (b"2", "", {})
    assert [(m.payload, m.topic) for m in others] == [(b"3", "t"), (b"4", ""), (b"5", "t")]


def test_fields_beside_a_message_are_refused(stream):
    with stream.producer() as producer:
        with pytest.raises(
            InvalidMessage, match="topic: a Message has fields of its own"
        ) as raised:
            producer.publish(Message(b"1"), topic="t")
        assert raised.value.field == "topic"
        with pytest.raises(InvalidMessage, match="payload: must be bytes, not str"):
            producer.publish("text")
        with pytest.raises(TypeError, match="tpic"):
            producer.publish(b"1", tpic="t")
        with pytest.raises(InvalidMessage, match="payload: must be bytes, not str"):
            producer.publish_many([b"1", "text"])
    assert payloads(stream) == []


def test_flush_confirms_and_close_flushes(stream):
    producer = stream.producer()
    producer.publish(Message(b"1"))
    assert payloads(stream) == []
    producer.flush()
    assert payloads(stream) == [b"1"]
    producer.publish(Message(b"2"))
    producer.close()
    producer.close()
    assert payloads(stream) == [b"1", b"2"]


def test_messages_wait_for_each_other_and_share_a_chunk(stream):
    with stream.producer() as one, stream.producer() as other:
        one.publish(Message(b"1"))
        other.publish(Message(b"2"))
        one.publish(Message(b"3"))
    assert payloads(stream) == [b"1", b"2", b"3"]
    assert chunk_counts(stream) == [3]


def test_a_message_is_committed_when_it_has_lingered(tmp_path):
    with Stream.create(tmp_path / "s", linger=timedelta(milliseconds=1)) as stream:
        consumer = stream.consume(follow=True, timeout=timedelta(seconds=20))
        producer = stream.producer()
        for i in range(50):  # each finds the committer asleep, or about to be
            producer.publish(Message(b"%d" % i))
            assert next(consumer).payload == b"%d" % i
        consumer.close()


def test_a_full_chunk_is_written_at_once(tmp_path):
    with Stream.create(tmp_path / "s", linger=LATER, chunk_messages=3, chunk_bytes=100) as stream:
        producer = stream.producer()
        for i in range(7):
            producer.publish(Message(b"%d" % i))
        assert chunk_counts(stream) == [3, 3]
        producer.publish(Message(b"x" * 200))
        assert chunk_counts(stream) == [3, 3, 1, 1]
        producer.publish_many([Message(b"y" * 60)] * 5)
        producer.flush()
        assert chunk_counts(stream)[4:] == [1] * 5


def test_a_batch_whose_columns_are_mostly_null_is_cut_into_fewer_chunks(tmp_path):
    kinds = (lambda i: i, lambda i: float(i), lambda i: f"v{i % 3}", lambda i: f"value {i}")
    rows = [{f"n{i % 20}": kinds[i % 4](i)} for i in range(1000)]
    counts = {}
    for nbytes in (10_000, 40_000):
        with Stream.create(tmp_path / f"{nbytes}", chunk_bytes=nbytes) as stream:
            with stream.producer() as producer:
                producer.publish_many([Message(headers=row) for row in rows])
            counts[nbytes] = max(chunk_counts(stream))
            assert [dict(message.headers) for message in stream.consume()] == rows
    assert counts == {10_000: 250, 40_000: 1000}


def test_a_batch_with_huge_headers_is_cut_into_more_chunks(tmp_path):
    with Stream.create(tmp_path / "s", chunk_bytes=10_000) as stream:
        with stream.producer("p") as producer:
            producer.publish_many(Message(b"", headers={"x": f"{i}" * 5000}) for i in range(10))
        assert max(chunk_counts(stream)) <= 4
        assert [message.headers["x"][0] for message in stream.consume()] == [
            str(i) for i in range(10)
        ]


def test_a_message_of_64_megabytes_is_stored(tmp_path):
    large = bytes(64 << 20)
    with Stream.create(tmp_path / "s", fsync="never") as stream:
        with stream.producer() as producer:
            producer.publish(Message(b"before"))
            producer.publish(Message(large))
            producer.publish(Message(b"after"))
        assert [len(payload) for payload in payloads(stream)] == [6, 64 << 20, 5]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Message("text"), "payload"),
        (Message(None), "payload"),
        (Message(b"", topic=None), "topic"),
        (Message(b"", topic="x" * 256), "topic"),
        (Message(b"", topic="\0"), "topic"),
        (Message(b"", priority=256), "priority"),
        (Message(b"", priority=False), "priority"),
        (Message(b"", timestamp=1.5), "timestamp"),
        (Message(b"", id="\ud800"), "id"),
        (Message(b"", headers={"a": float("nan")}), "header 'a'"),
        (Message(b"", headers={"a": float("inf")}), "header 'a'"),
        (Message(b"", headers={"a": 2**63}), "header 'a'"),
        (Message(b"", headers={"a": "\0"}), "header 'a'"),
        (Message(b"", headers={"a": "\ud800"}), "header 'a'"),
        (Message(b"", headers={"a": [1]}), "header 'a'"),
        (Message(b"", headers={"a\n": 1}), "header 'a\\n'"),
        (Message(b"", headers={1: 1}), "header 1"),
        (Message(b"", properties={"colour": "red"}), "property 'colour'"),
    ],
)
def test_an_invalid_message_is_refused_when_it_is_published(stream, message, field):
    producer = stream.producer()
    producer.publish(
        Message(b"known", headers={"a": 1, "b": "x"})
    )  # so that the names are known to be good
    with pytest.raises(InvalidMessage) as caught:
        producer.publish(message)
    assert caught.value.field == field
    for filler in (3, 5000):
        with pytest.raises(InvalidMessage) as caught:
            producer.publish_many([*[Message(b"fine")] * filler, message])
        assert caught.value.field == field
    producer.flush()
    assert payloads(stream) == [b"known"]  # of publish_many, all or none


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        2**30,
        -(2**30),
        2**63 - 1,
        -(2**63),
        0.5,
        -0.0,
        1e300,
        True,
        "",
        "é",
        "\n",
        None,
        OPAQUE,
    ],
)
def test_a_value_is_stored_whether_or_not_its_name_is_known(stream, value):
    message = Message(b"x", "a.b", {"h": value})
    with stream.producer() as producer:
        assert producer.publish(message)
        assert producer.publish(message)
    found = [m.headers.get("h") for m in stream.consume()]
    assert found == [value, value]
    assert {type(one) for one in found} == {type(value)}


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, float("nan"), float("-inf"), "\0", "\ud800", b"x", [1]]
)
def test_an_invalid_value_of_a_known_header_is_refused_when_it_is_published(stream, value):
    with stream.producer() as producer:
        for good in ("text", 7, 0.5, True):
            producer.publish(Message(b"x", "a.b", {"h": good}))
        with pytest.raises(InvalidMessage) as refused:
            producer.publish(Message(b"x", "a.b", {"h": value}))
    assert "'h'" in str(refused.value)
    assert stream.next_offset == 4


def test_payloads_fill_a_chunk_by_their_bytes_too(tmp_path):
    with (
        Stream.create(
            tmp_path / "s", linger=LATER, chunk_messages=100, chunk_bytes=100_000
        ) as stream,
        stream.producer() as producer,
    ):
        for _ in range(11):
            producer.publish(Message(b"x" * 10_000, "a.b"))
        assert stream.next_offset == 10


@pytest.mark.parametrize("name", [None, "p"])
def test_headers_and_payloads_can_be_reused_as_soon_as_a_message_is_published(stream, name):
    headers, buffer = {}, bytearray(1)
    with stream.producer(name) as producer:
        for i in range(5):
            headers["n"], buffer[0] = i, i
            producer.publish(Message(buffer, headers=headers))
            headers["n"], buffer[0] = 10 + i, 10 + i
            producer.publish_many([Message(memoryview(buffer), headers=headers)])
            headers.clear()
    stored = [(message.payload, message.headers) for message in stream.consume()]
    expected = [n for i in range(5) for n in (i, 10 + i)]
    assert stored == [(bytes([n]), {"n": n}) for n in expected]


def test_a_message_changed_after_it_was_published_does_not_block_the_others(stream):
    changed = Message(b"2", headers={"a": 1})
    producer = stream.producer()
    producer.publish(Message(b"1"))
    producer.publish(changed)
    producer.publish(Message(b"3"))
    changed.headers["a"] = 2**70
    with pytest.raises(InvalidMessage):
        producer.flush()
    producer.flush()
    assert payloads(stream) == [b"1", b"3"]


def test_a_message_that_becomes_invalid_while_it_lingers_is_raised_by_the_next_flush(stream):
    changed = Message(b"2", headers={"a": 1})
    producer = stream.producer()
    producer.publish(Message(b"1"))
    producer.publish(changed)
    changed.headers["a"] = 2**70
    stream._writer.commit_in_background()  # what the committer does
    with pytest.raises(InvalidMessage, match="header 'a'"):
        producer.flush()
    producer.flush()
    assert payloads(stream) == [b"1"]


@pytest.mark.parametrize("name", [None, "p"])
def test_usual_fields_and_values_need_no_validation_of_the_single_message(
    stream, monkeypatch, name
):
    validated = []
    monkeypatch.setattr(producers, "validate", validated.append)
    fields = [{}, {"key": "k"}, {"timestamp": 7}, {"id": "i", "priority": 3, "filter_value": "f"}]
    sent = [Message(b"x", "a.b", {"n": i}, **more) for i in range(10) for more in fields]
    with stream.producer(name) as producer:
        for message in sent:
            producer.publish(message)
        assert validated == []
        sent.append(Message(b"x", "a.b", {"n": "two\nlines"}))
        producer.publish(sent[-1])
    assert validated == sent[-1:]
    found = list(stream.consume())
    assert [m.headers for m in found] == [m.headers for m in sent]
    assert [(m.key, m.id, m.priority, m.filter_value) for m in found] == [
        (m.key, m.id, m.priority, m.filter_value) for m in sent
    ]


# ---- names and publishing ids ------------------------------------------------------------------------


def test_a_publishing_id_is_stored_once(stream):
    with stream.producer("p") as producer:
        assert producer.last_publishing_id is None
        assert producer.publish(Message(b"a"))
        assert producer.publish(Message(b"b"), publishing_id=10)
        assert not producer.publish(Message(b"again"), publishing_id=10)
        assert not producer.publish(Message(b"older"), publishing_id=3)
        assert producer.publish(Message(b"c"))
        assert (producer.last_publishing_id, producer.confirmed_publishing_id) == (11, None)
        producer.flush()
        assert producer.confirmed_publishing_id == 11
    assert payloads(stream) == [b"a", b"b", b"c"]


def test_of_many_repeated_messages_only_the_new_ones_are_stored(stream):
    messages = [Message(b"%d" % i) for i in range(10_000)]
    with stream.producer("p") as producer:
        assert producer.publish_many(messages[:6000], first_publishing_id=0) == 6000
        assert producer.publish_many(messages[1000:], first_publishing_id=1000) == 4000
        assert producer.publish_many(messages[9990:], first_publishing_id=9990) == 0
    assert payloads(stream) == [message.payload for message in messages]


def test_publishing_ids_belong_to_a_name_and_unnamed_producers_have_none(stream):
    with stream.producer("a") as a, stream.producer("b") as b, stream.producer() as unnamed:
        assert a.publish(Message(b"1"), publishing_id=5)
        assert b.publish(Message(b"2"), publishing_id=5)
        with pytest.raises(InvalidMessage, match="only a named producer"):
            unnamed.publish(Message(b"3"), publishing_id=5)
        with pytest.raises(StreamError, match="there is a producer 'a' already"):
            stream.producer("a")


@pytest.mark.parametrize("name", ["", "a\n", "x" * 256, 7])
def test_an_invalid_producer_name_is_refused(stream, name):
    with pytest.raises(InvalidMessage):
        stream.producer(name)


@pytest.mark.parametrize("publishing_id", [-1, 2**63, 1.0, True])
def test_an_invalid_publishing_id_is_refused(stream, publishing_id):
    with stream.producer("p") as producer, pytest.raises(InvalidMessage, match="publishing_id"):
        producer.publish(Message(b""), publishing_id=publishing_id)


def test_publishing_ids_survive_sealing_and_trimming(tmp_path):
    path = tmp_path / "s"
    with Stream.create(path) as stream, stream.producer("p") as producer:
        producer.publish(Message(b"1"), publishing_id=41)
    for change in ("reopened", "sealed", "trimmed", "sealed again"):
        with Stream.open(path) as stream:
            if "sealed" in change:
                stream.seal(all=True)
            if change == "trimmed":
                assert stream.trim(before_offset=10**9)
                assert payloads(stream) == [b"other"]  # the newest segment stays
            with stream.producer("p") as producer:
                assert producer.last_publishing_id == 41, change
                assert not producer.publish(Message(b"again"), publishing_id=41)
            with stream.producer("q") as producer:
                producer.publish(Message(b"other"))


def test_threads_share_a_named_producer_without_losing_a_message(stream):
    producer = stream.producer("p")

    def publish():
        for _ in range(500):
            assert producer.publish(Message(b"x"))
        assert producer.publish_many([Message(b"y")] * 500) == 500

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.close()
    assert len(payloads(stream)) == 4000
    assert stream.producer("p").last_publishing_id == 3999


def test_producers_that_publish_at_once_keep_their_own_ids(tmp_path):
    def publish(producer):
        for number in range(600):
            given = number if producer.name and number % 5 == 4 else None
            assert producer.publish(b"%d" % number, key=producer.name, publishing_id=given)
            if producer.name and number % 7 == 0:
                assert producer.last_publishing_id == number

    with Stream.create(tmp_path / "s", linger=timedelta(0), chunk_messages=50) as stream:
        producers = [stream.producer(name) for name in ("p", "q", None)]
        threads = [threading.Thread(target=publish, args=(producer,)) for producer in producers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for producer in producers:
            producer.close()
        found = list(stream.consume())
        for name in ("p", "q", None):
            assert [int(m.payload) for m in found if m.key == name] == list(range(600))
    with Stream.open(tmp_path / "s") as stream:
        for name in ("p", "q"):
            with stream.producer(name) as producer:
                assert producer.last_publishing_id == 599
                assert not producer.publish(b"again", publishing_id=599)


def test_a_message_is_refused_when_the_stream_is_closed_while_it_is_published(
    tmp_path, monkeypatch
):
    stream = Stream.create(tmp_path / "s")
    producer = stream.producer("p")
    # As another thread may, after the producer was found to be open.
    monkeypatch.setattr(producers, "check_publishing_id", lambda publishing_id: stream.close())
    with pytest.raises(StreamClosed):
        producer.publish(b"", publishing_id=1)


@pytest.mark.parametrize("number", [3, 9])  # one is pending, the other is written at once
def test_an_interrupted_batch_can_be_published_again_under_its_ids(tmp_path, number):
    with Stream.create(tmp_path / "s", chunk_messages=4, linger=LATER) as stream:
        producer = stream.producer("p")
        for line in itertools.count():
            batch = [b"%d" % line] * number
            try:
                with interrupt_at(line):
                    producer.publish_many(batch, first_publishing_id=100 * line)
                break
            except KeyboardInterrupt:
                producer.publish_many(batch, first_publishing_id=100 * line)
        producer.flush()
        assert line > 20
        assert Counter(payloads(stream)) == {b"%d" % i: number for i in range(line + 1)}


@contextmanager
def interrupt_at(number):
    """Raise KeyboardInterrupt at this line of those that accept messages and take them out."""
    lines = itertools.count()

    def trace(frame, event, arg):
        if frame.f_code.co_filename not in (pending.__file__, writer.__file__):
            return None
        if event == "line" and next(lines) == number:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def test_a_batch_is_written_behind_what_another_thread_published_under_its_name(
    tmp_path, monkeypatch
):
    with Stream.create(tmp_path / "s", chunk_messages=4, linger=LATER) as stream:
        producer = stream.producer("p")
        publish_between(monkeypatch, "commit", lambda: producer.publish(b"0"))
        producer.publish_many([b"1", b"2", b"3", b"4"])
        producer.flush()
        assert payloads(stream) == [b"0", b"1", b"2", b"3", b"4"]
    with Stream.open(tmp_path / "s") as stream, stream.producer("p") as producer:
        assert producer.last_publishing_id == 4


def test_the_highest_id_of_a_log_counts_in_whatever_order_they_were_written(tmp_path, monkeypatch):
    with Stream.create(tmp_path / "s", linger=LATER) as stream:
        producer = stream.producer("p")
        publish_between(monkeypatch, "_make_room", lambda: producer.publish(b"", publishing_id=5))
        assert stream.deposit("p", 6, pa.table({"payload": [b"deposit"]}))
    with Stream.open(tmp_path / "s") as stream, stream.producer("p") as producer:
        assert producer.last_publishing_id == 6
        assert len(payloads(stream)) == 2


def publish_between(monkeypatch, name, publish):
    """Have another thread publish when the writer first returns from this method."""
    method = getattr(writer.Writer, name)

    def call_and_publish(*args):
        method(*args)
        monkeypatch.setattr(writer.Writer, name, method)
        thread = threading.Thread(target=publish)
        thread.start()
        thread.join()

    monkeypatch.setattr(writer.Writer, name, call_and_publish)


# ---- filter values -----------------------------------------------------------------------------------


def test_a_producer_computes_filter_values(stream):
    with stream.producer(filter_value=lambda message: message.headers.get("region")) as producer:
        producer.publish(Message(b"1", headers={"region": "AMER"}))
        producer.publish(Message(b"2"))
        producer.publish_many(
            [Message(b"3", headers={"region": "EMEA"}), Message(b"4", filter_value="own")]
        )
    assert [message.filter_value for message in stream.consume()] == ["AMER", None, "EMEA", "own"]


def test_a_filter_value_that_is_no_text_is_refused(stream):
    producer = stream.producer(filter_value=lambda message: 5)
    with pytest.raises(InvalidMessage, match="filter_value"):
        producer.publish(Message(b""))


# ---- one writer --------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_told_the_purpose_of_the_first(stream):
    stream.producer("pos-1")
    with Stream.open(stream.path) as second, pytest.raises(StreamLocked) as caught:
        second.producer("pos-2")
    holder = caught.value.holder
    assert holder["purpose"] == "producer pos-1"
    assert {"pid", "host", "since"} <= holder.keys()
    assert "producer pos-1" in str(caught.value)
    assert str(holder["pid"]) in str(caught.value)


def test_reading_needs_no_lock(stream):
    with stream.producer() as producer:
        producer.publish(Message(b"1"))
        producer.flush()
        with Stream.open(stream.path) as reader:
            assert payloads(reader) == [b"1"]
            assert reader.next_offset == 1


def test_the_lock_is_free_when_the_stream_is_closed(tmp_path):
    first = Stream.create(tmp_path / "s")
    producer = first.producer()
    producer.publish(Message(b"1"))
    first.close()
    first.close()
    with Stream.open(tmp_path / "s") as second, second.producer() as other:
        other.publish(Message(b"2"))
    assert payloads(Stream.open(tmp_path / "s")) == [b"1", b"2"]
    with pytest.raises(StreamClosed):
        producer.publish(Message(b"3"))
    with pytest.raises(StreamClosed):
        first.producer()


# ---- fields that most messages do without -------------------------------------------------------------


@pytest.mark.parametrize("name", [None, "p"])
@pytest.mark.parametrize(
    "fields",
    [
        {"timestamp": 5},
        {"key": "k"},
        {"key": "k" * 200},
        {"id": "i"},
        {"filter_value": "f"},
        {"priority": 3},
        {"properties": {"user_id": "u"}},
        {"timestamp": 5, "key": "k", "id": "i", "filter_value": "f", "priority": 3},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_a_field_that_only_some_messages_have_is_stored_in_every_place(tmp_path, fields, name):
    plain, special = Message(b"plain"), Message(b"special", **fields)
    with Stream.create(tmp_path / "s", linger=timedelta(hours=1), chunk_messages=3) as stream:
        with stream.producer(name) as producer:
            for message in (plain, plain, special, plain, special, plain, plain, plain, plain):
                producer.publish(message)
            producer.publish_many([plain, special])
            producer.publish_many([special, plain, plain, plain, plain])
        with Stream.open(tmp_path / "s") as other:
            found = list(other.consume())
    assert len(found) == 16
    for message in found:
        sent = special if message.payload == b"special" else plain
        for field in ("key", "id", "filter_value", "priority", "properties"):
            assert getattr(message, field) == getattr(sent, field), field
        if sent.timestamp is not None:
            assert message.timestamp == sent.timestamp
    assert sum(message.payload == b"special" for message in found) == 4

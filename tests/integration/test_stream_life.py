"""Streams as a whole: made, opened, rolled, changed, deleted."""

from datetime import timedelta

import pyarrow as pa
import pytest

from headgate.errors import (
    StreamClosed,
    StreamExists,
    StreamLocked,
    StreamNotFound,
    StreamWriteError,
)
from headgate.message import Message
from headgate.streams.format import segment_files
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.stream import Stream


def publish(stream, *payloads, **headers):
    with stream.producer() as producer:
        for payload in payloads:
            producer.publish(Message(payload, headers=headers))


def payloads(stream, *arguments):
    return [message.payload for message in stream.consume(*arguments)]


def test_an_existing_stream_cannot_be_created_again(tmp_path):
    Stream.create(tmp_path / "deep" / "s").close()
    with pytest.raises(StreamExists, match="already; open it"):
        Stream.create(tmp_path / "deep" / "s")


def test_a_directory_with_other_files_does_not_become_a_stream(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(StreamExists, match=r"letter\.txt"):
        Stream.create(tmp_path)


def test_the_rest_of_a_deleted_stream_does_not_become_part_of_a_new_one(tmp_path):
    with Stream.create(tmp_path / "s") as stream:
        publish(stream, b"old")
    (tmp_path / "s" / "stream.json").unlink()  # where a delete that was killed begins
    with pytest.raises(StreamExists, match=r"\.idx"):
        Stream.create(tmp_path / "s")


def test_a_directory_without_a_stream_cannot_be_opened_or_deleted(tmp_path):
    for attempt in (Stream.open, Stream.delete):
        with pytest.raises(StreamNotFound):
            attempt(tmp_path)
        with pytest.raises(StreamNotFound):
            attempt(tmp_path / "nowhere")
    assert tmp_path.exists()


def test_a_path_where_no_stream_can_be_created_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StreamWriteError, match=r"cannot create .*file"):
        Stream.create(tmp_path / "file" / "s")
    with pytest.raises(StreamNotFound, match="a stream is a directory, and this is a file"):
        Stream.open(tmp_path / "file")


def test_a_stream_is_deleted_unless_it_is_being_written(tmp_path):
    stream = Stream.create(tmp_path / "s")
    stream.producer("busy")
    with pytest.raises(StreamLocked, match="busy"):
        Stream.delete(tmp_path / "s")
    stream.close()
    Stream.delete(tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_closed_stream_refuses_every_use(tmp_path):
    stream = Stream.create(tmp_path / "s")
    stream.close()
    for attempt in (stream.producer, stream.consume, stream.scan, stream.seal):
        with pytest.raises(StreamClosed):
            attempt()


def test_an_empty_stream_reads_as_nothing(tmp_path):
    with Stream.create(tmp_path / "s") as stream:
        assert payloads(stream) == []
        assert (stream.first_offset, stream.next_offset) == (0, 0)
        assert stream.seal(all=True) == []


def test_segments_roll_at_their_size_and_offsets_go_on(tmp_path):
    with Stream.create(tmp_path / "s", segment_bytes=20_000, chunk_messages=10) as stream:
        publish(stream, *[b"x" * 500] * 200)
        segments = segment_files(stream.path)
        assert len(segments) > 4
        catalog = SegmentCatalog(stream.path)
        opened = [catalog.open(file) for file in segments]
        assert [s.next_offset for s in opened[:-1]] == [s.first_offset for s in opened[1:]]
        assert all(file.path.stat().st_size < 20_000 for file in segments)
        offsets = [o for batch in stream.scan() for o in batch.column("offset").to_pylist()]
        assert offsets == list(range(200))


def test_a_message_larger_than_a_segment_has_one_of_its_own(tmp_path):
    with Stream.create(tmp_path / "s", segment_bytes=10_000) as stream:
        publish(stream, b"small", b"x" * 50_000, b"small")
        assert [len(p) for p in payloads(stream)] == [5, 50_000, 5]


def test_full_segments_are_sealed_and_the_one_being_written_is_not(tmp_path):
    with Stream.create(
        tmp_path / "s", segment_bytes=20_000, indexed=["n"], chunk_messages=10
    ) as stream:
        with stream.producer() as producer:
            for i in range(100):
                producer.publish(Message(b"x" * 500, headers={"n": i % 5}))
            producer.flush()
            hot = len(segment_files(stream.path))
            assert len(stream.seal()) == hot - 1
            assert [f.sealed for f in segment_files(stream.path)] == [True] * (hot - 1) + [False]
            producer.publish(Message(b"after"))
        assert len(payloads(stream)) == 101
        assert len(payloads(stream, "n = 3")) == 20
        stream.seal(all=True)
        assert all(f.sealed for f in segment_files(stream.path)[:-1])
        assert len(payloads(stream)) == 101


def test_indexed_headers_can_be_changed_between_writers(tmp_path):
    path = tmp_path / "s"
    with Stream.create(path, indexed=["a"]) as stream:
        publish(stream, b"1", a="x", b="y")
    with Stream.open(path) as stream:
        stream.reconfigure(indexed=["b"], max_age=timedelta(days=1))
        assert stream.options.indexed == ("b",)
        publish(stream, b"2", a="x", b="y")
        for query in ("a = 'x'", "b = 'y'"):
            assert payloads(stream, query) == [b"1", b"2"]
        for query in ("a = 'z'", "b = 'z'"):
            scan = stream.scan(query)
            assert list(scan) == []
            assert scan.stats.chunks_none == 1  # each header is covered in one of the two chunks
    assert Stream.open(path).options.max_age == timedelta(days=1)


@pytest.mark.parametrize(
    ("values", "size", "rate"), [(10, 16, 0.02), (30, 16, 0.14), (200, 128, 0.10)]
)
def test_the_error_rates_of_seed_002_hold_for_the_chunks_of_a_stream(tmp_path, values, size, rate):
    stream = Stream.create(tmp_path / "s", filter_size=size, fsync="never")
    with stream, stream.producer() as producer:
        for chunk in range(150):
            producer.publish_many(Message(b"", filter_value=f"{chunk}-{i}") for i in range(values))
            producer.flush()
        passed = 0
        for i in range(60):
            scan = stream.scan(filter_values=[f"absent-{i}"])
            assert list(scan) == []
            assert scan.stats.chunks_none + scan.stats.chunks_some == 150
            passed += scan.stats.chunks_some
        assert passed / (150 * 60) == pytest.approx(rate, abs=0.015)


def test_retention_deletes_the_oldest_segments_while_writing(tmp_path):
    with Stream.create(
        tmp_path / "s", segment_bytes=20_000, max_bytes=50_000, chunk_messages=10
    ) as stream:
        publish(stream, *[b"x" * 500] * 400)
    # The committer looks after each roll; closing does not wait for it, so look once more.
    with Stream.open(tmp_path / "s") as stream:
        stream.trim()
        assert stream.next_offset == 400
        assert 300 <= stream.first_offset < 400
        kept = 400 - stream.first_offset
        assert len(payloads(stream)) == kept


def test_the_example_of_the_documentation(tmp_path):
    with Stream.create(tmp_path / "events", indexed=["region", "type"]) as stream:
        with stream.producer("pos-1") as producer:
            for amount in (900, 1200):
                producer.publish(
                    Message(
                        b"...",
                        topic="orders.eu.created",
                        headers={"region": "EU", "amount": amount},
                    )
                )
        found = list(stream.consume("region = 'EU' AND amount > 1000", start="first", follow=False))
        assert [message.headers["amount"] for message in found] == [1200]
        scan = stream.scan("region = 'EU'")
        assert pa.Table.from_batches(scan).column("offset").to_pylist() == [0, 1]
        stream.seal()


def test_the_writers_lock_is_free_when_the_last_producer_is_closed(tmp_path):
    with Stream.create(tmp_path / "s") as ours, Stream.open(tmp_path / "s") as theirs:
        first, second = ours.producer("a"), ours.producer("b")
        first.publish(b"1")
        first.close()
        with pytest.raises(StreamLocked):
            theirs.producer()
        second.publish(b"2")
        second.close()
        with theirs.producer() as producer:
            producer.publish(b"3")
            with pytest.raises(StreamLocked):
                ours.producer()
        with ours.producer("a") as producer:  # remembers its publishing ids
            assert producer.last_publishing_id == 0
            producer.publish(b"4")
        ours.reconfigure(max_bytes=1 << 30)
        assert [message.payload for message in theirs.consume()] == [b"1", b"2", b"3", b"4"]


def test_an_append_that_runs_keeps_the_lock_when_the_last_producer_is_closed(tmp_path):
    with Stream.create(tmp_path / "s") as stream:
        producer = stream.producer()

        class ClosesTheProducer:
            """A table whose columns are asked for while `append` runs."""

            def __arrow_c_stream__(self, requested_schema=None):
                producer.close()
                return pa.table({"payload": [b"x"]}).__arrow_c_stream__(requested_schema)

        assert stream.append(ClosesTheProducer()) == 1
        assert stream.next_offset == 1

"""Facts about streams, without the command line."""

import pytest

from headgate.errors import HeadgateError
from headgate.insights import (
    find_last_matches,
    list_streams,
    stored_bytes,
    stream_details,
    stream_facts,
    time_bounds,
)
from headgate.streams import Stream
from headgate.testing import MessageFactory


def fill(stream: Stream, count: int, **headers: str) -> None:
    messages = MessageFactory(headers=headers)
    with stream.producer() as producer:
        producer.publish_many(messages.make_many(count))


@pytest.fixture
def two_segments(tmp_path):
    """Ten messages in a sealed segment, three in a hot one."""
    path = tmp_path / "events"
    with Stream.create(path, indexed=["region"]) as stream:
        fill(stream, 10, region="EU")
        stream.seal(all=True)
        fill(stream, 3, region="US")
    return path


def test_the_facts_of_a_stream_count_messages_segments_and_bytes(two_segments):
    facts = stream_facts(two_segments)
    assert (facts.stream, facts.messages, facts.next_offset) == ("events", 13, 13)
    assert (facts.segments, facts.sealed, facts.cold) == (2, 1, 0)
    assert facts.bytes == stored_bytes(two_segments) > 0
    assert facts.indexed == ("region",)


def test_streams_are_listed_by_their_path_from_the_directory(tmp_path):
    for name in ("b", "a/inner"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Stream.create(tmp_path / name).close()
    assert [facts.stream for facts in list_streams(tmp_path)] == ["a/inner", "b"]


def test_a_file_is_not_a_directory_of_streams(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(HeadgateError, match="not a directory"):
        list_streams(tmp_path / "file")


def test_the_details_of_a_stream_have_its_options_and_the_lag_of_its_cursors(two_segments):
    with Stream.open(two_segments) as stream, stream.consume(cursor="billing") as consumer:
        next(consumer)
        consumer.commit()
    details = stream_details(two_segments)
    assert details.options["indexed"] == ("region",)
    [cursor] = details.cursors
    assert (cursor.name, cursor.position, cursor.lag) == ("billing", 1, 12)
    assert cursor.updated_us is not None


@pytest.mark.parametrize(("number", "offset"), [(0, 13), (1, 9), (3, 7), (10, 0), (11, 0)])
def test_the_last_matches_are_found_across_segments(two_segments, number, offset):
    with Stream.open(two_segments) as stream:
        assert find_last_matches(stream, "region = 'EU'", number) == offset


def test_asking_for_facts_writes_nothing(two_segments):
    before = {path: path.stat().st_mtime_ns for path in two_segments.rglob("*")}
    stream_details(two_segments)
    list_streams(two_segments.parent)
    assert {path: path.stat().st_mtime_ns for path in two_segments.rglob("*")} == before


def test_the_bounds_of_its_times_are_those_of_all_messages_also_when_sealing_ordered_them_anew(
    tmp_path,
):
    path = tmp_path / "s"
    with Stream.create(path, indexed=["region"], chunk_messages=4) as stream:
        assert time_bounds(path) == (None, None)
        with stream.producer() as producer:
            for n in range(20):
                producer.publish(b"x", headers={"region": "ZA"[n % 2]}, timestamp=1000 + n)
        assert time_bounds(path) == (1000, 1019)
        stream.seal(all=True)
        assert time_bounds(path) == (1000, 1019)

"""Names of producers that have not been used for long are forgotten when a segment begins; others never."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.message import Message
from headgate.streams.format import log_path
from headgate.streams.options import StreamOptions, load_options, save_options
from headgate.streams.segments.hot_log import create_hot_log
from headgate.streams.segments.hot_walk import LogHead, read_log_head
from headgate.streams.stream import Stream
from headgate.streams.upkeep.recovery import last_seen
from headgate.streams.upkeep.retention import delete_expired, seal_segments
from headgate.streams.write.inbox import adopt, deposits, write_deposit
from headgate.streams.write.producer import Producer
from headgate.streams.write.writer import Writer
from headgate.testing import ManualClock

WEEK = timedelta(days=7)


class Place:
    """A stream whose writers read a clock that the test moves."""

    def __init__(self, path: Path, max_age: timedelta | None = WEEK) -> None:
        self.path, self.options = path, StreamOptions(fsync="never", producer_max_age=max_age)
        path.mkdir()
        save_options(path, self.options)
        self.clock = ManualClock()

    def now(self) -> int:
        return self.clock.wall_us

    @contextmanager
    def write(self) -> Iterator[Writer]:
        with closing(Writer(self.path, self.options, "test", self.now)) as writer:
            yield writer

    def publish(self, writer: Writer, name: str, publishing_id: int) -> int:
        new = writer.accept([Message(name.encode())], name, publishing_id)
        writer.commit()
        return new

    def roll(self, writer: Writer) -> None:
        """Begin a new segment, with a message of nobody in the old one."""
        writer.accept([Message(b"unnamed")])
        writer.roll()

    def table(self) -> dict[str, int]:
        """The table at the beginning of the newest segment."""
        newest = max(self.path.glob("*.log"), key=lambda path: int(path.stem))
        return dict(read_log_head(newest).producers)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "s")


def test_a_name_that_was_not_used_for_so_long_is_forgotten_at_the_next_roll(place: Place) -> None:
    with place.write() as writer:
        place.publish(writer, "old", 5)
        place.clock.advance(timedelta(days=6))
        place.publish(writer, "new", 7)
        place.roll(writer)
        assert place.table() == {"old": 5, "new": 7}
        place.clock.advance(timedelta(days=2))
        assert place.publish(writer, "old", 5) == 0  # until then it is known
        place.roll(writer)
        assert place.table() == {"new": 7}
        assert writer.producers.committed == writer.producers.accepted == {"new": 7}
        assert place.publish(writer, "new", 7) == 0
        assert place.publish(writer, "old", 5) == 1
    with place.write() as writer:
        assert writer.producers.committed == {"new": 7, "old": 5}


def test_without_a_limit_every_name_is_remembered(tmp_path: Path) -> None:
    place = Place(tmp_path / "s", max_age=None)
    assert load_options(place.path).producer_max_age is None
    with place.write() as writer:
        place.publish(writer, "p", 5)
        place.clock.advance(timedelta(days=36500))
        place.roll(writer)
    assert place.table() == {"p": 5}


def test_an_open_producer_is_remembered_until_it_is_closed(place: Place) -> None:
    with place.write() as writer:
        producer = Producer(writer, "p", None, lambda _: None)
        producer.publish(Message(b"a"), publishing_id=5)
        producer.flush()
        place.clock.advance(2 * WEEK)
        place.roll(writer)
        assert place.table() == {"p": 5}
        assert not producer.publish(Message(b"a"), publishing_id=5)
        producer.close()
        place.roll(writer)
        assert place.table() == {}


def test_a_message_that_is_not_stored_yet_keeps_its_name(place: Place) -> None:
    with place.write() as writer:
        place.publish(writer, "p", 5)
        place.clock.advance(2 * WEEK)
        writer.producers.accepted["p"] = 6
        writer.producers.forget_unused(place.now(), lambda: ())
        assert writer.producers.last("p") == 6


def test_a_name_counts_from_its_last_message_however_often_the_stream_is_opened(
    place: Place,
) -> None:
    with place.write() as writer:
        place.publish(writer, "p", 5)
        place.roll(writer)
    for _ in range(6):
        place.clock.advance(timedelta(days=1))
        with place.write() as writer:
            place.roll(writer)
        assert place.table() == {"p": 5}
    place.clock.advance(timedelta(days=2))
    with place.write() as writer:
        place.roll(writer)
    assert place.table() == {}


def test_a_deposit_that_a_killed_process_left_behind_is_not_stored_again_after_years(
    place: Place,
) -> None:
    table = pa.table({"payload": [b"a", b"b"]})
    with place.write() as writer:
        path = write_deposit(place.path, "query", 5, table.to_batches())
        content = path.read_bytes()
        adopt(writer)
        path.write_bytes(content)  # it was killed before it removed the file
        place.clock.advance(100 * WEEK)
        place.roll(writer)
        assert place.table() == {"query": 5}
    with place.write() as writer:
        adopt(writer)
        assert not deposits(place.path)
        assert writer.next_offset == 3
        place.roll(writer)
        assert place.table() == {}


def test_the_table_survives_sealing_and_retention(place: Place) -> None:
    with place.write() as writer:
        place.publish(writer, "p", 5)
        seal_segments(writer, all=True, created_us=place.now())
        place.clock.advance(timedelta(days=1))
        delete_expired(
            writer, now_us=place.now(), max_age=None, max_bytes=None, before_offset=1 << 40
        )
    with place.write() as writer:
        assert place.publish(writer, "p", 5) == 0
        place.clock.advance(WEEK)
        place.roll(writer)
    assert place.table() == {}


def test_an_old_log_without_times_counts_from_its_creation(place: Place) -> None:
    with place.write() as writer:
        shape = writer._shape
    log_path(place.path, 0).unlink()
    create_hot_log(place.path, 0, shape, {"p": 5}, place.now()).close()
    head = log_path(place.path, 0).read_bytes()
    assert "seen" not in json.loads(head[40:])
    place.clock.advance(timedelta(days=6))
    with place.write() as writer:
        place.roll(writer)
        assert place.table() == {"p": 5}
        place.clock.advance(timedelta(days=2))
        place.roll(writer)
        assert place.table() == {}


def test_of_a_recovered_log_those_that_published_in_it_count_from_when_it_was_written() -> None:
    head = LogHead(0, {"old": 1, "known": 2, "both": 3}, 0, 0, created=100, seen={"known": 50})
    ids = {"old": 1, "known": 2, "both": 4, "new": 0}
    assert last_seen(head, ids, 200) == {"old": 100, "known": 50, "both": 200, "new": 200}


def test_a_table_of_ten_thousand_names_shrinks_again(place: Place) -> None:
    with place.write() as writer:
        for n in range(10_000):
            writer.accept([Message(b"")], f"producer-{n}", 0)
        writer.roll()
        assert len(place.table()) == 10_000
        place.clock.advance(2 * WEEK)
        place.roll(writer)
        assert place.table() == {}


def test_streams_remember_names_for_a_month_unless_told_otherwise(tmp_path: Path) -> None:
    with Stream.create(tmp_path / "s") as stream:
        assert stream.options.producer_max_age == timedelta(days=30)
        stream.reconfigure(producer_max_age=None)
    assert Stream.open(tmp_path / "s").options.producer_max_age is None

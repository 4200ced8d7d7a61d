"""A directory is listed again only after its names have changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headgate.errors import StreamNotFound
from headgate.message import Message
from headgate.streams import listing as module
from headgate.streams.format import log_path, sealed_path
from headgate.streams.listing import current_listing, is_followed, list_segments
from headgate.streams.segments import hot_index
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.stream import Stream


class Listings:
    """Counts how often a directory is read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, real = 0, module.segment_files

        def counted(*arguments: object) -> object:
            self.count += 1
            return real(*arguments)  # type: ignore[arg-type]

        patch.setattr(module, "segment_files", counted)


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> Listings:
    return Listings(monkeypatch)


def let_pass(directory: Path) -> None:
    """Make the last change of a directory an old one."""
    os.utime(directory, ns=(0, 1_000_000_001))


@pytest.fixture(autouse=True)
def times_of_change_are_modification_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests set the modification time; nobody can set the other one."""

    def stamp(directory: str | Path) -> tuple[int, int, int]:
        found = os.stat(directory)
        return found.st_ino, found.st_mtime_ns, found.st_mtime_ns

    monkeypatch.setattr(module, "_stamp", stamp)


def firsts(directory: Path) -> list[int]:
    return [file.first_offset for file in list_segments(directory)]


def test_an_unchanged_directory_is_not_listed_again(tmp_path: Path, listings: Listings) -> None:
    log_path(tmp_path, 0).touch()
    let_pass(tmp_path)
    first = current_listing(tmp_path)
    assert listings.count == 1
    assert all(current_listing(tmp_path) is first for _ in range(5))
    assert listings.count == 1


def test_a_change_within_the_tick_of_the_last_one_is_seen(tmp_path: Path) -> None:
    log_path(tmp_path, 0).touch()
    stamp = time.time_ns()
    os.utime(tmp_path, ns=(stamp, stamp))
    assert firsts(tmp_path) == [0]
    log_path(tmp_path, 10).touch()
    os.utime(tmp_path, ns=(stamp, stamp))
    assert firsts(tmp_path) == [0, 10]


def test_whole_seconds_are_a_coarse_clock(tmp_path: Path) -> None:
    stamp = (time.time_ns() // 10**9) * 10**9
    os.utime(tmp_path, ns=(stamp, stamp))
    log_path(tmp_path, 0).touch()
    os.utime(tmp_path, ns=(stamp, stamp))
    assert current_listing(tmp_path).stamp is None


def test_new_and_removed_segments_are_seen(tmp_path: Path) -> None:
    log_path(tmp_path, 0).touch()
    let_pass(tmp_path)
    assert firsts(tmp_path) == [0]
    log_path(tmp_path, 10).touch()
    assert firsts(tmp_path) == [0, 10]
    sealed_path(tmp_path, 0).touch()
    assert [file.sealed for file in list_segments(tmp_path)] == [True, False]
    log_path(tmp_path, 0).unlink()
    sealed_path(tmp_path, 0).unlink()
    assert firsts(tmp_path) == [10]
    assert not is_followed(tmp_path, 10)
    assert is_followed(tmp_path, 5)


def test_listings_are_kept_for_a_bounded_number_of_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 4)
    monkeypatch.setattr(module, "_kept", {})
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        for first in (0, 10):
            log_path(tmp_path / name, first).touch()
        let_pass(tmp_path / name)
        current_listing(tmp_path / name)
    assert list(module._kept) == [str(tmp_path / "b"), str(tmp_path / "c")]


def test_a_deleted_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    current_listing(tmp_path / "s")
    (tmp_path / "s").rmdir()
    with pytest.raises(StreamNotFound):
        current_listing(tmp_path / "s")
    assert str(tmp_path / "s") not in module._kept


def test_a_tail_lists_nothing_and_reads_only_what_was_appended(
    tmp_path: Path, listings: Listings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stream.create(tmp_path / "s", fsync="never") as stream, stream.producer() as producer:
        for _ in range(200):
            producer.publish(b"x")
            producer.flush()
        let_pass(stream.path)
        consumer = stream.consume(follow=True)
        while consumer.poll():
            pass
        assert stream.next_offset == 200
        width = HotSegment(log_path(stream.path, 0)).shape.dtype.itemsize
        real, read = hot_index.read_at, []

        def counted(fd: int, position: int, length: int | None = None) -> object:
            found = real(fd, position, length)
            read.append(found.size)
            return found

        monkeypatch.setattr(hot_index, "read_at", counted)
        listings.count = 0
        for i in range(10):
            producer.publish(Message(b"%d" % i))
            producer.flush()
            assert consumer.poll() is not None
            assert consumer.poll() is None
            assert stream.next_offset == 201 + i
        assert listings.count == 0
        assert sum(read) == 2 * 10 * width  # the consumer and the stream, each once


def test_a_listing_ends_while_segments_are_begun_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, count = module.segment_files, 0

    def begin_another(*arguments: object) -> object:
        nonlocal count
        assert count < 10, "it never ends"
        found = real(*arguments)  # type: ignore[arg-type]
        count += 1
        log_path(tmp_path, 10 * count).touch()
        return found

    log_path(tmp_path, 0).touch()
    monkeypatch.setattr(module, "segment_files", begin_another)
    assert firsts(tmp_path) == [0, 10]


@pytest.mark.parametrize("dropped", [True, False])
def test_a_first_segment_that_a_listing_missed_is_dropped_only_if_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dropped: bool
) -> None:
    real, count = module.segment_files, 0

    def miss_it(*arguments: object) -> object:
        nonlocal count
        count += 1
        found = real(*arguments)  # type: ignore[arg-type]
        if count == 1:
            log_path(tmp_path, 0).unlink()
            if not dropped:
                sealed_path(tmp_path, 0).touch()
        return found[1:] if count == 2 and not dropped else found

    for first in (0, 10, 20):
        log_path(tmp_path, first).touch()
    monkeypatch.setattr(module, "segment_files", miss_it)
    assert firsts(tmp_path) == ([10, 20] if dropped else [0, 10, 20])


def test_listings_of_deleted_streams_are_not_kept_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_STREAMS", 2)
    for name in "abc":
        (tmp_path / name).mkdir()
        assert firsts(tmp_path / name) == []
    assert list(module._kept) == [str(tmp_path / "b"), str(tmp_path / "c")]

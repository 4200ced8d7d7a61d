from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from headgate.message import Message
from headgate.streams.format import index_path, segment_files
from headgate.streams.upkeep.retention import (
    SegmentInfo,
    delete_segments,
    find_expired,
    segment_infos,
    trim,
)
from tests.unit.streams.written_segments import CLOCK, offsets_of, scan_all, seal_at, write_hot

DAY = 86_400_000_000
SEGMENTS = [SegmentInfo(i * 10, i * 10 + 10, CLOCK + i * DAY, 100) for i in range(5)]
NOW = CLOCK + 5 * DAY


def kept(**limits: object) -> list[int]:
    dropped = find_expired(SEGMENTS, now_us=NOW, total_bytes=500, **limits)  # type: ignore[arg-type]
    assert dropped == SEGMENTS[: len(dropped)]
    return [s.first_offset for s in SEGMENTS[len(dropped) :]]


def test_without_limits_no_segment_expires() -> None:
    assert kept() == [0, 10, 20, 30, 40]


@pytest.mark.parametrize(
    ("days", "left"),
    [(10, [0, 10, 20, 30, 40]), (5, [0, 10, 20, 30, 40]), (3, [20, 30, 40]), (1, [40])],
)
def test_segments_whose_newest_message_is_too_old_expire(days: int, left: list[int]) -> None:
    assert kept(max_age=timedelta(days=days)) == left


@pytest.mark.parametrize(("limit", "left"), [(500, 5), (499, 4), (250, 2), (100, 1), (1, 1)])
def test_the_oldest_segments_expire_until_the_rest_is_small_enough(limit: int, left: int) -> None:
    assert len(kept(max_bytes=limit)) == left


def test_the_newest_segment_never_expires() -> None:
    assert kept(max_age=timedelta(microseconds=1), max_bytes=1, before_offset=10**6) == [40]
    assert find_expired([], now_us=NOW, max_bytes=1, total_bytes=100) == []
    assert find_expired(SEGMENTS[:1], now_us=NOW, max_bytes=1, total_bytes=100) == []


def test_only_whole_segments_before_an_offset_expire() -> None:
    assert kept(before_offset=19) == [10, 20, 30, 40]
    assert kept(before_offset=20) == [20, 30, 40]


def test_a_young_segment_protects_the_older_ones_behind_it_from_leaving_a_hole() -> None:
    late = [SegmentInfo(0, 10, NOW, 1), SegmentInfo(10, 20, CLOCK, 1), SegmentInfo(20, 30, NOW, 1)]
    assert find_expired(late, now_us=NOW, max_age=timedelta(days=1)) == []


def test_a_timestamp_that_is_yet_to_come_counts_as_the_time_of_writing() -> None:
    future = [
        replace(s, last_timestamp=NOW + 1000 * DAY, written=s.last_timestamp) for s in SEGMENTS
    ]
    for days, left in ((10, 5), (3, 3), (1, 1)):
        dropped = find_expired(future, now_us=NOW, max_age=timedelta(days=days))
        assert len(future) - len(dropped) == left
    unknown = [replace(s, written=0) for s in future]
    assert find_expired(unknown, now_us=NOW, max_age=timedelta(days=1)) == []


def test_one_message_of_2099_does_not_stop_retention_by_age(tmp_path: Path) -> None:
    far = Message(timestamp=4_070_908_800_000_000)
    for first in (0, 2, 4):
        write_hot(tmp_path, first, [[Message(timestamp=CLOCK), far]])
    seal_at(tmp_path, 0)
    week = timedelta(days=7)
    for days, left in ((6, [0, 2, 4]), (8, [4])):  # after the day on which all of them were written
        trim(tmp_path, active_first_offset=4, now_us=CLOCK + days * DAY, max_age=week)
        assert [file.first_offset for file in segment_files(tmp_path)] == left


@pytest.fixture
def four_segments(tmp_path: Path) -> Path:
    for i in range(4):
        write_hot(tmp_path, i * 10, [[Message(b"x" * 100, timestamp=CLOCK + i * DAY)] * 10])
    seal_at(tmp_path, 10)
    return tmp_path


def test_segments_are_described_from_their_summaries(four_segments: Path) -> None:
    found = list(segment_infos(four_segments))
    assert [s.first_offset for s in found] == [0, 10, 20, 30]
    assert [s.last_timestamp for s in found] == [CLOCK + i * DAY for i in range(4)]
    assert all(s.nbytes > 1000 for s in found)


def test_trimming_deletes_the_files_of_hot_and_sealed_segments(four_segments: Path) -> None:
    dropped = trim(
        four_segments,
        active_first_offset=30,
        now_us=CLOCK + 3 * DAY,
        max_age=timedelta(days=1, hours=1),
    )
    assert [s.first_offset for s in dropped] == [0, 10]
    assert [f.first_offset for f in segment_files(four_segments)] == [20, 30]
    assert not index_path(four_segments, 0).exists()
    assert offsets_of(scan_all(four_segments)[0]) == list(range(20, 40))


def test_deleting_a_deleted_segment_is_no_error(four_segments: Path) -> None:
    infos = list(segment_infos(four_segments))[:1]
    delete_segments(four_segments, infos)
    left = segment_files(four_segments)
    delete_segments(four_segments, infos)
    assert segment_files(four_segments) == left

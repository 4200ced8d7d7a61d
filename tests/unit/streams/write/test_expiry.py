"""Retention runs beside the writer: no message waits for it, and it looks at what is old and what is new alone."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate.message import Message
from headgate.streams.format import segment_files
from headgate.streams.stream import Stream
from headgate.streams.upkeep import retention
from headgate.streams.upkeep.retention import SegmentSizes, trim
from headgate.streams.write import expiry as module
from headgate.streams.write.producer import Producer
from tests.patience import PATIENCE, wait_until
from tests.unit.streams.written_segments import CLOCK, write_hot

SOON = timedelta(milliseconds=1)


def fill(stream: Stream, segments: int) -> Producer:
    """Fill segments; the producer stays open, and with it the writer, which looks for expired ones."""
    producer = stream.producer()
    for _ in range(segments):
        producer.publish(bytes(5000))
        producer.flush()
    return producer


def test_a_message_does_not_wait_for_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any, **named: Any) -> list[object]:
        began.set()
        assert go_on.wait(PATIENCE)
        return []

    monkeypatch.setattr(module, "delete_expired", slow)
    with Stream.create(tmp_path / "s", linger=SOON, segment_bytes=4096, max_bytes=1) as stream:
        producer = fill(stream, 2)
        assert began.wait(PATIENCE)
        producer.publish(b"last")  # committed by the committer, after its linger
        wait_until(lambda: stream.next_offset == 3)
        go_on.set()


def test_retention_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, problems = module.delete_expired, iter([OSError("busy"), OSError("busy")])

    def failing(*arguments: Any, **named: Any) -> Any:
        for problem in problems:
            raise problem
        return real(*arguments, **named)

    monkeypatch.setattr(module, "delete_expired", failing)
    with Stream.create(tmp_path / "s", linger=SOON, segment_bytes=4096, max_bytes=1) as stream:
        fill(stream, 3)
        wait_until(lambda: len(segment_files(stream.path)) == 1)


def test_a_new_writer_looks_for_what_expired_under_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stream.create(tmp_path / "s", linger=SOON, segment_bytes=4096, max_bytes=1) as stream:
        with monkeypatch.context() as patch:
            patch.setattr(module.Expiry, "begin", lambda expiry: None)  # closed too soon for it
            fill(stream, 3).close()
        assert len(segment_files(stream.path)) == 3
        with stream.producer():
            wait_until(lambda: len(segment_files(stream.path)) == 1)


def test_closing_waits_for_the_look_under_way_and_no_thread_stays(tmp_path: Path) -> None:
    with Stream.create(tmp_path / "s", linger=SOON, segment_bytes=4096, max_bytes=1) as stream:
        fill(stream, 3)
    names = [thread.name for thread in threading.enumerate()]
    assert "headgate retention s" not in names


def test_only_the_oldest_segments_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(20):
        write_hot(tmp_path, i, [[Message(timestamp=CLOCK + i)]])
    opened: list[Path] = []
    real = retention.SegmentCatalog.open

    def counted(catalog: Any, file: Any) -> Any:
        opened.append(file.path)
        return real(catalog, file)

    monkeypatch.setattr(retention.SegmentCatalog, "open", counted)
    limits = {"max_age": timedelta(microseconds=10), "max_bytes": 1 << 30}
    dropped = trim(tmp_path, active_first_offset=19, now_us=CLOCK + 13, **limits)
    assert [segment.first_offset for segment in dropped] == [0, 1, 2]
    assert len(set(opened)) <= len(dropped) + 3


def test_the_size_of_a_full_segment_is_looked_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[int] = []
    real = retention._bytes_on_disk

    def counted(directory: Path, file: Any) -> int:
        looked_up.append(file.first_offset)
        return real(directory, file)

    monkeypatch.setattr(retention, "_bytes_on_disk", counted)
    for i in range(5):
        write_hot(tmp_path, i, [[Message()]])
    sizes = SegmentSizes(tmp_path)
    total = sizes.total(segment_files(tmp_path))
    assert looked_up == [0, 1, 2, 3, 4]
    write_hot(tmp_path, 5, [[Message()]])
    assert sizes.total(segment_files(tmp_path)) == total * 6 // 5
    assert looked_up[5:] == [4, 5]


def test_many_segments_are_not_looked_at_after_every_roll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looks = module.delete_expired, threading.Semaphore(0)

    def counted(*arguments: Any, **named: Any) -> Any:
        looks.release()
        return real(*arguments, **named)

    monkeypatch.setattr(module, "delete_expired", counted)
    monkeypatch.setattr(module, "_MANY", 1)
    monkeypatch.setattr(module, "_PATIENCE", 1e9)
    with Stream.create(tmp_path / "s", linger=SOON, segment_bytes=4096, max_bytes=1) as stream:
        fill(stream, 2)
        assert looks.acquire(timeout=PATIENCE)
        fill(stream, 4)
        assert not looks.acquire(timeout=0.01)
        # and closing does not wait for the end of the pause

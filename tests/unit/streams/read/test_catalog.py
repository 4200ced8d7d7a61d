"""The end of a stream of many segments is found from the last known one, without listing the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import StreamCorrupt
from headgate.message import Message
from headgate.streams.format import index_path, log_path
from headgate.streams.listing import current_listing
from headgate.streams.options import StreamOptions
from headgate.streams.read import catalog as module
from headgate.streams.read.catalog import SegmentCatalog
from tests.unit.streams.written_segments import seal_at, write_hot

ROWS = 5
OPTIONS = StreamOptions()


def write(directory: Path, *segments: int) -> None:
    for number in segments:
        rows = [Message(b"%d" % (number * ROWS + row)) for row in range(ROWS)]
        write_hot(directory, number * ROWS, [rows], OPTIONS)


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories that were listed. There are four segments, which count as many."""
    found: list[Path] = []

    def note(directory: Path) -> object:
        found.append(directory)
        return current_listing(directory)

    monkeypatch.setattr(module, "_FEW", 1)
    monkeypatch.setattr(module, "_PATIENCE", 1e9)
    monkeypatch.setattr(module, "current_listing", note)
    write(tmp_path, 0, 1, 2, 3)
    return found


def remove(directory: Path, number: int) -> None:
    log_path(directory, number * ROWS).unlink()
    index_path(directory, number * ROWS).unlink()


def test_new_segments_are_found_without_a_listing(tmp_path: Path, listed: list[Path]) -> None:
    catalog = SegmentCatalog(tmp_path)
    assert catalog.next_offset() == 4 * ROWS
    write(tmp_path, 4, 5)
    assert catalog.next_offset() == 6 * ROWS
    write(tmp_path, 6)
    segment = catalog.covering(6 * ROWS)
    assert segment is not None
    assert segment.first_offset == 6 * ROWS
    assert catalog.covering(7 * ROWS) is None
    assert [file.first_offset for file in catalog.files] == [n * ROWS for n in range(7)]
    assert len(listed) == 1


def test_many_new_segments_are_listed(tmp_path: Path, listed: list[Path]) -> None:
    catalog = SegmentCatalog(tmp_path)
    write(tmp_path, *range(4, 20))
    assert catalog.next_offset() == 20 * ROWS
    assert len(listed) == 2


def test_a_following_segment_may_be_sealed_already(tmp_path: Path, listed: list[Path]) -> None:
    catalog = SegmentCatalog(tmp_path)
    write(tmp_path, 4, 5)
    seal_at(tmp_path, 4 * ROWS)
    assert catalog.next_offset() == 6 * ROWS
    assert len(listed) == 1


def test_when_the_last_known_segment_is_gone_the_directory_is_listed(
    tmp_path: Path, listed: list[Path]
) -> None:
    catalog = SegmentCatalog(tmp_path)
    write(tmp_path, 4)
    for number in range(4):
        remove(tmp_path, number)
    assert catalog.next_offset() == 5 * ROWS
    assert catalog.first_offset() == 4 * ROWS
    assert len(listed) == 2


def test_the_directory_is_listed_again_after_a_while(
    tmp_path: Path, listed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0)
    catalog = SegmentCatalog(tmp_path)
    remove(tmp_path, 0)
    assert catalog.next_offset() == 4 * ROWS
    assert catalog.first_offset() == ROWS  # a dropped segment is forgotten
    assert len(listed) == 2


def test_a_segment_that_is_missing_in_the_middle_is_still_an_error(
    tmp_path: Path, listed: list[Path]
) -> None:
    catalog = SegmentCatalog(tmp_path)
    write(tmp_path, 5)
    assert catalog.next_offset() == 4 * ROWS  # as far as it goes without a gap
    catalog.relist()
    with pytest.raises(StreamCorrupt, match=f"offsets {4 * ROWS} to {5 * ROWS - 1} cannot be read"):
        catalog.covering(4 * ROWS)

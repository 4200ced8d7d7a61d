from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.errors import StreamOptionsError
from headgate.message import Message
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.read.start import parse_start, resolve_start
from tests.unit.streams.written_segments import seal_at, write_hot

HOUR = 3_600_000_000
NOW = 1_750_000_000_000_000
# Stamps need not ascend: a message may be published late.
STAMPS = [NOW - 5 * HOUR, NOW - 3 * HOUR, NOW - 4 * HOUR, NOW - HOUR, NOW - 2 * HOUR, NOW]


@pytest.fixture(params=["hot", "sealed"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> SegmentCatalog:
    messages = [Message(b"", headers={"i": i}, timestamp=t) for i, t in enumerate(STAMPS)]
    write_hot(tmp_path, 10, [messages[:2], messages[2:]])
    if request.param == "sealed":
        seal_at(tmp_path, 10, ["i"])
    return SegmentCatalog(tmp_path)


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        ("first", 10),
        ("last", 15),
        ("next", 16),
        (12, 12),
        (0, 0),
        ("13", 13),
        ("90m", 13),
        ("1h", 13),
        (timedelta(hours=3), 11),
        ("4h", 11),
        ("1w", 10),
        ("1Y", 10),
        (datetime.fromtimestamp(NOW / 1e6, UTC), 15),
        (datetime.fromtimestamp(NOW / 1e6 + 1, UTC), 16),
        ("1970-01-01T00:00:00Z", 10),
    ],
)
def test_a_start_resolves_to_its_offset(
    catalog: SegmentCatalog, start: object, offset: int
) -> None:
    assert resolve_start(start, catalog, lambda: NOW) == offset  # type: ignore[arg-type]


def test_an_empty_stream_begins_at_zero_from_everywhere(tmp_path: Path) -> None:
    for start in ("first", "last", "next", "1h"):
        assert resolve_start(start, SegmentCatalog(tmp_path), lambda: NOW) == 0


@pytest.mark.parametrize(
    "start",
    [
        "",
        "begin",
        "1x",
        "-5",
        -1,
        True,
        None,
        1.5,
        "1h30m",
        2**63,
        "9999999999w",
        "9" * 5000,
        "9" * 5000 + "s",
    ],
)
def test_an_unknown_start_is_refused_with_the_known_ones(start: object) -> None:
    with pytest.raises(StreamOptionsError, match="cannot start at"):
        parse_start(start)  # type: ignore[arg-type]


def test_a_moment_needs_a_time_zone() -> None:
    with pytest.raises(StreamOptionsError, match="time zone"):
        parse_start(datetime(2026, 11, 15))
    with pytest.raises(
        StreamOptionsError, match="'2026-11-15T10:00:00': a moment needs a time zone"
    ):
        parse_start("2026-11-15T10:00:00")

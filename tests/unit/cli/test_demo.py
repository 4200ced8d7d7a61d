"""What the demo prints and writes, from findings that are given."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.resources import files
from io import StringIO

import pytest
from rich.console import Console

from headgate.cli.demo import _print
from headgate.cli.demo.cast import READERS, ROUTED
from headgate.cli.demo.figures import Findings, Rate, Received, Skipped
from headgate.cli.demo.page import page
from headgate.streams.read import ScanStats


@pytest.fixture
def findings() -> Findings:
    """As after a run with a million messages."""
    found = Findings(1_000_000, explained="region = 'EU'", seconds=123.4)
    found.received = [Received(*who, 1_000_000, 1_000_000, True) for who in (*ROUTED, *READERS)]
    stats = ScanStats(
        chunks_none=9_000, chunks_all=10, chunks_some=1, bytes_read=1 << 20, bytes_total=1 << 30
    )
    found.skipped = [
        Skipped(who.name, who.filter, state, stats, 12.345)
        for who in READERS
        for state in ("hot", "sealed", "cold")
    ]
    found.rates = [Rate("start Spark", 0, 9.87), Rate("pipeline, other batches", 950_000, 12.3)]
    found.sizes = {"hot log": 123 << 20, "sealed": 99 << 20, "Parquet": 55 << 20}
    return found


def printed(findings: Findings) -> list[str]:
    text = StringIO()
    _print(Console(file=text, width=80), findings)
    return text.getvalue().splitlines()


def test_the_verdict_comes_first(findings):
    assert printed(findings)[1].startswith(
        "Every number equals the reference: 8 subscribers, 8,000,000"
    )
    right, *others = findings.received
    findings.received = [Received(*right_but(right)), *others]
    assert printed(findings)[1].startswith("NOT equal to the reference: eu-large")


def right_but(received: Received) -> tuple[str, str, str, int, int, bool]:
    return received.subscriber, received.way, received.filter, received.expected, 1, False


def test_every_table_fits_into_80_columns_without_cutting_a_word(findings):
    lines = printed(findings)
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line]
    for name in ("passed whole", "bytes read", "pipeline → SQLite queue"):
        assert any(name in line for line in lines)


def test_a_step_that_only_starts_something_has_no_rate(findings):
    (start,) = [line for line in printed(findings) if "start Spark" in line]
    assert re.findall(r"[\d.,]+", start) == ["9.9"]
    (flow,) = [line for line in printed(findings) if "other batches" in line]
    assert re.findall(r"[\d.,]*\d", flow) == ["950,000", "12.3", "77,236"]


def test_no_text_of_the_page_is_smaller_than_12_pixels(findings):
    """Text is HTML, whose size does not shrink with the screen, and the smallest is given in rem of 16 pixels."""
    text = page(findings, "a machine", datetime.now(UTC))
    assert "<svg" not in text
    style = files("headgate.cli.demo").joinpath("page.css").read_text()
    sizes = [float(size) for size in re.findall(r"(?:font-size|font): ?(\d*\.?\d+)rem", style)]
    assert len(sizes) >= 6
    assert min(sizes) * 16 >= 12


def test_nothing_on_the_page_is_wider_than_a_small_screen(findings):
    """On 390 pixels: bars have lines of their own, filters wrap, and only the explanation scrolls by itself."""
    style = files("headgate.cli.demo").joinpath("page.css").read_text()
    narrow = style[style.index("@media (max-width: 640px)") :]
    assert ".bar { order: 1; flex: 0 0 100% }" in narrow
    assert re.search(r"code, pre \{[^}]*overflow-wrap: anywhere", style)
    assert re.search(r"\bpre \{ overflow-x: auto", style)
    assert "nowrap" not in style.replace(".key { white-space: nowrap", "")

"""Sizes, durations and headers on the command line."""

import pytest

from headgate.cli.arguments import parse_duration, parse_headers, parse_size
from headgate.errors import HeadgateError
from headgate.insights import size_text


def test_sizes_durations_and_headers_are_parsed_or_refused():
    assert parse_headers(["a=b=c", "n:=1.5", "gone:=null"]) == {"a": "b=c", "n": 1.5, "gone": None}
    assert parse_duration("1.5h").total_seconds() == 5400
    assert [parse_size(text) for text in ("10", "1KB", "1KiB", "1.5MiB")] == [
        10,
        1000,
        1024,
        1_572_864,
    ]
    assert [size_text(n) for n in (10, 1536, 5 << 20)] == ["10 B", "1.5 KiB", "5.0 MiB"]
    for wrong in (
        lambda: parse_headers(["x"]),
        lambda: parse_headers(["x:=y"]),
        lambda: parse_duration("soon"),
    ):
        with pytest.raises(HeadgateError):
            wrong()
    with pytest.raises(HeadgateError):
        parse_size("big")

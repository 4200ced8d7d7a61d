"""LIKE: linear, and exact at the edges."""

import random
import re
import time

import pytest

from headgate.filters.like import compile_like, literal_prefix, plain_text


@pytest.mark.parametrize(
    ("pattern", "escape", "value", "expected"),
    [
        ("", None, "", True), ("", None, "a", False), ("%", None, "", True), ("%", None, "a\nb", True),
        ("_", None, "😀", True), ("_", None, "", False), ("_", None, "ab", False), ("a%", None, "a", True),
        ("%a", None, "ba", True), ("a%a", None, "a", False), ("a%a", None, "aa", True), ("%ab%", None, "xaby", True),
        ("a_c", None, "abc", True), ("a_c", None, "ac", False), ("%_", None, "", False), ("_%_", None, "ab", True),
        ("_%_", None, "a", False), ("%a_c%", None, "xxabcx", True), ("%a_c", None, "aacabc", True), ("A%", None, "abc", False),
        ("100!%", "!", "100%", True), ("100!%", "!", "1000", False), ("a!!", "!", "a!", True), ("\\%", "\\", "%", True),
        ("a%b%c", None, "abbbc", True), ("a%b%c", None, "acb", False), ("%%", None, "x", True), ("%aab%", None, "aaab", True),
        ("%a%a%a%", None, "aa", False), ("_a%", None, "ba", True), ("%__%", None, "a", False), ("%x__y%", None, "xxaayy", True),
    ],
)  # fmt: skip
def test_like_matches_the_whole_string(pattern, escape, value, expected):
    assert compile_like(pattern, escape)(value) is expected


def test_like_agrees_with_a_regular_expression_on_random_patterns():
    rng = random.Random(5)
    for _ in range(4_000):
        pattern = "".join(rng.choice("ab%_") for _ in range(rng.randint(0, 8)))
        value = "".join(rng.choice("ab") for _ in range(rng.randint(0, 12)))
        rx = "".join({"%": "(?s:.*)", "_": "(?s:.)"}.get(c, c) for c in pattern)
        assert compile_like(pattern, None)(value) == bool(re.fullmatch(rx, value)), (pattern, value)


@pytest.mark.parametrize("piece", ["a", "a_a", "_a_" * 50])
def test_twenty_wildcards_over_ten_thousand_characters_take_linear_time(piece):
    pattern = f"%{piece}" * 20 + "%b"
    like = compile_like(pattern, None)
    small, large = "a" * 10_000, "a" * 80_000
    assert _seconds(like, large) < 40 * max(_seconds(like, small), 1e-4)


def _seconds(like, value):
    def once():
        started = time.thread_time()
        assert like(value) is False
        return time.thread_time() - started

    return min(once() for _ in range(3))


def test_the_literal_prefix_is_the_beginning_of_every_match():
    assert literal_prefix("ord%x", None) == "ord"
    assert literal_prefix("_rd", None) == ""
    assert literal_prefix("a!%b%", "!") == "a%b"
    assert plain_text("a!%b", "!") == "a%b"
    assert plain_text("a_", None) is None
    assert plain_text("", None) == ""

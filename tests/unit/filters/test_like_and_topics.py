"""Patterns over text and over topics: linear, and exact at the edges."""

import random
import re
import time

import pytest

from headgate.filters.like import compile_like, literal_prefix, plain_text
from headgate.filters.topics import canonical, compile_pattern, matches, regex


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
def test_like(pattern, escape, value, expected):
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


def test_what_every_match_begins_with_is_known():
    assert literal_prefix("ord%x", None) == "ord"
    assert literal_prefix("_rd", None) == ""
    assert literal_prefix("a!%b%", "!") == "a%b"
    assert plain_text("a!%b", "!") == "a%b"
    assert plain_text("a_", None) is None
    assert plain_text("", None) == ""


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("#", "", True), ("", "", True), ("*", "", False), ("", "a", False), ("#", "a.b", True), ("*", "a", True),
        ("*", "a.b", False), ("*.*", ".", True), ("a.#", "a", True), ("a.#", "a.b.c", True), ("a.#", "ab", False),
        ("#.a", "a", True), ("#.a", "b.a", True), ("a.#.b", "a.b", True), ("a.#.b", "a.x.y.b", True), ("a.#.b", "a", False),
        ("#.#", "", True), ("*.#", "", False), ("#.*", "", False), ("#.*", "a", True), ("a*", "ax", False), ("a*", "a*", True),
        ("a#.b", "a#.b", True), ("a..b", "a..b", True), ("a.*.b", "a..b", True), (".", ".", True), ("*.a.#", "x.a", True),
        ("#.b.#", "a.b.c", True), ("#.b.#", "a.c", False), ("a.*.#.b", "a.b", False), ("a.*.#.b", "a.x.b", True),
        ("#.a.#.a.#", "a", False), ("#.a.#.a.#", "a.a", True), ("#.a.b.#.b.c.#", "a.b.c", False), (".#", "", False),
        (".#", ".a", True), ("é.*", "é.😀", True),
    ],
)  # fmt: skip
def test_topic_patterns(pattern, topic, expected):
    assert matches(pattern, topic) is expected


def _by_definition(pattern, words):
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_by_definition(pattern[1:], words[i:]) for i in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _by_definition(pattern[1:], words[1:])


def test_topic_patterns_and_their_regular_expressions_agree_with_the_definition():
    rng = random.Random(7)
    for _ in range(6_000):
        pattern = [
            rng.choice(["a", "b", "", "*", "#", "#", "c?"]) for _ in range(rng.randint(0, 5))
        ]
        words = [rng.choice(["a", "b", "", "c?", "cc"]) for _ in range(rng.randint(0, 6))]
        pattern_text, topic = ".".join(pattern), ".".join(words)
        # One empty word joins to the same text as no word, and that text is the empty topic.
        expected = _by_definition(pattern if pattern_text else [], words if topic else [])
        assert compile_pattern(pattern_text)(topic) == expected, (pattern_text, topic)
        assert bool(re.fullmatch(regex(pattern_text), topic)) == expected, (pattern_text, topic)


def test_runs_of_wildcards_have_one_spelling():
    assert canonical("#.#.*.#") == ("*", "#")
    assert canonical("a.#.*.b") == ("a", "*", "#", "b")
    assert canonical("") == ()

"""Topic patterns: linear, and exact at the edges."""

import random
import re

import pytest

from headgate.filters.topics import canonical, compile_pattern, matches, regex


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
def test_a_topic_pattern_matches_words(pattern, topic, expected):
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


def test_canonical_writes_a_run_of_wildcards_in_one_way():
    assert canonical("#.#.*.#") == ("*", "#")
    assert canonical("a.#.*.b") == ("a", "*", "#", "b")
    assert canonical("") == ()

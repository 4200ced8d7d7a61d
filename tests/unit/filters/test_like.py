"""LIKE: linear, and exact at the edges."""

import random
import re
import time
from collections import Counter

import pytest

from headgate.filters import like as like_module
from headgate.filters.like import (
    FAR,
    MAX_CHARACTERS,
    NEAR,
    compile_like,
    find_places,
    literal_prefix,
    plain_text,
)


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


def matches_step_by_step(pattern, value):
    """LIKE as a set of places in the pattern that the text read so far may have led to."""
    places = {0}
    for character in [*value, None]:
        for at in sorted(places):
            while pattern[at : at + 1] == "%":
                at += 1
                places.add(at)
        if character is not None:
            kept = {at for at in places if pattern[at : at + 1] == "%"}
            places = kept | {at + 1 for at in places if pattern[at : at + 1] in (character, "_")}
    return len(pattern) in places


@pytest.mark.parametrize("alphabet", ["ab", "aé", "a😀", "ša"], ids=ascii)
def test_like_is_exact_far_from_the_start_of_a_long_text(alphabet):
    rng = random.Random(6)
    found = Counter()
    for _ in range(100):
        middle = "".join(rng.choice(f"{alphabet}{alphabet}__%") for _ in range(9))
        rare = rng.choice((0.03, 0.3))
        value = "".join(
            alphabet[rng.random() < rare] for _ in range(rng.choice((NEAR, NEAR + 1, 9 * NEAR)))
        )
        answer = compile_like(f"%{middle}%", None)(value)
        assert answer == matches_step_by_step(f"%{middle}%", value), (middle, value)
        found[answer] += 1
    assert min(found[True], found[False]) > 10


def test_a_match_may_end_where_the_text_does_and_no_later():
    text = "a" * 3 * NEAR
    for tail, expected in (("bc", False), ("bxc", True), ("bxcd", True)):
        assert compile_like("%b_c%", None)(text + tail) is expected
    assert compile_like("%b_c%d", None)(text + "bxcd")
    assert not compile_like("%b_c%cd", None)(text + "bxcd")


def test_many_patterns_over_one_text_find_the_places_of_each_character_once(monkeypatch):
    asked = Counter()

    def count(text, character):
        asked[character] += 1
        return find_places(text, character)

    monkeypatch.setattr(like_module, "find_places", count)
    text = "-".join("abcdefghij" * 1_000)
    patterns = [f"%{a}_{b}_{c}%" for a in "abcdefghij" for b in "abcdefghij" for c in "xyz"]
    assert not any(compile_like(pattern, None)(text) for pattern in patterns)
    assert asked == Counter("abcdefghijxyz")


def test_a_text_too_long_to_keep_places_of_is_matched_character_by_character(monkeypatch):
    monkeypatch.setattr(like_module, "find_places", None)
    text = "a" * FAR
    assert compile_like("%b_c%", None)(text + "bxc")
    assert not compile_like("%b_c%", None)(text + "bc")


def test_the_places_kept_for_one_text_are_bounded():
    text = "".join(map(chr, range(256, 256 + 2 * MAX_CHARACTERS)))
    for character in text:
        assert not compile_like(f"%{character}_-%", None)(text)
    assert len(like_module._places_in(text)) <= MAX_CHARACTERS


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

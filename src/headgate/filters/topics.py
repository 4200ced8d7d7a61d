"""Topic patterns: words separated by dots, `*` stands for one word, `#` for any number, none included.

The empty topic has no words at all, so `#` and the empty pattern match it and `*` does not. A wildcard is
one only as a whole word: `a*` is a plain word. Matching is linear: between two `#` the leftmost place
that fits is always right, so nothing is tried twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from headgate.errors import TopicPatternError
from headgate.message import MAX_NAME_BYTES, UNSTORABLE

ONE: Final = "*"
MANY: Final = "#"


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that no topic could match."""
    if not isinstance(pattern, str):
        raise TopicPatternError(f"a topic pattern must be str, not {type(pattern).__name__}")
    if UNSTORABLE.search(pattern):
        raise TopicPatternError(f"a topic pattern cannot hold NUL or lone surrogates: {pattern!r}")
    if (size := len(pattern.encode())) > MAX_NAME_BYTES:
        raise TopicPatternError(
            f"the topic pattern is {size} bytes long, the limit is {MAX_NAME_BYTES}"
        )


def words_of(topic: str) -> list[str]:
    """Split a topic into its words; the empty topic has none."""
    return topic.split(".") if topic else []


@lru_cache(maxsize=4096)
def canonical(pattern: str) -> tuple[str, ...]:
    """Return the words of the pattern, with every run of wildcards as its `*`s followed by at most one `#`."""
    check_pattern(pattern)
    words: list[str] = []
    pending_many = False
    for word in words_of(pattern):
        if word == MANY:
            pending_many = True
            continue
        if pending_many and word != ONE:
            words.append(MANY)
            pending_many = False
        words.append(word)
    return (*words, MANY) if pending_many else tuple(words)


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Compile the pattern to a function that tells whether a topic matches."""
    words = canonical(pattern)
    if words == (MANY,):
        return lambda topic: True
    if ONE not in words and MANY not in words:
        return ".".join(words).__eq__ if words else (lambda topic: topic == "")
    runs = _split_at_many(words)
    if len(runs) == 1:
        return lambda topic: _fits_exactly(words_of(topic), words)
    return lambda topic: _fits_around_many(words_of(topic), runs)


def matches(pattern: str, topic: str) -> bool:
    """Tell whether the topic matches the pattern."""
    return compile_pattern(pattern)(topic)


def regex(pattern: str) -> str:
    """Translate the pattern to a regular expression without anchors that PostgreSQL and Java understand."""
    # The empty topic has no word, not one empty word: a pattern that needs one must see a character.
    words = [word for word in canonical(pattern) if word != MANY]
    guard = "(?=[^.]|\\.)" if len(words) == 1 and words[0] in (ONE, "") else ""
    return guard + regex_of_words(pattern)


def regex_of_words(pattern: str) -> str:
    """Translate the pattern to a regular expression for RE2, which is right for every topic but the empty one."""
    words = canonical(pattern)
    if words == (MANY,):
        return "(?:[^.]|\\.)*"
    head, tail = words[:1], words[1:]
    if head == (MANY,):
        head, tail = ("(?:[^.]*\\.)*" + _word_regex(tail[0]),), tail[1:]
    else:
        head = tuple(map(_word_regex, head))
    rest = ("(?:\\.[^.]*)*" if word == MANY else "\\." + _word_regex(word) for word in tail)
    return "".join((*head, *rest))


def _word_regex(word: str) -> str:
    if word == ONE:
        return "[^.]*"
    return "".join(c if c.isalnum() or c == "_" or ord(c) > 127 else f"\\{c}" for c in word)


def _split_at_many(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    runs: list[list[str]] = [[]]
    for word in words:
        if word == MANY:
            runs.append([])
        else:
            runs[-1].append(word)
    return [tuple(run) for run in runs]


def _fits_exactly(words: list[str], run: tuple[str, ...]) -> bool:
    return len(words) == len(run) and _fits_at(words, 0, run)


def _fits_at(words: list[str], at: int, run: tuple[str, ...]) -> bool:
    return all(want == ONE or want == words[at + i] for i, want in enumerate(run))


def _fits_around_many(words: list[str], runs: list[tuple[str, ...]]) -> bool:
    first, *middle, last = runs
    end = len(words) - len(last)
    if end < len(first) or not _fits_at(words, 0, first) or not _fits_at(words, end, last):
        return False
    at = len(first)
    for run in middle:
        while at + len(run) <= end and not _fits_at(words, at, run):
            at += 1
        if at + len(run) > end:
            return False
        at += len(run)
    return True

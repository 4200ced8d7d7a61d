"""Topic patterns: words separated by dots, `*` stands for one word, `#` for any number, none included.

The empty topic has no words at all, so `#` and the empty pattern match it and `*` does not. A wildcard is
one only as a whole word: `a*` is a plain word. Matching is linear: between two `#` the leftmost place
that fits is always good enough, so nothing is ever tried twice.
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
    if not isinstance(pattern, str):
        raise TopicPatternError(f"a topic pattern must be str, not {type(pattern).__name__}")
    if UNSTORABLE.search(pattern):
        raise TopicPatternError(f"a topic pattern cannot hold NUL or lone surrogates: {pattern!r}")
    if (size := len(pattern.encode())) > MAX_NAME_BYTES:
        raise TopicPatternError(
            f"the topic pattern is {size} bytes long, the limit is {MAX_NAME_BYTES}"
        )


def words_of(topic: str) -> list[str]:
    return topic.split(".") if topic else []


@lru_cache(maxsize=4096)
def canonical(pattern: str) -> tuple[str, ...]:
    """The pattern's words with every run of wildcards as its `*`s followed by at most one `#`."""
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
    """A predicate over topics."""
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
    return compile_pattern(pattern)(topic)


def regex(pattern: str) -> str:
    """The pattern as a regular expression without anchors, in the words PostgreSQL and Java share."""
    # The empty topic has no word, not one empty word: a pattern that wants one must see a character.
    wanted = [word for word in canonical(pattern) if word != MANY]
    guard = "(?=[^.]|\\.)" if len(wanted) == 1 and wanted[0] in (ONE, "") else ""
    return guard + regex_of_words(pattern)


def regex_of_words(pattern: str) -> str:
    """The same in the words RE2 knows too: right for every topic but, perhaps, the empty one."""
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

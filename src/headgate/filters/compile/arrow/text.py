"""Questions about strings, and how Arrow's kernels answer them for many strings at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.filters import logic
from headgate.filters.compile.arrow.rows import Bools, truths, unpacked, validity, where_valid
from headgate.filters.like import Piece, compile_like, pieces_of
from headgate.filters.nodes import CompareOp
from headgate.filters.topics import compile_pattern, matches, regex_of_words

Holds: TypeAlias = Callable[[str], bool]
Kernel: TypeAlias = Callable[[pa.Array], pa.Array]

# RE2 is linear in the text, but its programs grow with the pattern; beyond this our own matcher is better.
MAX_REGEX_PATTERN: Final = 512

_COMPARISON: Final[dict[CompareOp, pc.Function]] = {
    "=": pc.get_function("equal"),
    "<>": pc.get_function("not_equal"),
    "<": pc.get_function("less"),
    "<=": pc.get_function("less_equal"),
    ">": pc.get_function("greater"),
    ">=": pc.get_function("greater_equal"),
}


class TextTest:
    """A question about strings: how they compare, whether they are one of some, or what they look like."""

    __slots__ = ("_kernel", "_negated", "holds")

    def __init__(self, holds: Holds, kernel: Kernel, negated: bool) -> None:
        self.holds: Holds = (lambda value: not holds(value)) if negated else holds
        self._kernel, self._negated = kernel, negated

    def answers(self, strings: pa.Array) -> Bools:
        """Where the test holds; never where there is no string."""
        bits = self._kernel(strings)
        found = unpacked(bits.buffers()[1], bits.offset, len(bits))
        if self._negated:
            np.logical_not(found, out=found)
        return where_valid(found, validity(strings)) if strings.null_count else found


# Equal questions are one object, so that filters share what is remembered about a dictionary.


@lru_cache(maxsize=4096)
def compares_to(op: CompareOp, wanted: str) -> TextTest:
    compare = logic.OPERATORS[op]
    holds = wanted.__eq__ if op == "=" else lambda text: compare(text, wanted)
    return TextTest(holds, _comparison(op, wanted), negated=False)


@lru_cache(maxsize=4096)
def is_listed(wanted: frozenset[str], negated: bool) -> TextTest:
    return TextTest(wanted.__contains__, _lookup(sorted(wanted)), negated)


@lru_cache(maxsize=4096)
def is_like(pattern: str, escape: str | None, negated: bool) -> TextTest:
    return TextTest(compile_like(pattern, escape), _like(pattern, escape), negated)


@lru_cache(maxsize=4096)
def topic_matches(pattern: str, negated: bool) -> TextTest:
    return TextTest(compile_pattern(pattern), _topic(pattern), negated)


def compared_texts(op: CompareOp, left: pa.Array, right: pa.Array) -> Bools:
    """Where two columns of strings compare so, code point by code point."""
    return truths(_COMPARISON[op].call([left, right]))


# ---- kernels: looked up and given their options once -------------------------------------------------


def _kernel(name: str, options: pc.FunctionOptions | None = None) -> Kernel:
    function = pc.get_function(name)
    return lambda strings: function.call([strings], options)


def _comparison(op: CompareOp, wanted: str) -> Kernel:
    function, value = _COMPARISON[op], pa.scalar(wanted, pa.string())
    return lambda strings: function.call([strings, value])


def _lookup(wanted: list[str]) -> Kernel:
    by_type = {
        type_.id: _kernel("is_in", pc.SetLookupOptions(value_set=pa.array(wanted, type_)))
        for type_ in (pa.string(), pa.large_string())
    }
    return lambda strings: by_type[strings.type.id](strings)


def _regex(regex: str) -> Kernel:
    return _kernel("match_substring_regex", pc.MatchSubstringOptions(regex))


def _topic(pattern: str) -> Kernel:
    ask = _regex(rf"\A(?:{regex_of_words(pattern)})\z")
    if matches(pattern, ""):
        is_empty = _comparison("=", "")
        return lambda topics: pc.or_(ask(topics), is_empty(topics))
    has_words = _comparison("<>", "")
    return lambda topics: pc.and_(ask(topics), has_words(topics))


# ---- LIKE --------------------------------------------------------------------------------------------


def _like(pattern: str, escape: str | None) -> Kernel:
    pieces = pieces_of(pattern, escape)
    match pieces:
        case ((), ()):
            return _kernel("is_valid")
        case ((str() as whole,),):
            return _comparison("=", whole)
        case ((str() as prefix,), ()):
            return _kernel("starts_with", pc.MatchSubstringOptions(prefix))
        case ((), (str() as suffix,)):
            return _kernel("ends_with", pc.MatchSubstringOptions(suffix))
        case ((), (str() as inside,), ()):
            return _kernel("match_substring", pc.MatchSubstringOptions(inside))
    if len(pattern) > MAX_REGEX_PATTERN:
        return _one_by_one(compile_like(pattern, escape))
    body = ".*".join(_piece_regex(piece) for piece in pieces if piece)
    # RE2 finds a substring faster than it walks over everything before and after.
    start = r"\A" if pieces[0] or len(pieces) == 1 else ""
    end = r"\z" if pieces[-1] or len(pieces) == 1 else ""
    return _regex(f"{start}(?s:{body}){end}")


def _piece_regex(piece: Piece) -> str:
    return "".join("." if part is None else "".join(map(_quoted, part)) for part in piece)


def _quoted(character: str) -> str:
    literal = character.isalnum() or ord(character) > 127
    return character if literal else f"\\x{{{ord(character):02x}}}"


def _one_by_one(holds: Holds) -> Kernel:
    def ask(strings: pa.Array) -> pa.Array:
        values = strings.to_pylist()
        return pa.array(np.array([v is not None and holds(v) for v in values], np.bool_))

    return ask

"""Tests of strings, answered by Arrow's kernels for many strings at once, or once for each word of a dictionary.

A dictionary is often shared by many batches, so the answers for its words are kept from its second batch on. The cache
keeps a copy of the dictionary and compares it by content whenever it seems to come back: an answer is never stale, and
neither a batch nor a mapped file is kept alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from threading import Lock
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.filters import logic
from headgate.filters.compile.arrow.rows import (
    CODE_DTYPES,
    Array,
    Bools,
    Codes,
    Strings,
    truths,
    unpack_bits,
    validity,
    where_valid,
)
from headgate.filters.like import Piece, compile_like, pieces_of
from headgate.filters.nodes import CompareOp
from headgate.filters.topics import compile_pattern, matches, regex_of_words
from headgate.forks import call_in_child

TextPredicate: TypeAlias = Callable[[str], bool]
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
    """A test of strings: a comparison, a list or a pattern. `holds` tests one string in Python."""

    __slots__ = ("_kernel", "_negated", "holds")

    def __init__(self, holds: TextPredicate, kernel: Kernel, negated: bool) -> None:
        self.holds: TextPredicate = (lambda value: not holds(value)) if negated else holds
        self._kernel, self._negated = kernel, negated

    def answers(self, strings: pa.Array) -> Bools:
        """Return where the test holds; False where there is no string."""
        bits = self._kernel(strings)
        found = unpack_bits(bits.buffers()[1], bits.offset, len(bits))
        if self._negated:
            np.logical_not(found, out=found)
        return where_valid(found, validity(strings)) if strings.null_count else found


# Equal tests are one object, so that filters share the answers kept for a dictionary.


@lru_cache(maxsize=4096)
def comparison_test(op: CompareOp, constant: str) -> TextTest:
    """Make the test that compares strings with a constant."""
    compare = logic.OPERATORS[op]
    holds = constant.__eq__ if op == "=" else lambda text: compare(text, constant)
    return TextTest(holds, _comparison_kernel(op, constant), negated=False)


@lru_cache(maxsize=4096)
def list_test(constants: frozenset[str], negated: bool) -> TextTest:
    """Make the test of `IN (constants)`."""
    return TextTest(constants.__contains__, _lookup_kernel(sorted(constants)), negated)


@lru_cache(maxsize=4096)
def like_test(pattern: str, escape: str | None, negated: bool) -> TextTest:
    """Make the test of `LIKE pattern`."""
    return TextTest(compile_like(pattern, escape), _like_kernel(pattern, escape), negated)


@lru_cache(maxsize=4096)
def topic_test(pattern: str, negated: bool) -> TextTest:
    """Make the test of `MATCHES pattern`."""
    return TextTest(compile_pattern(pattern), _topic_kernel(pattern), negated)


def compare_texts(op: CompareOp, left: pa.Array, right: pa.Array) -> Bools:
    """Return where two columns of strings compare so, code point by code point."""
    return truths(_COMPARISON[op].call([left, right]))


# ---- kernels of Arrow: made once for each test -------------------------------------------------------


def _kernel(name: str, options: pc.FunctionOptions | None = None) -> Kernel:
    function = pc.get_function(name)
    return lambda strings: function.call([strings], options)


def _comparison_kernel(op: CompareOp, constant: str) -> Kernel:
    function, value = _COMPARISON[op], pa.scalar(constant, pa.string())
    return lambda strings: function.call([strings, value])


def _lookup_kernel(constants: list[str]) -> Kernel:
    by_type = {
        type_.id: _kernel("is_in", pc.SetLookupOptions(value_set=pa.array(constants, type_)))
        for type_ in (pa.string(), pa.large_string())
    }
    return lambda strings: by_type[strings.type.id](strings)


def _regex_kernel(regex: str) -> Kernel:
    return _kernel("match_substring_regex", pc.MatchSubstringOptions(regex))


def _topic_kernel(pattern: str) -> Kernel:
    has_shape = _regex_kernel(rf"\A(?:{regex_of_words(pattern)})\z")
    if matches(pattern, ""):
        is_empty = _comparison_kernel("=", "")
        return lambda topics: pc.or_(has_shape(topics), is_empty(topics))
    has_words = _comparison_kernel("<>", "")
    return lambda topics: pc.and_(has_shape(topics), has_words(topics))


# ---- LIKE --------------------------------------------------------------------------------------------


def _like_kernel(pattern: str, escape: str | None) -> Kernel:
    pieces = pieces_of(pattern, escape)
    match pieces:
        case ((), ()):
            return _kernel("is_valid")
        case ((str() as whole,),):
            return _comparison_kernel("=", whole)
        case ((str() as prefix,), ()):
            return _kernel("starts_with", pc.MatchSubstringOptions(prefix))
        case ((), (str() as suffix,)):
            return _kernel("ends_with", pc.MatchSubstringOptions(suffix))
        case ((), (str() as inside,), ()):
            return _kernel("match_substring", pc.MatchSubstringOptions(inside))
    if len(pattern) > MAX_REGEX_PATTERN:
        return _python_kernel(compile_like(pattern, escape))
    body = ".*".join(_piece_regex(piece) for piece in pieces if piece)
    # RE2 finds a substring faster than it walks over everything before and after.
    start = r"\A" if pieces[0] or len(pieces) == 1 else ""
    end = r"\z" if pieces[-1] or len(pieces) == 1 else ""
    return _regex_kernel(f"{start}(?s:{body}){end}")


def _piece_regex(piece: Piece) -> str:
    return "".join("." if part is None else "".join(map(_quote, part)) for part in piece)


def _quote(character: str) -> str:
    literal = character.isalnum() or ord(character) > 127
    return character if literal else f"\\x{{{ord(character):02x}}}"


def _python_kernel(holds: TextPredicate) -> Kernel:
    def test(strings: pa.Array) -> pa.Array:
        values = strings.to_pylist()
        return pa.array(np.array([v is not None and holds(v) for v in values], np.bool_))

    return test


# ---- dictionaries ------------------------------------------------------------------------------------

SMALL: Final = 32  # words: up to here, testing them in Python costs less than the cache
MANY: Final = 1024  # words: beyond, for few rows, only the strings of those rows are tested
FEW: Final = 4  # codes: up to here, comparing each costs less than a lookup table
LARGE: Final = 16_384  # rows: from here on, it pays to search for something cheaper than a table
# Larger dictionaries are not cached, and neither are more answers for one of them.
MAX_BYTES_OF_ONE: Final = 1 << 20
MAX_BYTES: Final = 32 << 20
MAX_SEEN: Final = 4096
END: Final = 256  # bytes at each end of a dictionary's text that are part of its key


# The first codes as arrays without dimensions: numpy compares with those faster than with Python's numbers.
_CONSTANTS: Final = {
    dtype.itemsize: [np.array(code, dtype) for code in range(SMALL)]
    for dtype in CODE_DTYPES.values()
}

# Finds the rows whose code passes, as if all were valid, in a fresh array.
CodeTest: TypeAlias = Callable[[Array], Bools]


def match_strings(test: TextTest, text: Codes | Strings) -> Bools:
    """Return the rows whose string passes the test."""
    if isinstance(text, Strings):
        return test.answers(text.array)
    codes, valid, dictionary = text
    words = len(dictionary)
    if words <= SMALL:
        found = _match_few_words(test, codes, dictionary)
    elif (cached := _cache.find(dictionary)) is not None:
        found = _cached_test(test, cached)(codes)
    elif words > MANY + 4 * len(codes):
        return test.answers(text.decode())
    else:
        table = test.answers(dictionary)
        found = _look_up(table, codes) if len(codes) < LARGE else _cheapest_test(table)(codes)
    return found if valid is None else where_valid(found, valid)


def _match_few_words(test: TextTest, codes: Array, dictionary: pa.Array) -> Bools:
    holds, words = test.holds, dictionary.to_pylist()
    passing = [code for code, word in enumerate(words) if word is not None and holds(word)]
    if 0 < len(passing) <= FEW:
        return _is_any(codes, passing)
    table = np.zeros(len(words), np.bool_)
    table[passing] = True
    return _cheapest_test(table)(codes)


def _cheapest_test(table: Bools) -> CodeTest:
    """Make the test of the codes that are True in the table, in the form that is cheapest to apply."""
    count = int(np.count_nonzero(table))
    if count in (0, len(table)):
        return lambda codes: np.full(len(codes), count > 0)
    if count <= FEW:
        passing = table.nonzero()[0].tolist()
        return lambda codes: _is_any(codes, passing)
    if len(table) - count <= FEW:
        others = (~table).nonzero()[0].tolist()
        return lambda codes: ~_is_any(codes, others)
    first = int(table.argmax())
    end = first + count
    if table[first:end].all():
        return lambda codes: (codes >= first) & (codes < end)
    return partial(_look_up, table)


def _is_any(codes: Array, passing: Sequence[int]) -> Bools:
    constants: Sequence[int | Array] = passing
    if passing[-1] < SMALL:
        by_code = _CONSTANTS[codes.itemsize]
        constants = [by_code[code] for code in passing]
    found: Bools = codes == constants[0]
    for constant in constants[1:]:
        found |= codes == constant
    return found


def _look_up(table: Bools, codes: Array) -> Bools:
    return table.take(codes.astype(np.intp), mode="clip")


# ---- the cache of dictionaries -----------------------------------------------------------------------


class _CachedDictionary(NamedTuple):
    words: pa.Array
    size: int
    tests: dict[TextTest, CodeTest]


class _DictionaryCache:
    """Dictionaries that occurred twice with the answers for their words, and the keys of those seen once."""

    def __init__(self) -> None:
        self._seen: dict[int, None] = {}
        self._cached: dict[int, _CachedDictionary] = {}
        self._size = 0
        self._lock = Lock()
        call_in_child(self, _DictionaryCache._replace_lock)

    def _replace_lock(self) -> None:
        """Make the lock free in a forked child; at worst the size is off by one dictionary."""
        self._lock = Lock()

    def find(self, dictionary: pa.Array) -> _CachedDictionary | None:
        """Return the cached dictionary; None the first time it is seen."""
        key = _key(dictionary)
        cached = self._cached.get(key)
        if cached is not None and cached.words.equals(dictionary):
            return cached
        if key in self._seen:
            return self._keep(key, dictionary) if dictionary.nbytes <= MAX_BYTES_OF_ONE else None
        with self._lock:
            self._seen[key] = None
            if len(self._seen) > MAX_SEEN:
                del self._seen[next(iter(self._seen))]
        return None

    def _keep(self, key: int, dictionary: pa.Array) -> _CachedDictionary:
        copy = dictionary.take(pa.array(np.arange(len(dictionary))))
        cached = _CachedDictionary(copy, copy.nbytes, {})
        with self._lock:
            self._drop(key)
            self._cached[key] = cached
            self._size += cached.size
            while self._size > MAX_BYTES:
                self._drop(next(iter(self._cached)))
        return cached

    def _drop(self, key: int) -> None:
        dropped = self._cached.pop(key, None)
        self._size -= 0 if dropped is None else dropped.size


_cache = _DictionaryCache()


def forget_dictionaries() -> None:
    """Empty the cache, as if no dictionary had been seen."""
    global _cache
    _cache = _DictionaryCache()


def _cached_test(test: TextTest, cached: _CachedDictionary) -> CodeTest:
    words, _, tests = cached
    found = tests.get(test)
    if found is None:
        if len(tests) * len(words) > MAX_BYTES_OF_ONE:
            tests.clear()
        found = tests[test] = _cheapest_test(test.answers(words))
    return found


def _key(dictionary: pa.Array) -> int:
    """Hash the type, the sizes and both ends of the text: enough to find a dictionary, not to prove it equal."""
    buffer, words = dictionary.buffers()[-1], len(dictionary)
    if buffer is None:
        return hash((dictionary.type.id, words))
    text = memoryview(buffer)
    return hash((dictionary.type.id, words, len(text), bytes(text[:END]), bytes(text[-END:])))

"""Questions about dictionary-encoded strings: asked once per distinct value, answered on the codes.

A dictionary is often shared by many batches, so answers about it are remembered from its second batch on.
What is kept is a copy, compared by content whenever the dictionary seems to come back: an answer can never
be stale, and neither a batch nor a mapped file is kept alive.
"""

from __future__ import annotations

from threading import Lock
from typing import Final, NamedTuple, TypeAlias
from typing import Literal as OneOf

import numpy as np
import pyarrow as pa

from headgate.checksum import crc32
from headgate.filters.compile.arrow.rows import Array, Bools, Codes, Text, where_valid
from headgate.filters.compile.arrow.text import TextTest
from headgate.forks import call_in_child

SMALL: Final = 32  # values: up to here, asking Python costs less than remembering
MANY: Final = 1024  # values: beyond, for few rows, only the strings that occur there are asked
FEW: Final = 4  # codes: up to here, comparing each costs less than looking into a table
LARGE: Final = 16_384  # rows: from here on, it pays to look for something cheaper than a table
# Larger dictionaries are not remembered, and no more than that is remembered about one.
MAX_BYTES_OF_ONE: Final = 1 << 20
MAX_BYTES: Final = 32 << 20
MAX_SEEN: Final = 4096
END: Final = 4096  # bytes at each end of a dictionary's text that tell it from others


class CodeTest(NamedTuple):
    """Which codes pass, in the form that is cheapest to apply."""

    form: OneOf["none", "all", "few", "all but", "run", "table"]
    codes: tuple[int, ...] = ()
    table: Bools | None = None


NONE: Final = CodeTest("none")
ALL: Final = CodeTest("all")


def strings_pass(test: TextTest, text: Codes | Text) -> Bools:
    """The rows whose string passes the test."""
    if isinstance(text, Text):
        return test.answers(text.array)
    codes, valid, dictionary = text
    values = len(dictionary)
    if values <= SMALL:
        return where_valid(codes_pass(_asked_in_python(test, dictionary), codes), valid)
    known = _memory.recall(dictionary)
    if known is not None:
        return where_valid(codes_pass(_remembered(test, known), codes), valid)
    if values > MANY + 4 * len(codes):
        return test.answers(text.decoded())
    table = test.answers(dictionary)
    passing = CodeTest("table", table=table) if len(codes) < LARGE else _cheapest(table)
    return where_valid(codes_pass(passing, codes), valid)


def codes_pass(test: CodeTest, codes: Array) -> Bools:
    """Where the code passes, as if all were valid."""
    form, chosen, table = test
    if form == "few":
        found: Bools = codes == chosen[0]
        for code in chosen[1:]:
            found |= codes == code
    elif table is not None:
        found = table.take(codes.astype(np.intp, copy=False), mode="clip")
    elif form == "run":
        found = codes >= chosen[0]
        found &= codes < chosen[1]
    elif form == "all but":
        found = codes != chosen[0]
        for code in chosen[1:]:
            found &= codes != code
    else:
        found = np.full(len(codes), form == "all")
    return found


# ---- asking ------------------------------------------------------------------------------------------


def _asked_in_python(test: TextTest, dictionary: pa.Array) -> CodeTest:
    holds, values = test.holds, dictionary.to_pylist()
    chosen = [code for code, value in enumerate(values) if value is not None and holds(value)]
    if 0 < len(chosen) <= FEW:
        return CodeTest("few", tuple(chosen))
    table = np.zeros(len(values), np.bool_)
    table[chosen] = True
    return _cheapest(table)


def _cheapest(table: Bools) -> CodeTest:
    count = int(np.count_nonzero(table))
    if count == 0:
        return NONE
    if count == len(table):
        return ALL
    if count <= FEW:
        return CodeTest("few", tuple(np.flatnonzero(table).tolist()))
    if len(table) - count <= FEW:
        return CodeTest("all but", tuple(np.flatnonzero(~table).tolist()))
    first = int(table.argmax())
    if table[first : first + count].all():
        return CodeTest("run", (first, first + count))
    return CodeTest("table", table=table)


# ---- remembering -------------------------------------------------------------------------------------

# Layout, number of values, bytes, a checksum of both ends: enough to find a dictionary, not to believe it.
_Key: TypeAlias = tuple[int, int, int, int]


class _Known(NamedTuple):
    values: pa.Array
    size: int
    answers: dict[TextTest, CodeTest]


class _Memory:
    """The dictionaries that came back, and the keys of those that may."""

    def __init__(self) -> None:
        self._seen: dict[_Key, None] = {}
        self._known: dict[_Key, _Known] = {}
        self._size = 0
        self._changing = Lock()
        call_in_child(self, _Memory._replace_lock)

    def _replace_lock(self) -> None:
        """In a forked child: a thread of the parent may have held it. At worst the size is off by one dictionary."""
        self._changing = Lock()

    def recall(self, dictionary: pa.Array) -> _Known | None:
        """What is known of the dictionary, if it was seen before."""
        key = _key(dictionary)
        known = self._known.get(key)
        if known is not None and known.values.equals(dictionary):
            return known
        if key in self._seen and dictionary.nbytes <= MAX_BYTES_OF_ONE:
            return self._keep(key, dictionary)
        with self._changing:
            self._seen[key] = None
            if len(self._seen) > MAX_SEEN:
                del self._seen[next(iter(self._seen))]
        return None

    def _keep(self, key: _Key, dictionary: pa.Array) -> _Known:
        copy = dictionary.take(pa.array(np.arange(len(dictionary))))
        known = _Known(copy, copy.nbytes, {})
        with self._changing:
            self._drop(key)
            self._known[key] = known
            self._size += known.size
            while self._size > MAX_BYTES:
                self._drop(next(iter(self._known)))
        return known

    def _drop(self, key: _Key) -> None:
        dropped = self._known.pop(key, None)
        self._size -= 0 if dropped is None else dropped.size


_memory = _Memory()


def forget() -> None:
    """Let go of all dictionaries, as if none had ever been seen."""
    global _memory
    _memory = _Memory()


def _remembered(test: TextTest, known: _Known) -> CodeTest:
    found = known.answers.get(test)
    if found is None:
        if len(known.answers) * len(known.values) > MAX_BYTES_OF_ONE:
            known.answers.clear()
        found = known.answers[test] = _cheapest(test.answers(known.values))
    return found


def _key(dictionary: pa.Array) -> _Key:
    buffer = dictionary.buffers()[-1]
    if buffer is None:
        return dictionary.type.id, len(dictionary), 0, 0
    text = memoryview(buffer)
    ends = crc32(text[-END:], crc32(text[:END]))
    return dictionary.type.id, len(dictionary), len(text), ends

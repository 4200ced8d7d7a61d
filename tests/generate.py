"""Random filters over random messages, chosen where engines are known to differ.

Everything is drawn from a `random.Random`: a seeded one for bulk runs, Hypothesis's own (which shrinks) for
the local engines.
"""

from __future__ import annotations

import math
from enum import IntEnum
from random import Random
from typing import Any

from headgate.filters.nodes import (
    COMPARE_OPS,
    And,
    Arith,
    Compare,
    Constant,
    Exists,
    Field,
    Filter,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Now,
    Operand,
    Or,
    TopicMatch,
    depends_on_time,
    join_terms,
    negation,
)
from headgate.message import INT64_MAX, INT64_MIN, OPAQUE, Message, Opaque

NOW_US = 1_750_000_000_000_000

# Few names, so that filters and messages meet; the odd ones need quoting somewhere.
HEADERS = [
    "a",
    "b",
    "c",
    "region",
    "x-y",
    "a.b",
    "with space",
    "q'uo\"te",
    "back\\slash",
    "$1",
    "",
    "é😀",
]
PROPERTIES = ["subject", "correlation_id", "group_sequence"]
INTS = [
    0, 1, -1, 2, 3, 5, 7, 10, 100, -7, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, -(2**62),
    INT64_MAX, INT64_MAX - 1, INT64_MIN, INT64_MIN + 1, 3_037_000_500, 2**31, 1_750_000_000_000,
]  # fmt: skip
FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 3.0, 0.1, 0.2, 0.30000000000000004, 1e22, 1e23, 1e308, -1e308, 1.7976931348623157e308,
    5e-324, 2.2250738585072014e-308, 1e-200, float(2**53), float(2**53 + 2), float(2**63), -float(2**63), 1e16, 123456.789,
]  # fmt: skip
STRINGS = [
    "", "a", "A", "b", "ab", "abc", "EU", "US", "100%", "a_b", "axb", "%", "_", "a\nb", "é", "e\u0301", "😀", "\uffee",
    "back\\slash", "it's", 'say "hi"', "[a]", "*", "?", "5", "1.0", "true", "x ", " x", "ord-1", "order", "$1", "--", "a.b",
]  # fmt: skip
PATTERNS = [
    "%", "", "_", "a%", "%a", "%a%", "a_b", "%_", "_%_", "a%b", "%a%b%", "100%", "[a]", "*", "?", "or%", "é", "%😀%", "\\",
    "%\\%", "a\n%", "__", "%%", "ord-_",
]  # fmt: skip
ESCAPES = [None, None, None, "!", "\\", "a"]
TOPICS = ["", "a", "a.b", "a.b.c", "orders", "orders.eu", "orders.eu.created", ".", "a.", ".a", "a..b", "#", "*", "a.*",
          "b.a", "é.😀", "a.b.c.d.e", "a.x.b", "a.x.y.b", "orders.new\nline", "a[b].c?"]  # fmt: skip
TOPIC_PATTERNS = ["", "#", "*", "a", "a.#", "#.a", "*.#", "#.*", "a.*", "*.b", "a.#.b", "a.*.b", "orders.#", "orders.*.#",
                  "#.b.#", "*.*", "#.#", ".", "a.", ".#", "a..b", "*.a.#", "a.*.#.b", "a.*.b.#", "é.*", "#.a.*", "a[b].*",
                  "orders.new\nline", "*.x.*.b"]  # fmt: skip


def scalar(rng: Random) -> object:
    pool = rng.choice((STRINGS, STRINGS, INTS, INTS, FLOATS, FLOATS, (True, False)))
    return rng.choice(pool)


def message(rng: Random) -> Message:
    headers = {name: scalar(rng) for name in HEADERS if rng.random() < 0.5}
    if rng.random() < 0.1:
        headers[rng.choice(HEADERS)] = rng.choice((OPAQUE, None))
    return Message(
        topic=rng.choice(TOPICS),
        headers=headers,
        priority=rng.choice((0, 1, 4, 7, 255)),
        timestamp=rng.choice((None, 0, 1_750_000_000_000_000, 1_750_000_000_000_001)),
        id=rng.choice((None, "id-1", "é")),
        filter_value=rng.choice((None, "EU", "US")),
        key=rng.choice((None, "k", "")),
        properties={name: scalar(rng) for name in PROPERTIES if rng.random() < 0.3},
    )


def messages(rng: Random, count: int) -> list[Message]:
    return [message(rng) for _ in range(count)]


class Word(str):
    """Text of another type than str: no message may hold it."""


class Number(IntEnum):
    """An integer of another type than int."""

    ONE = 1


# What may be wrong with a message, and what is just not wrong: each value is tried in every field it may stand in.
NAMES = [
    "", "a", "é", "a\nb", "\x7f", "x" * 255, "x" * 256, "é" * 127, "é" * 128, "😀" * 63, "😀" * 64, "a\0b", "\ud800",
    Word("a"), 5, True, b"a",
]  # fmt: skip
HEADER_VALUES = [
    *NAMES, "x" * 5000, INT64_MAX, INT64_MIN, INT64_MAX + 1, INT64_MIN - 1, 10**400, math.nan, math.inf, -math.inf, 1e308,
    True, False, None, OPAQUE, Opaque(), Number.ONE, [1], {"a": 1}, object(),
]  # fmt: skip
PRIORITIES = [0, 1, 255, 256, -1, True, 1.0, "1", None, 10**400]
TIMESTAMPS = [None, 0, INT64_MAX, INT64_MIN, INT64_MAX + 1, INT64_MIN - 1, True, 1.5, "now"]
PAYLOADS = [b"", b"x", bytearray(b"x"), memoryview(b"x"), "text", None, 5]


def suspect_message(rng: Random) -> Message:
    """A message that may be invalid in any of its fields; about half of them are valid."""
    fields: dict[str, Any] = {}
    for name, values in {
        "payload": PAYLOADS,
        "topic": NAMES,
        "priority": PRIORITIES,
        "timestamp": TIMESTAMPS,
        "id": [None, *NAMES],
        "filter_value": [None, *NAMES],
        "key": [None, *NAMES],
    }.items():
        if rng.random() < 0.08:
            fields[name] = rng.choice(values)
    headers: dict[Any, Any] = {name: scalar(rng) for name in ("a", "b", "c") if rng.random() < 0.7}
    if rng.random() < 0.1:
        # A batch and a producer take a name of a subclass of str for an equal one they have seen: both mean one text.
        headers[rng.choice([name for name in NAMES if type(name) is not Word])] = scalar(rng)
    if rng.random() < 0.2:
        headers[rng.choice("abc")] = rng.choice(HEADER_VALUES)
    if rng.random() < 0.1:
        known = rng.random() < 0.7
        fields["properties"] = {"subject" if known else "colour": rng.choice(HEADER_VALUES)}
    return Message(headers=headers, **fields)


def field(rng: Random) -> Field:
    where = rng.random()
    if where < 0.8:
        return Field("header", rng.choice(HEADERS[:4] if rng.random() < 0.7 else HEADERS))
    if where < 0.9:
        return Field("property", rng.choice(PROPERTIES))
    return Field("sys", rng.choice(("topic", "priority", "timestamp", "id", "filter_value", "key")))


def literal(rng: Random) -> Literal:
    return Literal(scalar(rng))  # type: ignore[arg-type]


def operand(rng: Random, depth: int = 2) -> Operand:
    kind = rng.random()
    if depth and kind < 0.18:
        return Arith(rng.choice("+-*/%"), _number(rng, depth - 1), _number(rng, depth - 1))  # type: ignore[arg-type]
    if depth and kind < 0.22:
        return Negate(_number(rng, depth - 1, literals=False))
    if kind < 0.25:
        return Now()
    return literal(rng) if kind < 0.35 else field(rng)


def _number(rng: Random, depth: int, *, literals: bool = True) -> Operand:
    if literals and rng.random() < 0.4:
        return Literal(rng.choice(INTS + FLOATS))
    found = operand(rng, depth)
    while isinstance(found, Literal) and (not literals or found.kind not in ("int", "float")):
        found = operand(rng, depth)
    return found


def leaf(rng: Random) -> Filter:
    kind = rng.random()
    negated = rng.random() < 0.3
    if kind < 0.40:
        return Compare(rng.choice(COMPARE_OPS), field(rng), literal(rng))
    if kind < 0.55:
        return Compare(rng.choice(COMPARE_OPS), operand(rng), operand(rng))
    if kind < 0.70:
        make = literal if rng.random() < 0.8 else operand
        items = tuple(make(rng) for _ in range(rng.randint(1, 4)))
        return In(field(rng) if rng.random() < 0.8 else operand(rng), items, negated)
    if kind < 0.82:
        return like(rng, negated)
    if kind < 0.87:
        return IsNull(field(rng), negated)
    if kind < 0.91:
        return Exists(field(rng), negated)
    if kind < 0.98:
        return TopicMatch(rng.choice(TOPIC_PATTERNS), negated)
    return Constant(rng.random() < 0.5)


def like(rng: Random, negated: bool) -> Like:
    escape = rng.choice(ESCAPES)
    pattern = rng.choice(PATTERNS)
    if escape is not None:
        pattern = pattern.replace(escape, escape * 2).replace("%", escape + "%", rng.randint(0, 1))
    return Like(field(rng) if rng.random() < 0.9 else operand(rng), pattern, escape, negated)


def filter(rng: Random, depth: int = 3) -> Filter:
    shape = rng.random()
    if not depth or shape < 0.35:
        return leaf(rng)
    if shape < 0.5:
        return negation(filter(rng, depth - 1))
    joint = And if shape < 0.75 else Or
    return join_terms(joint, [filter(rng, depth - 1) for _ in range(rng.randint(2, 4))])


def timeless(rng: Random) -> Filter:
    """A filter that means the same at any time."""
    while depends_on_time(found := filter(rng)):
        pass
    return found

"""Filter -> a verdict from the summary of a chunk alone: NONE of its messages match, ALL do, or SOME might.

Abstract evaluation: for every leaf, can a message of this chunk make it TRUE, and must every one? AND and OR carry
both answers up. A leaf that the facts do not cover answers "can: yes, must: no", so NONE and ALL are always right and
SOME is never wrong; it only costs reading the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, assert_never

import numpy as np

from headgate.clock import now_us
from headgate.filters import logic
from headgate.filters.cost import cost
from headgate.filters.facts import ChunkNumbers, Counts, Facts, FieldFacts, Flags, ValueRange
from headgate.filters.like import literal_prefix
from headgate.filters.nodes import (
    TOPIC,
    And,
    Arith,
    Compare,
    CompareOp,
    Constant,
    Exists,
    Field,
    Filter,
    In,
    IsNull,
    Kind,
    Leaf,
    Like,
    Literal,
    Negate,
    Not,
    Operand,
    Or,
    TopicMatch,
    fields_read,
    walk,
)
from headgate.filters.normal import NormalFilter, normalize
from headgate.filters.topics import MANY, ONE, canonical
from headgate.message import Message, Scalar

_NUMBERS: Final[tuple[Kind, ...]] = ("int", "float")
_MOST_TRUTHS: Final = 1 << 14  # values of one leaf that are remembered


class Verdict(IntEnum):
    """The verdict on one chunk."""

    NONE = 0  # no message of the chunk matches: skip it
    SOME = 1  # test the messages
    ALL = 2  # every message matches: pass the chunk on as it is


class Verdicts(NamedTuple):
    """One verdict for each chunk: `some` is False only if none can match, `all` True only if every one does."""

    some: Flags
    all: Flags

    def __getitem__(self, chunk: int) -> Verdict:  # type: ignore[override]
        if not self.some[chunk]:
            return Verdict.NONE
        return Verdict.ALL if self.all[chunk] else Verdict.SOME


def judge(
    node: Filter | NormalFilter, facts: Facts, *, now: Callable[[], int] = now_us
) -> Verdicts:
    """Judge every chunk. An empty chunk holds no match: NONE."""
    judged = _judge(_bound_tree(node, now), facts, np.arange(len(facts)))
    filled = facts.rows > 0
    return Verdicts(judged.some & filled, judged.all & filled)


def _bound_tree(node: Filter | NormalFilter, now: Callable[[], int]) -> Filter:
    normal = normalize(node)
    return normal.at(now()).tree if normal.depends_on_time else normal.tree


def _judge(node: Filter, facts: Facts, chunks: ChunkNumbers) -> Verdicts:
    match node:
        case And(terms=terms):
            return _all_of(_facts_before_probes(terms, facts), facts, chunks)
        case Or(terms=terms):
            return _any_of(_facts_before_probes(terms, facts), facts, chunks)
        case Not():
            raise AssertionError("a normal form holds no NOT")
        case _:
            return _judge_leaf(node, facts, chunks)


def _facts_before_probes(terms: tuple[Filter, ...], facts: Facts) -> list[Filter]:
    """Sort terms by cost: counts and ranges cost an array comparison, a Bloom probe reads bytes of every filter."""
    needs_probe = [not fields_read(term) <= facts.fields.keys() for term in terms]
    ranked = sorted(zip(needs_probe, map(cost, terms), terms, strict=True), key=lambda t: t[:2])
    return [term for _, _, term in ranked]


def _all_of(terms: list[Filter], facts: Facts, chunks: ChunkNumbers) -> Verdicts:
    some, every = np.ones(len(chunks), np.bool_), np.ones(len(chunks), np.bool_)
    # Later terms judge only the chunks that earlier ones let through.
    left = np.arange(len(chunks))
    for term in terms:
        judged = _judge(term, facts, chunks[left])
        some[left], every[left] = judged.some, every[left] & judged.all
        left = left[judged.some]
    return Verdicts(some, every & some)


def _any_of(terms: list[Filter], facts: Facts, chunks: ChunkNumbers) -> Verdicts:
    some, every = np.zeros(len(chunks), np.bool_), np.zeros(len(chunks), np.bool_)
    left = np.arange(len(chunks))
    for term in terms:
        judged = _judge(term, facts, chunks[left])
        some[left], every[left] = some[left] | judged.some, judged.all
        left = left[~judged.all]
    return Verdicts(some, every)


# ---- leaves ------------------------------------------------------------------------------------------


def _judge_leaf(leaf: Leaf, facts: Facts, chunks: ChunkNumbers) -> Verdicts:
    if isinstance(leaf, Constant):
        return _verdict_of(leaf.value, chunks)
    field = judged_field(leaf)
    if field is None:
        return _judge_computed(leaf, facts, chunks)
    judged = _by_facts(leaf, field, facts, chunks)
    return _by_probe(leaf, field, facts, chunks, judged)


def judged_field(leaf: Leaf) -> Field | None:
    """Return the field of a leaf that compares one field with constants."""
    match leaf:
        case Compare(left=Field() as field, right=Literal()) | Like(value=Field() as field):
            return field
        case In(value=Field() as field, items=items):
            return field if all(isinstance(item, Literal) for item in items) else None
        case IsNull(field=field) | Exists(field=field):
            return field
        case TopicMatch():
            return TOPIC
        case Compare() | In() | Like() | Constant():
            return None
        case _:
            assert_never(leaf)


def _by_facts(leaf: Leaf, field: Field, facts: Facts, chunks: ChunkNumbers) -> Verdicts:
    known = facts.fields.get(field)
    if known is None:
        return _unknown(chunks)
    judged = _by_ranges(leaf, known, facts.rows[chunks], chunks)
    if known.distinct is not None and not isinstance(leaf, IsNull | Exists):
        judged = _by_distinct(leaf, field, known, facts, chunks, judged)
    return (
        judged if known.covered is None else _where(known.covered[chunks], judged, _unknown(chunks))
    )


def _by_distinct(
    leaf: Leaf,
    field: Field,
    known: FieldFacts,
    facts: Facts,
    chunks: ChunkNumbers,
    otherwise: Verdicts,
) -> Verdicts:
    """Try every value where all are known: exact for every leaf."""
    distinct = known.distinct
    assert distinct is not None
    holds = _truths_of(leaf, field)
    truth = np.array([holds[type(value), value] for value in distinct.values], np.bool_)
    some, every = distinct.any_and_all(truth, chunks)
    every &= _count_comparable(known, chunks) == facts.rows[chunks]
    return _where(distinct.complete[chunks], Verdicts(some, every), otherwise)


class _Truths(dict[tuple[type, Scalar], bool]):
    """Whether a leaf holds for a value of its field. Segments share most values: each is tried once."""

    def __init__(self, leaf: Leaf, field: Field) -> None:
        self.leaf, self.field = leaf, field

    def __missing__(self, key: tuple[type, Scalar]) -> bool:
        if len(self) >= _MOST_TRUTHS:
            self.clear()
        truth = self[key] = _holds(self.leaf, self.field, key[1])
        return truth


@lru_cache(256)
def _truths_of(leaf: Leaf, field: Field) -> _Truths:
    return _Truths(leaf, field)


def _holds(leaf: Leaf, field: Field, value: Scalar) -> bool:
    match field.scope:
        case "header":
            message = Message(headers={field.name: value})
        case "property":
            message = Message(properties={field.name: value})
        case "sys":
            message = Message(**{field.name: value})  # type: ignore[arg-type]
    return logic.matches_filter(leaf, message)


def _by_probe(
    leaf: Leaf, field: Field, facts: Facts, chunks: ChunkNumbers, judged: Verdicts
) -> Verdicts:
    """A Bloom hit proves nothing; a miss proves absence. Only a miss may skip."""
    required = list(required_values(leaf))
    if not required:
        return judged
    asked = np.flatnonzero(judged.some & ~judged.all)
    hit = np.zeros(len(asked), np.bool_)
    for value in required:
        answer = facts.probe(field, value, chunks[asked])
        if answer is None:
            return judged
        hit |= answer
    some = judged.some.copy()
    some[asked] = hit
    return Verdicts(some, judged.all)


def required_values(leaf: Leaf) -> Iterator[Scalar]:
    """Yield the values of which the field must have one for the leaf to be TRUE; nothing for other leaves."""
    match leaf:
        case Compare(op="=", right=Literal(value=value)):
            yield value
        case In(items=items, negated=False):
            yield from (item.value for item in items if isinstance(item, Literal))


def _judge_computed(leaf: Leaf, facts: Facts, chunks: ChunkNumbers) -> Verdicts:
    """Judge arithmetic, or field against field: NONE where a field that it needs has no value."""
    some = np.ones(len(chunks), np.bool_)
    for field, kinds in needed_fields(leaf):
        known = facts.fields.get(field)
        if known is None:
            continue
        has_one = _count_comparable(known, chunks, kinds) > 0
        some &= has_one if known.covered is None else has_one | ~known.covered[chunks]
    return Verdicts(some, np.zeros(len(chunks), np.bool_))


def needed_fields(leaf: Leaf) -> Iterator[tuple[Field, tuple[Kind, ...]]]:
    """Yield the fields without which the leaf is UNKNOWN, and the kinds it can use."""
    operands: tuple[Operand, ...] = ()
    match leaf:
        case Compare(left=left, right=right):
            operands = (left, right)
        case In(value=value) | Like(value=value):
            operands = (value,)
    for operand in operands:
        kinds = _NUMBERS if isinstance(operand, Arith | Negate) else ("string", *_NUMBERS, "bool")
        yield from ((node, kinds) for node in walk(operand) if isinstance(node, Field))


# ---- ranges ------------------------------------------------------------------------------------------


def _by_ranges(leaf: Leaf, known: FieldFacts, rows: Counts, chunks: ChunkNumbers) -> Verdicts:
    comparable = _count_comparable(known, chunks)
    match leaf:
        case IsNull(negated=negated):
            return _verdict_of_counts(comparable if negated else rows - comparable, rows)
        case Exists(negated=negated):
            present = comparable if known.opaque is None else comparable + known.opaque[chunks]
            return _verdict_of_counts(rows - present if negated else present, rows)
        case _:
            return _by_kinds(leaf, known, comparable == rows, chunks)


def _by_kinds(
    leaf: Leaf, known: FieldFacts, all_comparable: Flags, chunks: ChunkNumbers
) -> Verdicts:
    some, every = np.zeros(len(chunks), np.bool_), all_comparable.copy()
    for kind, whole_range in known.ranges.items():
        part = whole_range.at(chunks)
        judged = _judge_range(leaf, kind, part, chunks)
        held = part.count > 0
        some |= judged.some & held
        every &= judged.all | ~held
    return Verdicts(some, every & some)


def _judge_range(leaf: Leaf, kind: Kind, part: ValueRange, chunks: ChunkNumbers) -> Verdicts:
    match leaf:
        case Compare(op=op, right=Literal() as literal):
            return _compare_range(op, literal, kind, part, chunks)
        case In(items=items, negated=negated):
            op = "<>" if negated else "="
            answers = [
                _compare_range(op, item, kind, part, chunks)
                for item in items
                if isinstance(item, Literal)
            ]
            combine = np.logical_and if negated else np.logical_or
            return Verdicts(
                combine.reduce([a.some for a in answers]), combine.reduce([a.all for a in answers])
            )
        case Like(pattern=pattern, escape=escape, negated=negated) if kind == "string":
            return _prefix_range(literal_prefix(pattern, escape), negated, part, chunks)
        case TopicMatch(pattern=pattern, negated=negated) if kind == "string":
            return _prefix_range(_topic_prefix(pattern), negated, part, chunks)
        case _:
            return _verdict_of(False, chunks)  # a comparison with another kind is UNKNOWN


def _compare_range(
    op: CompareOp, literal: Literal, kind: Kind, part: ValueRange, chunks: ChunkNumbers
) -> Verdicts:
    if not _comparable_kinds(kind, literal.kind):
        return _verdict_of(False, chunks)
    if part.low is None or part.high is None:
        return _unknown(chunks)
    low, high, value = part.low, part.high, literal.value
    if kind != literal.kind:  # an int and a float compare as doubles
        low, high, value = low.astype(np.float64), high.astype(np.float64), float(value)
    only = (low == value) & (high == value)
    match op:
        case "=":
            return Verdicts(_flags((low <= value) & (high >= value)), _flags(only))
        case "<>":
            return Verdicts(_flags(~_flags(only)), _flags((low > value) | (high < value)))
        case "<" | "<=":
            test = logic.OPERATORS[op]
            return Verdicts(_flags(test(low, value)), _flags(test(high, value)))
        case ">" | ">=":
            test = logic.OPERATORS[op]
            return Verdicts(_flags(test(high, value)), _flags(test(low, value)))
        case _:
            assert_never(op)


def _comparable_kinds(kind: Kind, other: Kind) -> bool:
    return kind == other or (kind in _NUMBERS and other in _NUMBERS)


def _prefix_range(prefix: str, negated: bool, part: ValueRange, chunks: ChunkNumbers) -> Verdicts:
    """Judge a pattern by its literal prefix: every match begins with it."""
    if negated or not prefix or part.low is None or part.high is None:
        return _unknown(chunks)
    reaches = _flags(part.high >= prefix)
    begins = np.array([low <= prefix or low.startswith(prefix) for low in part.low], np.bool_)
    return Verdicts(reaches & begins, np.zeros(len(chunks), np.bool_))


def _topic_prefix(pattern: str) -> str:
    words = canonical(pattern)
    wild = next((i for i, word in enumerate(words) if word in (ONE, MANY)), len(words))
    return ".".join(words[:wild])


# ---- verdicts and counts -----------------------------------------------------------------------------


def _count_comparable(
    known: FieldFacts,
    chunks: ChunkNumbers,
    kinds: tuple[Kind, ...] = ("string", "int", "float", "bool"),
) -> Counts:
    """Count the messages of each chunk that hold a value of these kinds."""
    total = np.zeros(len(chunks), np.int64)
    for kind, part in known.ranges.items():
        if kind in kinds:
            total += part.count[chunks]
    return total


def _verdict_of_counts(true: Counts, rows: Counts) -> Verdicts:
    return Verdicts(true > 0, true == rows)


def _verdict_of(value: bool, chunks: ChunkNumbers) -> Verdicts:
    return Verdicts(np.full(len(chunks), value), np.full(len(chunks), value))


def _unknown(chunks: ChunkNumbers) -> Verdicts:
    return Verdicts(np.ones(len(chunks), np.bool_), np.zeros(len(chunks), np.bool_))


def _where(condition: Flags, yes: Verdicts, no: Verdicts) -> Verdicts:
    return Verdicts(np.where(condition, yes.some, no.some), np.where(condition, yes.all, no.all))


def _flags(answer: Any) -> Flags:
    # Comparing object arrays (text) returns object arrays of bools.
    return np.asarray(answer, np.bool_)

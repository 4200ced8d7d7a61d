"""The tree every filter becomes, whether it was written as text or built in Python.

    Filter  = Constant | Compare | In | Like | IsNull | Exists | TopicMatch | Not | And | Or
    Operand = Literal | Field | Now | Negate | Arith

Nodes are frozen values: hashable, picklable, equal when they are written alike. They refuse to be built from the
wrong things, so that every tree can be compiled. They carry no behaviour; each compiler is a function over them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from typing import Literal as OneOf

from headgate.errors import FilterLimitError, FilterTypeError, InvalidMessage
from headgate.filters.topics import check_pattern
from headgate.message import (
    INT64_MAX,
    INT64_MIN,
    SYSTEM_FIELDS,
    UNSTORABLE,
    Scalar,
    check_header_name,
)

Kind: TypeAlias = OneOf["string", "int", "float", "bool"]
View: TypeAlias = Kind | OneOf["opaque"]  # one kind of a field's values, or where they are opaque
Scope: TypeAlias = OneOf["header", "sys", "property"]
CompareOp: TypeAlias = OneOf["=", "<>", "<", "<=", ">", ">="]
ArithOp: TypeAlias = OneOf["+", "-", "*", "/", "%"]
LiteralForm: TypeAlias = OneOf["", "timestamp", "interval"]

KINDS: Final[tuple[Kind, ...]] = ("string", "int", "float", "bool")
VIEWS: Final[tuple[View, ...]] = (*KINDS, "opaque")
KIND_OF: Final[dict[type, Kind]] = {str: "string", int: "int", float: "float", bool: "bool"}
COMPARE_OPS: Final[tuple[CompareOp, ...]] = ("=", "<>", "<", "<=", ">", ">=")
ARITH_OPS: Final[tuple[ArithOp, ...]] = ("+", "-", "*", "/", "%")
# Every system field has one kind.
SYS_KINDS: Final[dict[str, Kind]] = {system.name: system.kind for system in SYSTEM_FIELDS}

MAX_DEPTH: Final = 64
MAX_IN_ITEMS: Final = 1024


# ---- operands: what a condition compares -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. `Literal(1)`, `Literal(1.0)` and `Literal(True)` are three different things."""

    value: Scalar
    # How it was written; only the printer reads it.
    form: LiteralForm = field(default="", compare=False)
    kind: Kind = field(init=False)

    def __post_init__(self) -> None:
        kind = KIND_OF.get(type(self.value))
        if kind is None:
            what = f"{type(self.value).__name__}: {self.value!r}"
            hint = "; write is_null() or is_not_null()" if self.value is None else ""
            raise FilterTypeError(f"a filter compares str, int, float or bool, not {what}{hint}")
        if isinstance(self.value, str) and UNSTORABLE.search(self.value):
            raise FilterTypeError(
                f"text in a filter cannot hold NUL or lone surrogates: {self.value!r}"
            )
        if kind == "int" and not INT64_MIN <= self.value <= INT64_MAX:  # type: ignore[operator]
            raise FilterTypeError(
                f"{self.value} does not fit into 64 bits; write it as a float, {self.value}.0"
            )
        if kind == "float" and not math.isfinite(self.value):  # type: ignore[arg-type]
            raise FilterTypeError(f"a filter compares finite numbers, not {self.value}")
        object.__setattr__(self, "kind", kind)


@dataclass(frozen=True, slots=True)
class Field:
    """A header, a system field or an AMQP property of the message."""

    scope: Scope
    name: str

    def __post_init__(self) -> None:
        if self.scope == "sys" and self.name not in SYS_KINDS:
            raise FilterTypeError(f"there is no sys.{self.name}; there are {', '.join(SYS_KINDS)}")
        if self.scope == "header":
            try:
                check_header_name(self.name)
            except InvalidMessage as problem:
                raise FilterTypeError(str(problem)) from None


@dataclass(frozen=True, slots=True)
class Now:
    """`UTC()`: the moment of evaluation, in microseconds since 1970; one moment for the whole filter."""


@dataclass(frozen=True, slots=True)
class Negate:
    """Unary minus. The most negative integer has no negative: UNKNOWN."""

    value: Operand

    def __post_init__(self) -> None:
        _need_number(self.value, "-")


@dataclass(frozen=True, slots=True)
class Arith:
    """`left op right` on numbers; UNKNOWN for anything else, on overflow and on division by zero."""

    op: ArithOp
    left: Operand
    right: Operand

    def __post_init__(self) -> None:
        if self.op not in ARITH_OPS:
            raise FilterTypeError(
                f"unknown arithmetic operator {self.op!r}; there are {' '.join(ARITH_OPS)}"
            )
        _need_number(self.left, self.op)
        _need_number(self.right, self.op)


Operand: TypeAlias = Literal | Field | Now | Negate | Arith


# ---- filters: conditions that are TRUE, FALSE or UNKNOWN ---------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE or FALSE."""

    value: bool


@dataclass(frozen=True, slots=True)
class Compare:
    """`left op right`: UNKNOWN unless both have a value of kinds that can be compared."""

    op: CompareOp
    left: Operand
    right: Operand

    def __post_init__(self) -> None:
        if self.op not in COMPARE_OPS:
            raise FilterTypeError(
                f"unknown comparison {self.op!r}; there are {' '.join(COMPARE_OPS)}"
            )
        _need_operand(self.left, self.op)
        _need_operand(self.right, self.op)


@dataclass(frozen=True, slots=True)
class In:
    """`value IN (items)`: an OR of equalities; negated, an AND of inequalities."""

    value: Operand
    items: tuple[Operand, ...]
    negated: bool = False

    def __post_init__(self) -> None:
        _need_operand(self.value, "IN")
        if not self.items:
            raise FilterTypeError(
                "IN needs at least one value; an empty list matches nothing: use FALSE, or leave the condition out"
            )
        if len(self.items) > MAX_IN_ITEMS:
            raise FilterLimitError("values in one IN list", len(self.items), MAX_IN_ITEMS)
        for item in self.items:
            _need_operand(item, "IN")


@dataclass(frozen=True, slots=True)
class Like:
    """Whole-string match: `%` any run, `_` one code point, `escape` makes the next character literal."""

    value: Operand
    pattern: str
    escape: str | None = None
    negated: bool = False

    def __post_init__(self) -> None:
        _need_operand(self.value, "LIKE")
        if not isinstance(self.pattern, str) or UNSTORABLE.search(self.pattern):
            raise FilterTypeError(
                f"LIKE needs a text pattern without NUL or lone surrogates, not {self.pattern!r}"
            )
        if self.escape is None:
            return
        if not isinstance(self.escape, str) or len(self.escape) != 1 or self.escape in "%_":
            raise FilterTypeError(
                f"ESCAPE needs one character other than % and _, not {self.escape!r}"
            )
        if _ends_in_escape(self.pattern, self.escape):
            raise FilterTypeError(
                f"the LIKE pattern {self.pattern!r} ends with its escape character"
            )


@dataclass(frozen=True, slots=True)
class IsNull:
    """TRUE when the field has no value that a filter can compare."""

    field: Field
    negated: bool = False

    def __post_init__(self) -> None:
        _need_field(self.field, "IS NULL")


@dataclass(frozen=True, slots=True)
class Exists:
    """TRUE when the field exists, even if no filter can compare its value (an AMQP list, for example)."""

    field: Field
    negated: bool = False

    def __post_init__(self) -> None:
        _need_field(self.field, "EXISTS")


@dataclass(frozen=True, slots=True)
class TopicMatch:
    """`sys.topic MATCHES pattern`: words separated by dots, `*` one word, `#` any number of words."""

    pattern: str
    negated: bool = False

    def __post_init__(self) -> None:
        check_pattern(self.pattern)


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT term`."""

    term: Filter

    def __post_init__(self) -> None:
        _need_filter(self.term, "NOT")


@dataclass(frozen=True, slots=True)
class And:
    """`term AND term …`."""

    terms: tuple[Filter, ...]

    def __post_init__(self) -> None:
        _need_terms(self.terms, "AND")


@dataclass(frozen=True, slots=True)
class Or:
    """`term OR term …`."""

    terms: tuple[Filter, ...]

    def __post_init__(self) -> None:
        _need_terms(self.terms, "OR")


Leaf: TypeAlias = Constant | Compare | In | Like | IsNull | Exists | TopicMatch
Filter: TypeAlias = Leaf | Not | And | Or
Node: TypeAlias = Filter | Operand

TRUE: Final = Constant(True)
FALSE: Final = Constant(False)
TOPIC: Final = Field("sys", "topic")

OPERAND_TYPES: Final = (Literal, Field, Now, Negate, Arith)
FILTER_TYPES: Final = (Constant, Compare, In, Like, IsNull, Exists, TopicMatch, Not, And, Or)


def negation(term: Filter) -> Filter:
    """Negate a term, as the parser and the builder do."""
    return Exists(term.field, not term.negated) if isinstance(term, Exists) else Not(term)


def join_terms(joint: type[And] | type[Or], terms: Iterable[Filter]) -> Filter:
    """Join the terms under one AND or OR, without nesting one in its own kind."""
    flat: list[Filter] = []
    for term in terms:
        _need_filter(term, joint.__name__.upper())
        flat.extend(term.terms if isinstance(term, joint) else (term,))
    return flat[0] if len(flat) == 1 else joint(tuple(flat))


# ---- walking a tree ----------------------------------------------------------------------------------


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly below."""
    match node:
        case Compare(left=left, right=right) | Arith(left=left, right=right):
            return (left, right)
        case In(value=value, items=items):
            return (value, *items)
        case Like(value=value) | Negate(value=value):
            return (value,)
        case IsNull(field=name) | Exists(field=name):
            return (name,)
        case Not(term=term):
            return (term,)
        case And(terms=terms) | Or(terms=terms):
            return terms
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and everything below it, in the order it was written."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def fields_read(node: Node) -> frozenset[Field]:
    """Collect every field that the filter reads."""
    found = {n for n in walk(node) if isinstance(n, Field)}
    if any(isinstance(n, TopicMatch) for n in walk(node)):
        found.add(TOPIC)
    return frozenset(found)


def depends_on_time(node: Node) -> bool:
    """Tell whether the filter asks for `UTC()`."""
    return any(isinstance(n, Now) for n in walk(node))


def check_depth(node: Node) -> None:
    """Refuse a tree that is nested too deep for the compilers, which recurse."""
    stack = [(node, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise FilterLimitError("levels of nesting", depth, MAX_DEPTH)
        stack.extend((child, depth + 1) for child in children(node))


# ---- what a node may be built from -------------------------------------------------------------------


def _need_operand(value: object, where: str) -> None:
    if not isinstance(value, OPERAND_TYPES):
        raise FilterTypeError(f"{where} compares values, not {_describe(value)}")


def _need_number(value: object, op: str) -> None:
    _need_operand(value, op)
    if isinstance(value, Literal) and value.kind not in ("int", "float"):
        raise FilterTypeError(f"{op} computes with numbers, not with {value.value!r}")


def _need_field(value: object, where: str) -> None:
    if not isinstance(value, Field):
        raise FilterTypeError(
            f"{where} needs the name of a header or field, not {_describe(value)}"
        )


def _need_filter(value: object, where: str) -> None:
    if not isinstance(value, FILTER_TYPES):
        raise FilterTypeError(f"{where} joins conditions, not {_describe(value)}")


def _need_terms(terms: object, where: str) -> None:
    if not isinstance(terms, tuple) or not terms:
        raise FilterTypeError(f"{where} needs a tuple of at least one condition")
    for term in terms:
        _need_filter(term, where)


def _describe(value: object) -> str:
    if isinstance(value, FILTER_TYPES):
        return "a condition"
    if isinstance(value, OPERAND_TYPES):
        return "a bare value"
    return repr(value)


def _ends_in_escape(pattern: str, escape: str) -> bool:
    at = 0
    while at < len(pattern):
        at += 2 if pattern[at] == escape else 1
    return at > len(pattern)

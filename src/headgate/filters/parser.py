"""Text -> tree. Bad text is refused with its line, its column and what was expected there."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final, NamedTuple, cast

from lark import Transformer

from headgate.errors import FilterError, FilterSyntaxError, FilterTypeError
from headgate.filters.automaton import END, Automaton, Lexeme, Unexpected
from headgate.filters.nodes import (
    FILTER_TYPES,
    MAX_DEPTH,
    OPERAND_TYPES,
    SYS_KINDS,
    TRUE,
    And,
    Arith,
    ArithOp,
    Compare,
    CompareOp,
    Constant,
    Exists,
    Field,
    Filter,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Node,
    Now,
    Operand,
    Or,
    TopicMatch,
    check_depth,
    joined,
    negation,
)
from headgate.filters.scanner import scan
from headgate.message import INT64_MAX, PROPERTY_NAMES, SYSTEM_FIELDS

_MOST_DIGITS: Final = len(str(INT64_MAX))  # Python refuses to read thousands of them
_TOO_LARGE: Final = "the integer does not fit into 64 bits; write it as a float"


def parse(text: str) -> Filter:
    """The tree of a filter's text; blank text matches everything."""
    if not isinstance(text, str):
        raise FilterTypeError(f"a filter is text, not {type(text).__name__}: {text!r}")
    return _parsed(text)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Filter:
    if not text.strip(" \t\f\n\r"):
        return TRUE
    lexemes = scan(text)
    try:
        tree = _TreeBuilder.condition(_automaton().run(lexemes))
    except Unexpected as unexpected:
        raise _syntax_error(unexpected, text) from None
    except _Misplaced as misplaced:
        raise misplaced.located(text) from None
    if (
        len(lexemes) >= MAX_DEPTH
    ):  # every level took one at least, but for the `= TRUE` of a bare name
        check_depth(tree)
    return tree


@cache
def _automaton() -> Automaton:
    return Automaton(files(__package__).joinpath("grammar.lark").read_text(), _TreeBuilder())


# ---- building the tree -------------------------------------------------------------------------------


class _Placed(NamedTuple):
    """A node and where its text begins, so that a complaint about it can point there."""

    node: Node | _TooBig
    at: int


class _TooBig(NamedTuple):
    """2**63: an integer only when a minus stands before it."""


class _Misplaced(Exception):
    """A problem at a place; the parser turns it into FilterSyntaxError when it knows the text."""

    def __init__(self, problem: str, at: int) -> None:
        self.problem, self.at = problem, at
        super().__init__(problem)

    def located(self, text: str) -> FilterSyntaxError:
        return FilterSyntaxError(self.problem, text, self.at)


class _TreeBuilder(Transformer[Lexeme, _Placed]):
    """One method per rule of grammar.lark; every child is a `_Placed` or a lexeme."""

    # -- conditions

    def disjunction(self, terms: list[_Placed]) -> _Placed:
        return _Placed(joined(Or, map(self.condition, terms)), terms[0].at)

    def conjunction(self, terms: list[_Placed]) -> _Placed:
        return _Placed(joined(And, map(self.condition, terms)), terms[0].at)

    def negation(self, children: list[_Placed]) -> _Placed:
        return _Placed(negation(self.condition(children[0])), children[0].at)

    def compare(self, children: list[Any]) -> _Placed:
        left, op, right = children
        spelled = cast(CompareOp, "<>" if op.text == "!=" else op.text)
        return _Placed(Compare(spelled, self.operand(left), self.operand(right)), left.at)

    def is_in(self, children: list[Any], negated: bool = False) -> _Placed:
        value, items = children
        return self.build(value.at, In, self.operand(value), items, negated)

    def is_not_in(self, children: list[Any]) -> _Placed:
        return self.is_in(children, negated=True)

    def items(self, children: list[_Placed]) -> tuple[Operand, ...]:
        return tuple(map(self.operand, children))

    def like(self, children: list[Any], negated: bool = False) -> _Placed:
        value, pattern, escape = children
        escape_text = None if escape is None else _unquoted(escape)
        where = pattern.at if escape is None else escape.at
        return self.build(
            where,
            Like,
            self.operand(value),
            _unquoted(pattern),
            escape_text,
            negated,
            begins=value.at,
        )

    def not_like(self, children: list[Any]) -> _Placed:
        return self.like(children, negated=True)

    def between(self, children: list[_Placed]) -> _Placed:
        value, low, high = map(self.operand, children)
        return _Placed(And((Compare(">=", value, low), Compare("<=", value, high))), children[0].at)

    def not_between(self, children: list[_Placed]) -> _Placed:
        inside = self.between(children)
        return _Placed(negation(self.condition(inside)), inside.at)

    def is_null(self, children: list[_Placed], negated: bool = False) -> _Placed:
        return _Placed(IsNull(self.field(children[0], "IS NULL"), negated), children[0].at)

    def is_not_null(self, children: list[_Placed]) -> _Placed:
        return self.is_null(children, negated=True)

    def topic_match(self, children: list[Any], negated: bool = False) -> _Placed:
        value, pattern = children
        if value.node != Field("sys", "topic"):
            raise _Misplaced(
                "MATCHES compares sys.topic with a topic pattern; use LIKE for other text", value.at
            )
        return self.build(pattern.at, TopicMatch, _unquoted(pattern), negated, begins=value.at)

    def not_topic_match(self, children: list[Any]) -> _Placed:
        return self.topic_match(children, negated=True)

    def exists(self, children: list[_Placed]) -> _Placed:
        return _Placed(Exists(self.field(children[0], "EXISTS")), children[0].at)

    # -- values

    def arith(self, children: list[Any]) -> _Placed:
        left, op, right = children
        self.number_wanted(left, op), self.number_wanted(right, op)
        computed = Arith(cast(ArithOp, op.text), self.operand(left), self.operand(right))
        return _Placed(computed, left.at)

    def minus(self, children: list[Any]) -> _Placed:
        sign, value = children
        if isinstance(value.node, _TooBig):
            return _Placed(Literal(-(2**63)), sign.at)
        self.number_wanted(value, sign)
        operand = self.operand(value)
        folded = isinstance(operand, Literal) and operand.value != -(2**63)
        node = Literal(-cast(float, operand.value)) if folded else Negate(operand)  # type: ignore[union-attr]
        return _Placed(node, sign.at)

    def plus(self, children: list[Any]) -> _Placed:
        sign, value = children
        self.number_wanted(value, sign)
        operand = self.operand(value)
        # A plus changes no number, but it makes anything else UNKNOWN: it is not nothing.
        node = operand if isinstance(operand, Literal) else Arith("+", Literal(0), operand)
        return _Placed(node, sign.at)

    def number(self, children: list[Lexeme]) -> _Placed:
        _, text, at = children[0]
        if not text.isdigit():
            value = float(text)
            if math.isinf(value):
                raise _Misplaced("the number is too large for a float", at)
            return _Placed(Literal(value), at)
        digits = text.lstrip("0") or "0"
        if len(digits) > _MOST_DIGITS:
            raise _Misplaced(_TOO_LARGE, at)
        whole = int(digits)
        if whole == INT64_MAX + 1:
            return _Placed(_TooBig(), at)
        return self.build(at, Literal, whole)

    def string(self, children: list[Lexeme]) -> _Placed:
        return self.build(children[0].at, Literal, _unquoted(children[0]))

    def boolean(self, children: list[Lexeme]) -> _Placed:
        return _Placed(Literal(children[0].type == "TRUE"), children[0].at)

    def timestamp(self, children: list[Lexeme]) -> _Placed:
        return self.moment(children[0], _microseconds_at, "timestamp")

    def interval(self, children: list[Lexeme]) -> _Placed:
        return self.moment(children[0], _microseconds_of, "interval")

    def moment(self, lexeme: Lexeme, read: Callable[[str], int | None], form: Any) -> _Placed:
        text = lexeme.text[lexeme.text.index("'") + 1 : -1]
        microseconds = read(text)
        if microseconds is None:
            raise _Misplaced(f"{text!r} is no {form}; {_MOMENT_HINTS[form]}", lexeme.at)
        return self.build(lexeme.at, Literal, microseconds, form)

    def name(self, children: list[Lexeme]) -> _Placed:
        lexeme = children[0]
        if lexeme.type == "QUALIFIED":
            return _Placed(_qualified(lexeme), lexeme.at)
        name = _unquoted(lexeme) if lexeme.type == "QUOTED" else lexeme.text
        return self.build(lexeme.at, Field, "header", name)

    def now(self, children: list[Lexeme]) -> _Placed:
        return _Placed(Now(), children[0].at)

    def parenthesis(self, children: list[_Placed]) -> _Placed:
        return children[0]

    # -- what may stand where

    @staticmethod
    def condition(placed: _Placed) -> Filter:
        node = placed.node
        if isinstance(node, FILTER_TYPES):
            return node
        if isinstance(node, Field):  # a boolean header is a condition by itself
            return Compare("=", node, Literal(True))
        if isinstance(node, Literal) and isinstance(node.value, bool):
            return Constant(node.value)
        raise _Misplaced(
            "this is a value where a condition belongs; compare it with something", placed.at
        )

    @staticmethod
    def operand(placed: _Placed) -> Operand:
        if isinstance(placed.node, OPERAND_TYPES):
            return placed.node
        if isinstance(placed.node, _TooBig):
            raise _Misplaced(_TOO_LARGE, placed.at)
        raise _Misplaced("this is a condition where a value belongs", placed.at)

    @staticmethod
    def field(placed: _Placed, where: str) -> Field:
        if isinstance(placed.node, Field):
            return placed.node
        raise _Misplaced(f"{where} asks about a name", placed.at)

    @staticmethod
    def number_wanted(placed: _Placed, op: Lexeme) -> None:
        if isinstance(placed.node, Literal) and placed.node.kind not in ("int", "float"):
            raise _Misplaced(f"{op.text} needs a number here", placed.at)

    @staticmethod
    def build(
        at: int, node_type: Callable[..., Node], *parts: Any, begins: int | None = None
    ) -> _Placed:
        """Build a node whose own checks may refuse; a refusal points at `at`."""
        try:
            return _Placed(node_type(*parts), at if begins is None else begins)
        except (FilterError, ValueError) as refused:
            raise _Misplaced(str(refused), at) from None


def _unquoted(lexeme: Lexeme) -> str:
    quote, inner = lexeme.text[0], lexeme.text[1:-1]
    if quote == "[":
        return inner.replace("[[", "[").replace("]]", "]")
    return inner.replace(quote * 2, quote)


_HEADER_SECTIONS: Final = ("application_properties", "a")
# Every qualified name that is not a header's.
_QUALIFIED: Final[dict[str, Field]] = {
    **{f"sys.{name}": Field("sys", name) for name in SYS_KINDS},
    **{
        f"{section}.{name}": Field("property", name)
        for section in ("properties", "p")
        for name in sorted(PROPERTY_NAMES)
    },
    **{alias: Field("sys", system.name) for system in SYSTEM_FIELDS for alias in system.aliases},
}


def _qualified(lexeme: Lexeme) -> Field:
    section, name = lexeme.text.split(".", 1)
    if section in _HEADER_SECTIONS:
        return Field("header", name)
    if lexeme.text in _QUALIFIED:
        return _QUALIFIED[lexeme.text]
    prefix = f"{section}."
    known = [known.removeprefix(prefix) for known in _QUALIFIED if known.startswith(prefix)]
    hint = (
        f"{section} has {', '.join(known)}"
        if known
        else f"write [{lexeme.text}] for the header of that name"
    )
    raise _Misplaced(f"unknown name {lexeme.text!r}; {hint}", lexeme.at)


# ---- moments and spans of time -----------------------------------------------------------------------

_MOMENT_HINTS: Final = {
    "timestamp": "write it like '2026-01-31T12:00:00Z' (UTC unless it says otherwise)",
    "interval": "write it like '90s', '1h 30m' or '2 days'",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = {
    unit: microseconds
    for microseconds, units in {
        1: "us microsecond microseconds",
        1_000: "ms millisecond milliseconds",
        1_000_000: "s sec secs second seconds",
        60_000_000: "m min mins minute minutes",
        3_600_000_000: "h hour hours",
        86_400_000_000: "d day days",
        604_800_000_000: "w week weeks",
    }.items()
    for unit in units.split()
}
_SPAN = re.compile(r"\s*(-?)\s*(\d{1,12})\s*([A-Za-z]+)\s*", re.ASCII)


# A date and perhaps a time as ISO 8601 writes them; Python would take any character for the T.
_ISO = re.compile(
    r"\s*(\d{4}-\d\d-\d\d|\d{8}|\d{4}-W\d\d(-\d)?|\d{4}W\d{2,3})([Tt ][\d:.,]+([Zz]|[+-][\d:.]+)?)?\s*",
    re.ASCII,
)


def _microseconds_at(text: str) -> int | None:
    if not _ISO.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _microseconds_of(text: str) -> int | None:
    total = at = 0
    while at < len(text):
        found = _SPAN.match(text, at)
        unit = _UNITS.get(found[3].lower()) if found else None
        if found is None or unit is None:
            return None
        total += int(found[2]) * unit * (-1 if found[1] else 1)
        at = found.end()
    return total if text.strip() else None


# ---- saying what is wrong ----------------------------------------------------------------------------

_SPELLED: Final = {
    "_OR": "OR",
    "_AND": "AND",
    "_NOT": "NOT",
    "_LPAR": "'('",
    "_RPAR": "')'",
    "_COMMA": "','",
    "COMPARE": "a comparison",
    "NUMBER": "a value",
    "STRING": "text in quotes",
    "$END": "the end",
    "_NULL": "NULL",
    "_ESCAPE": "ESCAPE",
    "_IN": "IN",
    "_LIKE": "LIKE",
    "_BETWEEN": "BETWEEN",
    "_MATCHES": "MATCHES",
    "_IS": "IS",
    "NAME": "a name",
}
_IMPLIED: Final = frozenset(  # part of "a value", of "a name", or of no help to the reader
    [
        "TRUE",
        "FALSE",
        "TIMESTAMP",
        "INTERVAL",
        "UTC",
        "_EXISTS",
        "QUALIFIED",
        "QUOTED",
        "PLUS",
        "MINUS",
        "STAR",
        "SLASH",
        "PERCENT",
    ]
)


def _syntax_error(unexpected: Unexpected, text: str) -> FilterSyntaxError:
    lexeme, expected = unexpected.lexeme, set(unexpected.accepted)
    if "NUMBER" in expected:  # a value may stand here: that says it all
        expected -= {"STRING", "NAME", "_LPAR"}
    words = sorted(
        {_SPELLED[name] for name in expected if name in _SPELLED and name not in _IMPLIED}
    )
    if lexeme.type == END:
        return FilterSyntaxError("the filter ends too early", text, len(text), tuple(words))
    return FilterSyntaxError(f"unexpected {lexeme.text!r}", text, lexeme.at, tuple(words))

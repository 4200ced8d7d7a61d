"""Text -> tree. Bad text is refused with its line, its column and what was expected there."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final, NamedTuple, cast

from lark import Transformer

from headgate.errors import FilterError, FilterSyntaxError, FilterTypeError
from headgate.filters.automaton import Automaton, Unexpected
from headgate.filters.nodes import (
    FILTER_TYPES,
    MAX_DEPTH,
    OPERAND_TYPES,
    SYS_KINDS,
    TOPIC,
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
    join_terms,
    negation,
)
from headgate.filters.scanner import (
    END,
    LIMITS,
    UNLIMITED,
    Lexeme,
    Limits,
    parse_interval,
    parse_timestamp,
    scan,
    unquote,
)
from headgate.message import INT64_MAX, PROPERTY_NAMES, SYSTEM_FIELDS

_MOST_DIGITS: Final = len(str(INT64_MAX))  # Python refuses to convert thousands of them
_TOO_LARGE: Final = "the integer does not fit into 64 bits; write it as a float"


def parse(text: str) -> Filter:
    """Parse the text of a filter; blank text matches everything."""
    if not isinstance(text, str):
        raise FilterTypeError(f"a filter is text, not {type(text).__name__}: {text!r}")
    return _parse(text, LIMITS)


def parse_stored(text: str) -> Filter:
    """Parse what `to_text` printed of a filter that was accepted, which may be longer than one may write."""
    return _parse(text, UNLIMITED)


@lru_cache(maxsize=1024)
def _parse(text: str, limits: Limits) -> Filter:
    lexemes = scan(text, limits)
    if not lexemes:
        return TRUE
    try:
        tree = _TreeBuilder.condition(_automaton().run(lexemes))
    except Unexpected as unexpected:
        raise _syntax_error(unexpected, text) from None
    except _Problem as problem:
        raise problem.in_text(text) from None
    # A level takes one lexeme at least, but for the `= TRUE` of a bare name.
    if len(lexemes) >= MAX_DEPTH:
        check_depth(tree)
    return tree


@cache
def _automaton() -> Automaton:
    return Automaton(files(__package__).joinpath("grammar.lark").read_text(), _TreeBuilder())


# ---- building the tree -------------------------------------------------------------------------------


class _Located(NamedTuple):
    """A node and the position of its text, so that an error can point there."""

    node: Node | _MinInt
    at: int


class _MinInt(NamedTuple):
    """2**63: an integer only with a minus before it."""


class _Problem(Exception):
    """A problem at a position; `parse` turns it into a FilterSyntaxError with the text."""

    def __init__(self, problem: str, at: int) -> None:
        self.problem, self.at = problem, at
        super().__init__(problem)

    def in_text(self, text: str) -> FilterSyntaxError:
        """Make the error that shows the place in the text."""
        return FilterSyntaxError(self.problem, text, self.at)


class _TreeBuilder(Transformer[Lexeme, _Located]):
    """One method for each rule of grammar.lark; every child is a `_Located` or a lexeme."""

    # -- conditions

    def disjunction(self, terms: list[_Located]) -> _Located:
        return _Located(join_terms(Or, map(self.condition, terms)), terms[0].at)

    def conjunction(self, terms: list[_Located]) -> _Located:
        return _Located(join_terms(And, map(self.condition, terms)), terms[0].at)

    def negation(self, children: list[_Located]) -> _Located:
        return _Located(negation(self.condition(children[0])), children[0].at)

    def compare(self, children: list[Any]) -> _Located:
        left, op, right = children
        spelled = cast(CompareOp, "<>" if op.text == "!=" else op.text)
        return _Located(Compare(spelled, self.operand(left), self.operand(right)), left.at)

    def is_in(self, children: list[Any], negated: bool = False) -> _Located:
        value, items = children
        return self.build(value.at, In, self.operand(value), items, negated)

    def is_not_in(self, children: list[Any]) -> _Located:
        return self.is_in(children, negated=True)

    def items(self, children: list[_Located]) -> tuple[Operand, ...]:
        return tuple(map(self.operand, children))

    def like(self, children: list[Any], negated: bool = False) -> _Located:
        value, pattern, escape = children
        escape_text = None if escape is None else unquote(escape)
        where = pattern.at if escape is None else escape.at
        return self.build(
            where,
            Like,
            self.operand(value),
            unquote(pattern),
            escape_text,
            negated,
            begins=value.at,
        )

    def not_like(self, children: list[Any]) -> _Located:
        return self.like(children, negated=True)

    def between(self, children: list[_Located]) -> _Located:
        value, low, high = map(self.operand, children)
        return _Located(
            And((Compare(">=", value, low), Compare("<=", value, high))), children[0].at
        )

    def not_between(self, children: list[_Located]) -> _Located:
        inside = self.between(children)
        return _Located(negation(self.condition(inside)), inside.at)

    def is_null(self, children: list[_Located], negated: bool = False) -> _Located:
        return _Located(IsNull(self.field(children[0], "IS NULL"), negated), children[0].at)

    def is_not_null(self, children: list[_Located]) -> _Located:
        return self.is_null(children, negated=True)

    def topic_match(self, children: list[Any], negated: bool = False) -> _Located:
        value, pattern = children
        if value.node != TOPIC:
            raise _Problem(
                "MATCHES compares sys.topic with a topic pattern; use LIKE for other text", value.at
            )
        return self.build(pattern.at, TopicMatch, unquote(pattern), negated, begins=value.at)

    def not_topic_match(self, children: list[Any]) -> _Located:
        return self.topic_match(children, negated=True)

    def exists(self, children: list[_Located]) -> _Located:
        return _Located(Exists(self.field(children[0], "EXISTS")), children[0].at)

    # -- values

    def arith(self, children: list[Any]) -> _Located:
        left, op, right = children
        self.check_number(left, op), self.check_number(right, op)
        computed = Arith(cast(ArithOp, op.text), self.operand(left), self.operand(right))
        return _Located(computed, left.at)

    def minus(self, children: list[Any]) -> _Located:
        sign, value = children
        if isinstance(value.node, _MinInt):
            return _Located(Literal(-(2**63)), sign.at)
        self.check_number(value, sign)
        operand = self.operand(value)
        folded = isinstance(operand, Literal) and operand.value != -(2**63)
        node = Literal(-cast(float, operand.value)) if folded else Negate(operand)  # type: ignore[union-attr]
        return _Located(node, sign.at)

    def plus(self, children: list[Any]) -> _Located:
        sign, value = children
        self.check_number(value, sign)
        operand = self.operand(value)
        # A plus changes no number, but it makes anything else UNKNOWN: it cannot be dropped.
        node = operand if isinstance(operand, Literal) else Arith("+", Literal(0), operand)
        return _Located(node, sign.at)

    def number(self, children: list[Lexeme]) -> _Located:
        _, text, at = children[0]
        if not text.isdigit():
            value = float(text)
            if math.isinf(value):
                raise _Problem("the number is too large for a float", at)
            return _Located(Literal(value), at)
        digits = text.lstrip("0") or "0"
        if len(digits) > _MOST_DIGITS:
            raise _Problem(_TOO_LARGE, at)
        whole = int(digits)
        if whole == INT64_MAX + 1:
            return _Located(_MinInt(), at)
        return self.build(at, Literal, whole)

    def string(self, children: list[Lexeme]) -> _Located:
        return self.build(children[0].at, Literal, unquote(children[0]))

    def boolean(self, children: list[Lexeme]) -> _Located:
        return _Located(Literal(children[0].type == "TRUE"), children[0].at)

    def timestamp(self, children: list[Lexeme]) -> _Located:
        return self.moment(children[0], parse_timestamp, "timestamp")

    def interval(self, children: list[Lexeme]) -> _Located:
        return self.moment(children[0], parse_interval, "interval")

    def moment(self, lexeme: Lexeme, read: Callable[[str], int | None], form: Any) -> _Located:
        text = lexeme.text[lexeme.text.index("'") + 1 : -1]
        microseconds = read(text)
        if microseconds is None:
            raise _Problem(f"{text!r} is not a valid {form}; {_TIME_HINTS[form]}", lexeme.at)
        return self.build(lexeme.at, Literal, microseconds, form)

    def name(self, children: list[Lexeme]) -> _Located:
        lexeme = children[0]
        if lexeme.type == "QUALIFIED":
            return _Located(_qualified(lexeme), lexeme.at)
        name = unquote(lexeme) if lexeme.type == "QUOTED" else lexeme.text
        return self.build(lexeme.at, Field, "header", name)

    def now(self, children: list[Lexeme]) -> _Located:
        return _Located(Now(), children[0].at)

    def parenthesis(self, children: list[_Located]) -> _Located:
        return children[0]

    # -- what may be where

    @staticmethod
    def condition(placed: _Located) -> Filter:
        node = placed.node
        if isinstance(node, FILTER_TYPES):
            return node
        if isinstance(node, Field):  # a boolean header is a condition by itself
            return Compare("=", node, Literal(True))
        if isinstance(node, Literal) and isinstance(node.value, bool):
            return Constant(node.value)
        raise _Problem(
            "this is a value where a condition is needed; compare it with something", placed.at
        )

    @staticmethod
    def operand(placed: _Located) -> Operand:
        if isinstance(placed.node, OPERAND_TYPES):
            return placed.node
        if isinstance(placed.node, _MinInt):
            raise _Problem(_TOO_LARGE, placed.at)
        raise _Problem("this is a condition where a value is needed", placed.at)

    @staticmethod
    def field(placed: _Located, where: str) -> Field:
        if isinstance(placed.node, Field):
            return placed.node
        raise _Problem(f"{where} needs the name of a header or field", placed.at)

    @staticmethod
    def check_number(placed: _Located, op: Lexeme) -> None:
        if isinstance(placed.node, Literal) and placed.node.kind not in ("int", "float"):
            raise _Problem(f"{op.text} needs a number here", placed.at)

    @staticmethod
    def build(
        at: int, node_type: Callable[..., Node], *parts: Any, begins: int | None = None
    ) -> _Located:
        """Build a node; when its own checks refuse, the error points at `at`."""
        try:
            return _Located(node_type(*parts), at if begins is None else begins)
        except (FilterError, ValueError) as refused:
            raise _Problem(str(refused), at) from None


_TIME_HINTS: Final = {
    "timestamp": "write it like '2026-01-31T12:00:00Z' (UTC unless it says otherwise)",
    "interval": "write it like '90s', '1h 30m' or '2 days'",
}
_HEADER_SECTIONS: Final = ("application_properties", "a", "user")
_AZURE: Final = {  # what Azure Service Bus calls the properties of AMQP
    "Label": "subject",
    "Subject": "subject",
    "To": "to",
    "ReplyTo": "reply_to",
    "CorrelationId": "correlation_id",
    "ContentType": "content_type",
    "SessionId": "group_id",
    "ReplyToSessionId": "reply_to_group_id",
}
# Every qualified name that is not a header's.
_QUALIFIED: Final[dict[str, Field]] = {
    **{f"sys.{name}": Field("sys", name) for name in SYS_KINDS},
    **{
        f"{section}.{name}": Field("property", name)
        for section in ("properties", "p")
        for name in sorted(PROPERTY_NAMES)
    },
    **{alias: Field("sys", system.name) for system in SYSTEM_FIELDS for alias in system.aliases},
    **{f"sys.{name}": Field("property", known) for name, known in _AZURE.items()},
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
    raise _Problem(f"unknown name {lexeme.text!r}; {hint}", lexeme.at)


# ---- errors -------------------------------------------------------------------------------------------

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
_NOT_LISTED: Final = frozenset(  # part of "a value" or of "a name", or of no help to the reader
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


_ELSEWHERE: Final = {  # operators of related languages
    "CONTAINS": ": write LIKE '%text%'",
    "STARTSWITH": ": write LIKE 'text%'",
    "ENDSWITH": ": write LIKE '%text'",
    "ILIKE": ": LIKE is the only one, and upper and lower case differ",
    "NULL": ": write IS NULL or IS NOT NULL",
    "NOW": ": write UTC()",
}
_CALLED: Final = re.compile(r"(\w+)\s*\Z")  # the word before a parenthesis


def _syntax_error(unexpected: Unexpected, text: str) -> FilterSyntaxError:
    lexeme, expected = unexpected.lexeme, set(unexpected.accepted)
    if "NUMBER" in expected:  # "a value" covers the others
        expected -= {"STRING", "NAME", "_LPAR"}
    words = sorted(
        {_SPELLED[name] for name in expected if name in _SPELLED and name not in _NOT_LISTED}
    )
    if lexeme.type == END:
        return FilterSyntaxError("the filter ends too early", text, len(text), tuple(words))
    problem = f"unexpected {lexeme.text!r}{_hint(lexeme, text)}"
    return FilterSyntaxError(problem, text, lexeme.at, tuple(words))


def _hint(lexeme: Lexeme, text: str) -> str:
    """What to write here instead of what related languages write."""
    before = text[: lexeme.at]
    if lexeme.text == "=" and before.endswith("="):
        return ": equality is a single ="
    called = _CALLED.search(before) if lexeme.text == "(" else None
    if called is not None:
        return _ELSEWHERE.get(called[1].upper(), f": there is no function {called[1]}")
    return _ELSEWHERE.get(lexeme.text.upper(), "") if lexeme.type in ("NAME", "_NULL") else ""

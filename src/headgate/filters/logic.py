"""The meaning of a filter: three-valued logic and the type rules, in one place.

`evaluate` walks the tree as it was written, simple and slow: it is the reference that every compiled target is tested
against. No other module negates or joins UNKNOWN by hand.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, assert_never

from headgate.filters.like import compile_like
from headgate.filters.nodes import (
    KIND_OF,
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
    Not,
    Now,
    Operand,
    Or,
    TopicMatch,
)
from headgate.filters.topics import matches
from headgate.message import INT64_MAX, INT64_MIN, HeaderValue, Message, Scalar

Tri: TypeAlias = bool | None  # None is UNKNOWN

OPERATORS: Final[dict[CompareOp, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPPOSITE: Final[dict[CompareOp, CompareOp]] = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}
MIRRORED: Final[dict[CompareOp, CompareOp]] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    ">": "<",
    "<=": ">=",
    ">=": "<=",
}


# ---- Kleene's connectives ----------------------------------------------------------------------------


def negate(value: Tri) -> Tri:
    """NOT: UNKNOWN stays UNKNOWN."""
    return None if value is None else not value


def conjunction(values: Iterable[Tri]) -> Tri:
    """AND: FALSE if one is FALSE, else UNKNOWN if one is UNKNOWN."""
    result: Tri = True
    for value in values:
        if value is False:
            return False
        if value is None:
            result = None
    return result


def disjunction(values: Iterable[Tri]) -> Tri:
    """OR: TRUE if one is TRUE, else UNKNOWN if one is UNKNOWN."""
    return negate(conjunction(negate(value) for value in values))


# ---- comparing and computing -------------------------------------------------------------------------


def compare(op: CompareOp, left: Scalar | None, right: Scalar | None) -> Tri:
    """Compare two values: UNKNOWN unless they are of one kind; an int and a float compare as doubles."""
    left_kind, right_kind = KIND_OF.get(type(left)), KIND_OF.get(type(right))
    if left_kind is None or right_kind is None:
        return None
    if left_kind != right_kind:
        if {left_kind, right_kind} != {"int", "float"}:
            return None
        left, right = float(left), float(right)  # type: ignore[arg-type]
    elif left_kind == "bool" and op not in ("=", "<>"):
        return None
    return OPERATORS[op](left, right)


def arithmetic(op: ArithOp, left: Scalar | None, right: Scalar | None) -> int | float | None:
    """Compute with int64 if both are ints, else with doubles; None on overflow, division by zero or without a number."""
    if type(left) not in (int, float) or type(right) not in (int, float):
        return None
    if type(left) is int and type(right) is int and op != "/":
        return _int_arithmetic(op, left, right)
    a, b = float(left), float(right)  # type: ignore[arg-type]
    match op:
        case "+":
            result = a + b
        case "-":
            result = a - b
        case "*":
            result = a * b
        case "/":
            result = a / b if b else math.nan
        case "%":
            result = math.fmod(a, b) if b else math.nan
        case _:
            assert_never(op)
    return result if math.isfinite(result) else None


def _int_arithmetic(op: ArithOp, left: int, right: int) -> int | None:
    match op:
        case "+":
            result = left + right
        case "-":
            result = left - right
        case "*":
            result = left * right
        case _:  # % takes the sign of the dividend, as in C, SQL and Java; Python's does not
            if not right:
                return None
            result = abs(left) % abs(right) * (1 if left >= 0 else -1)
    return result if INT64_MIN <= result <= INT64_MAX else None


def negative(value: Scalar | None) -> int | float | None:
    """Compute `-value`; None on overflow or without a number."""
    if type(value) is float:
        return -value
    return arithmetic("-", 0, value) if type(value) is int else None


# ---- the reference -----------------------------------------------------------------------------------


def matches_filter(node: Filter, message: Message, now_us: int = 0) -> bool:
    """Tell whether the filter is TRUE for the message; neither FALSE nor UNKNOWN is a match."""
    return evaluate(node, message, now_us) is True


def evaluate(node: Filter, message: Message, now_us: int = 0) -> Tri:
    """Evaluate a filter on a message."""
    match node:
        case Constant(value=value):
            return value
        case Compare(op=op, left=left, right=right):
            return compare(op, value_of(left, message, now_us), value_of(right, message, now_us))
        case In(value=value, items=items, negated=negated):
            member = value_of(value, message, now_us)
            found = disjunction(
                compare("=", member, value_of(item, message, now_us)) for item in items
            )
            return negate(found) if negated else found
        case Like(value=value, pattern=pattern, escape=escape, negated=negated):
            text = value_of(value, message, now_us)
            return (
                compile_like(pattern, escape)(text) is not negated
                if isinstance(text, str)
                else None
            )
        case IsNull(field=field, negated=negated):
            return (type(field_value(field, message)) not in KIND_OF) is not negated
        case Exists(field=field, negated=negated):
            return (field_value(field, message) is not None) is not negated
        case TopicMatch(pattern=pattern, negated=negated):
            return matches(pattern, message.topic) is not negated
        case Not(term=term):
            return negate(evaluate(term, message, now_us))
        case And(terms=terms):
            return conjunction(evaluate(term, message, now_us) for term in terms)
        case Or(terms=terms):
            return disjunction(evaluate(term, message, now_us) for term in terms)
        case _:
            assert_never(node)


def value_of(operand: Operand, message: Message, now_us: int = 0) -> Scalar | None:
    """Evaluate an operand on a message; None when it has no value that a filter can compare."""
    match operand:
        case Literal(value=value):
            return value
        case Field():
            found = field_value(operand, message)
            return found if type(found) in KIND_OF else None  # type: ignore[return-value]
        case Now():
            return now_us
        case Negate(value=inner):
            return negative(value_of(inner, message, now_us))
        case Arith(op=op, left=left, right=right):
            return arithmetic(op, value_of(left, message, now_us), value_of(right, message, now_us))
        case _:
            assert_never(operand)


def field_value(field: Field, message: Message) -> HeaderValue:
    """Return the value of a field; None when the message has none."""
    match field.scope:
        case "header":
            return message.headers.get(field.name)
        case "property":
            return message.properties.get(field.name)
        case "sys":
            found: HeaderValue = getattr(message, field.name)
            return found
        case _:
            assert_never(field.scope)

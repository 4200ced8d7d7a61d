"""Tree -> canonical text. `parse(to_text(f)) == f` for every tree of the parser and the builder."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, assert_never

from headgate.filters.nodes import (
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
    Not,
    Now,
    Operand,
    Or,
    TopicMatch,
)
from headgate.filters.scanner import EPOCH, is_bare_name

# The range of datetime, in microseconds.
_YEARS: Final = range(-62_135_596_800_000_000, 253_402_300_800_000_000)
_SPANS: Final = (
    (604_800_000_000, "w"),
    (86_400_000_000, "d"),
    (3_600_000_000, "h"),
    (60_000_000, "m"),
    (1_000_000, "s"),
    (1_000, "ms"),
    (1, "us"),
)
_BINDS: Final = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}


def to_text(node: Filter) -> str:
    """Write the filter as a user would, with no more parentheses than needed."""
    match node:
        case Constant(value=value):
            return "TRUE" if value else "FALSE"
        case Compare(op=op, left=left, right=right):
            return f"{operand_text(left)} {op} {operand_text(right)}"
        case In(value=value, items=items, negated=negated):
            return (
                f"{operand_text(value)} {_not(negated)}IN ({', '.join(map(operand_text, items))})"
            )
        case Like(value=value, pattern=pattern, escape=escape, negated=negated):
            tail = "" if escape is None else f" ESCAPE {_quote(escape)}"
            return f"{operand_text(value)} {_not(negated)}LIKE {_quote(pattern)}{tail}"
        case IsNull(field=field, negated=negated):
            return f"{operand_text(field)} IS {_not(negated)}NULL"
        case Exists(field=field, negated=negated):
            return f"{_not(negated)}EXISTS({operand_text(field)})"
        case TopicMatch(pattern=pattern, negated=negated):
            return f"sys.topic {_not(negated)}MATCHES {_quote(pattern)}"
        case Not(term=term):
            return f"NOT {_group(term, (And, Or))}"
        case And(terms=terms):
            return " AND ".join(_group(term, (Or, And)) for term in terms)
        case Or(terms=terms):
            return " OR ".join(_group(term, (Or,)) for term in terms)
        case _:
            assert_never(node)


def operand_text(operand: Operand) -> str:
    """Write an operand as a user would."""
    match operand:
        case Literal():
            return _literal_text(operand)
        case Field(scope="header", name=name):
            return (
                name
                if is_bare_name(name)
                else "[" + name.replace("[", "[[").replace("]", "]]") + "]"
            )
        case Field(scope="property", name=name):
            return f"properties.{name}"
        case Field(name=name):
            return f"sys.{name}"
        case Now():
            return "UTC()"
        case Negate(value=value):
            return (
                f"-({operand_text(value)})"
                if isinstance(value, Literal | Arith)
                else f"-{operand_text(value)}"
            )
        case Arith(op=op, left=left, right=right):
            return f"{_factor(left, _BINDS[op])} {op} {_factor(right, _BINDS[op] + 1)}"
        case _:
            assert_never(operand)


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def _group(term: Filter, looser: tuple[type, ...]) -> str:
    return f"({to_text(term)})" if isinstance(term, looser) else to_text(term)


def _factor(operand: Operand, least: int) -> str:
    text = operand_text(operand)
    return f"({text})" if isinstance(operand, Arith) and _BINDS[operand.op] < least else text


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal_text(literal: Literal) -> str:
    value = literal.value
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if literal.form == "timestamp" and type(value) is int and value in _YEARS:
        moment = EPOCH + timedelta(microseconds=value)
        return f"TIMESTAMP '{moment.isoformat().replace('+00:00', 'Z')}'"
    if literal.form == "interval" and type(value) is int and value > 0:
        return f"INTERVAL '{_span_text(value)}'"
    return repr(value)


def _span_text(microseconds: int) -> str:
    parts = []
    for size, unit in _SPANS:
        count, microseconds = divmod(microseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts)

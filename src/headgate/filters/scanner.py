"""Text -> lexemes, within the limits of the language, and the values of literals."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from headgate.errors import FilterLimitError, FilterSyntaxError
from headgate.filters.nodes import MAX_DEPTH

MAX_CHARACTERS: Final = 16_384
MAX_TOKENS: Final = 4_096


class Limits(NamedTuple):
    """The most that a text may have."""

    characters: int = MAX_CHARACTERS
    tokens: int = MAX_TOKENS
    parentheses: int = MAX_DEPTH


LIMITS: Final = Limits()
UNLIMITED: Final = Limits(sys.maxsize, sys.maxsize, sys.maxsize)

_BLANK: Final = " \t\f\n\r"
_SCAN = re.compile(
    r"""
    [ \t\f\n\r]*
    (?: (?P<literal>   (?:TIMESTAMP|INTERVAL)[ \t\f\n\r]*'[^']*(?:''[^']*)*' )
      | (?P<number>    (?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)? )
      | (?P<name>      [A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)? )
      | (?P<string>    '[^']*(?:''[^']*)*' | "[^"]*(?:""[^"]*)*" )
      | (?P<quoted>    `[^`]*(?:``[^`]*)*` | \[(?:[^\[\]]|\[\[|\]\])*\] )
      | (?P<operator>  <> | != | >= | <= | [=<>+\-*/%(),] )
    )
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_MORE_WORDS = re.compile(r"(?:\.\w+)+", re.ASCII)  # of a name with two already
_KEYWORDS: Final = {
    "AND": "_AND",
    "OR": "_OR",
    "NOT": "_NOT",
    "IN": "_IN",
    "LIKE": "_LIKE",
    "ESCAPE": "_ESCAPE",
    "BETWEEN": "_BETWEEN",
    "IS": "_IS",
    "NULL": "_NULL",
    "EXISTS": "_EXISTS",
    "TRUE": "TRUE",
    "FALSE": "FALSE",
    "UTC": "UTC",
}
# Words of the AMQP filter language without a meaning here: a header of that name must be quoted.
RESERVED: Final = frozenset({"NAN", "INF", "LOWER", "UPPER", "LEFT", "RIGHT", "SUBSTRING", "DATE"})
_OPERATORS: Final = {
    "(": "_LPAR",
    ")": "_RPAR",
    ",": "_COMMA",
    "+": "PLUS",
    "-": "MINUS",
    "*": "STAR",
    "/": "SLASH",
    "%": "PERCENT",
    **dict.fromkeys(("=", "<>", "!=", "<", "<=", ">", ">="), "COMPARE"),
}
_NAMES: Final = frozenset({"NAME", "QUALIFIED", "QUOTED"})


END: Final = "$END"  # the terminal after the last lexeme


class Lexeme(NamedTuple):
    """A piece of the text: the terminal it is, its characters, and their position."""

    type: str
    text: str
    at: int


def scan(text: str, limits: Limits = LIMITS) -> list[Lexeme]:
    """Split a filter into lexemes; FilterLimitError or FilterSyntaxError when it cannot be one."""
    if len(text) > limits.characters:
        raise FilterLimitError("characters", len(text), limits.characters)
    lexemes: list[Lexeme] = []
    at, depth, previous = 0, 0, ""
    while (found := _SCAN.match(text, at)) is not None:
        group, at = found.lastgroup or "", found.end()
        value = found[group]
        start = at - len(value)
        if group == "operator":
            previous = _OPERATORS[value]
            depth += (value == "(") - (value == ")")
        else:
            previous = _token_type(group, value, previous, text, start, at)
        lexemes.append(Lexeme(previous, value, start))
        if len(lexemes) > limits.tokens:
            raise FilterLimitError("tokens (or more)", len(lexemes), limits.tokens)
        if depth > limits.parentheses:
            raise FilterLimitError("open parentheses", depth, limits.parentheses)
    if previous == "QUALIFIED" and (more := _MORE_WORDS.match(text, at)) is not None:
        first = lexemes[-1]
        name = first.text + more[0]
        problem = f"unknown name {name!r}; write [{name}] for the header of that name"
        raise FilterSyntaxError(problem, text, first.at)
    _check_end(text, at)
    return lexemes


def _check_end(text: str, at: int) -> None:
    """Refuse a rest that is not blank."""
    if rest := text[at:].lstrip(_BLANK):
        at = len(text) - len(rest)
        raise FilterSyntaxError(_unreadable(text, at), text, at)


def is_bare_name(name: str) -> bool:
    """Tell whether a header can be written without quotes around its name."""
    word = name.upper()
    return name.isascii() and name.isidentifier() and word not in _KEYWORDS and word not in RESERVED


def _token_type(group: str, value: str, previous: str, text: str, start: int, end: int) -> str:
    match group:
        case "name":
            return _name_type(value, previous, text, start, end)
        case "number":
            if end < len(text) and (text[end].isalnum() or text[end] in "_."):
                raise FilterSyntaxError(f"malformed number {text[start : end + 1]!r}", text, start)
            return "NUMBER"
        case "literal":
            return "TIMESTAMP" if value[0] in "Tt" else "INTERVAL"
        case _:
            return group.upper()


def _name_type(value: str, previous: str, text: str, start: int, end: int) -> str:
    word = value.upper()
    if word in _KEYWORDS:
        return _KEYWORDS[word]
    if word in RESERVED:
        problem = (
            f"there is no function {value}"
            if text[end:].lstrip(_BLANK).startswith("(")
            else f"{value!r} is a reserved word; write [{value}] for the header of that name"
        )
        raise FilterSyntaxError(problem, text, start)
    if word == "MATCHES" and (previous in _NAMES or text[end:].lstrip()[:1] in ("'", '"')):
        return "_MATCHES"  # anywhere else it is a header of that name
    return "QUALIFIED" if "." in value else "NAME"


def _unreadable(text: str, at: int) -> str:
    c = text[at]
    if c in "'\"":
        return "this text has no closing quote"
    if c in "[`":
        return "this quoted name has no closing quote"
    if c in "&|":
        return f"unexpected {c!r}: conditions are joined with AND and OR"
    return f"unexpected character {c!r}"


# ---- the values of literals --------------------------------------------------------------------------

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
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


# A date and perhaps a time as in ISO 8601; Python would accept any character for the T.
_ISO = re.compile(
    r"\s*(\d{4}-\d\d-\d\d|\d{8}|\d{4}-W\d\d(-\d)?|\d{4}W\d{2,3})([Tt ][\d:.,]+([Zz]|[+-][\d:.]+)?)?\s*",
    re.ASCII,
)


def unquote(lexeme: Lexeme) -> str:
    """Return the text or name inside the quotes of a lexeme."""
    quote, inner = lexeme.text[0], lexeme.text[1:-1]
    if quote == "[":
        return inner.replace("[[", "[").replace("]]", "]")
    return inner.replace(quote * 2, quote)


def parse_timestamp(text: str) -> int | None:
    """Parse an ISO 8601 date and time to microseconds since 1970; None when it is malformed."""
    if not _ISO.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.strip().upper())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(microseconds=1)


def parse_interval(text: str) -> int | None:
    """Parse a span of time like `1h 30m` to microseconds; None when it is malformed."""
    total = at = 0
    while at < len(text):
        found = _SPAN.match(text, at)
        unit = _UNITS.get(found[3].lower()) if found else None
        if found is None or unit is None:
            return None
        total += int(found[2]) * unit * (-1 if found[1] else 1)
        at = found.end()
    return total if text.strip() else None

"""Text -> lexemes, with the limits enforced before anything else happens."""

from __future__ import annotations

import re
from typing import Final

from headgate.errors import FilterLimitError, FilterSyntaxError
from headgate.filters.automaton import Lexeme
from headgate.filters.nodes import MAX_DEPTH

MAX_CHARACTERS: Final = 16_384
MAX_TOKENS: Final = 4_096

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
# Words of the AMQP filter language that mean nothing here (yet): as bare names they would surprise.
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


def scan(text: str) -> list[Lexeme]:
    """All lexemes of a filter; FilterLimitError or FilterSyntaxError when it cannot be one."""
    if len(text) > MAX_CHARACTERS:
        raise FilterLimitError("characters", len(text), MAX_CHARACTERS)
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
        if len(lexemes) > MAX_TOKENS:
            raise FilterLimitError("tokens (or more)", len(lexemes), MAX_TOKENS)
        if depth > MAX_DEPTH:
            raise FilterLimitError("open parentheses", depth, MAX_DEPTH)
    _check_end(text, at)
    return lexemes


def _check_end(text: str, at: int) -> None:
    """What is left when nothing more can be read is blank, or is no filter."""
    if rest := text[at:].lstrip(_BLANK):
        at = len(text) - len(rest)
        raise FilterSyntaxError(_unreadable(text, at), text, at)


def is_bare_name(name: str) -> bool:
    """The header can be written without quotes around its name."""
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
        problem = f"{value!r} is a reserved word; write [{value}] for the header of that name"
        raise FilterSyntaxError(problem, text, start)
    if word == "MATCHES" and (previous in _NAMES or text[end:].lstrip()[:1] in ("'", '"')):
        return "_MATCHES"  # anywhere else it is a header that happens to be called so
    return "QUALIFIED" if "." in value else "NAME"


def _unreadable(text: str, at: int) -> str:
    c = text[at]
    if c in "'\"":
        return "this text is never closed"
    if c in "[`":
        return "this quoted name is never closed"
    if c in "&|":
        return f"unexpected {c!r}: conditions are joined with AND and OR"
    return f"unexpected character {c!r}"

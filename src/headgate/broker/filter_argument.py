"""The argument `x-filter`: parses it, and describes an error within the length of an AMQP reply."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headgate.broker.refusals import PreconditionFailed
from headgate.errors import FilterSyntaxError, HeadgateError
from headgate.filters import TRUE, Filter, parse
from headgate.routing import X_FILTER

REPLY_BYTES: Final = 225  # of the 255 that a reply of AMQP has, without the name of its code


class ParsedFilter(NamedTuple):
    """A filter and the text that it was parsed from."""

    text: str
    tree: Filter


def read_filter(value: Any, where: str) -> ParsedFilter | None:
    """The filter that an argument holds; None if it matches everything."""
    if not isinstance(value, str):
        raise PreconditionFailed(
            f"invalid arg '{X_FILTER}' {where}: expected text, got {type(value).__name__}"
        )
    try:
        tree = parse(value)
    except FilterSyntaxError as problem:
        raise PreconditionFailed(describe_problem(problem)) from problem
    except HeadgateError as problem:
        raise PreconditionFailed(f"invalid arg '{X_FILTER}' {where}: {problem}") from problem
    return None if tree == TRUE else ParsedFilter(value, tree)


def describe_problem(problem: FilterSyntaxError) -> str:
    """Describe an error in a filter, with a caret under the place; a long text is cut around it."""
    line = problem.text.splitlines()[problem.line - 1] if problem.text else ""
    column = problem.column - 1
    said = f"invalid arg '{X_FILTER}': {problem.problem} at column {problem.column}"
    if problem.line > 1:
        said += f" of line {problem.line}"
    said = said.encode()[:140].decode(errors="ignore")
    room = (REPLY_BYTES - len(said.encode()) - 8) // 2  # for the text, and for the caret under it
    start = max(0, min(column - room // 2, len(line) - room))
    shown = _fit(line[start : start + room], room)
    return f"{said}\n  {shown}\n  {' ' * (column - start)}^"


def _fit(text: str, room: int) -> str:
    """The first characters of a text that fit into this number of bytes."""
    return text.encode()[:room].decode(errors="ignore")

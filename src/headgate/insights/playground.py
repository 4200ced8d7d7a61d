"""A filter tried on messages: which match and, for the others, the term that failed; and the filter in other languages."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.clock import now_us
from headgate.errors import FilterError, FilterSyntaxError
from headgate.filters import (
    DIALECTS,
    And,
    Filter,
    conjuncts,
    evaluate,
    field_value,
    fields_read,
    operand_text,
    parse,
    to_text,
)
from headgate.insights.messages import Sighting
from headgate.message import OPAQUE, HeaderValue, Message

if TYPE_CHECKING:
    from headgate.insights.filters import FilterFacts

_SHOWN: Final = 60  # letters of a value


@dataclass(frozen=True, slots=True)
class FailedTerm:
    """The first term of a filter that is not TRUE for a message, and the values that it read."""

    text: str
    answer: str  # FALSE or UNKNOWN
    because: str  # "amount is 70"


@dataclass(frozen=True, slots=True)
class TriedMessage:
    """A message that a filter was tried on; `failed` is None when it matches."""

    seen: Sighting
    failed: FailedTerm | None

    @property
    def matches(self) -> bool:
        return self.failed is None


@dataclass(frozen=True, slots=True)
class FilterProblem:
    """Why a text is no filter, and the position of the letter where, if it is one place."""

    text: str
    at: int | None  # counted from 0
    problem: str
    expected: tuple[str, ...] = ()


def find_problem(text: str) -> FilterProblem | None:
    """Check a filter; None when there is nothing wrong with it."""
    try:
        parse(text)
    except FilterSyntaxError as problem:
        return FilterProblem(text, problem.at, problem.problem, problem.expected)
    except FilterError as problem:
        return FilterProblem(text, None, str(problem))
    return None


def try_filter(text: str, messages: Iterable[Sighting]) -> list[TriedMessage]:
    """Try a filter on each message, term by term."""
    tree, now = parse(text), now_us()
    terms = _terms(tree)
    return [TriedMessage(seen, _find_failed(terms, seen.message, now)) for seen in messages]


def _terms(tree: Filter) -> tuple[Filter, ...]:
    """The terms that must all hold, as they were written."""
    return tuple(_split(tree)) if isinstance(tree, And) else conjuncts(tree)


def _split(tree: Filter) -> Iterator[Filter]:
    if isinstance(tree, And):
        for term in tree.terms:
            yield from _split(term)
    else:
        yield tree


def _find_failed(terms: Sequence[Filter], message: Message, now: int) -> FailedTerm | None:
    for term in terms:
        answer = evaluate(term, message, now)
        if answer is not True:
            name = "UNKNOWN" if answer is None else "FALSE"
            return FailedTerm(to_text(term), name, _explain_values(term, message))
    return None


def _explain_values(term: Filter, message: Message) -> str:
    values = (
        f"{operand_text(field)} is {_value_text(field_value(field, message))}"
        for field in sorted(fields_read(term), key=str)
    )
    return ", ".join(values)


def _value_text(value: HeaderValue) -> str:
    if value is None:
        return "absent"
    if value is OPAQUE:
        return "a value that filters cannot compare"
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")
    return str(value).upper() if isinstance(value, bool) else str(value)


# ---- other languages ---------------------------------------------------------------------------------


def filter_snippets(facts: FilterFacts, place: str, name: str) -> dict[str, str]:
    """The filter on a stream, or a queue on SQL, or a queue of a broker, as a command and in other languages."""
    text, quoted = facts.plan.text, shlex.quote(facts.plan.text)
    named = shlex.quote(name)
    command = {
        "stream": f"headgate stream tail {named} --follow --filter {quoted}",
        "queue": f"headgate queue browse {named} --filter {quoted}",
    }.get(place, f"headgate explain {quoted}")
    python = {
        "stream": f"Stream.open({name!r}).consume({text!r})",
        "queue": f"db.queue({name!r}).claim(10, filter={text!r})",
    }.get(place, f"headgate.filters.parse({text!r})")
    return {
        "Command line": command,
        "Python": python,
        "pika": f"channel.basic_consume({name!r}, on_message, arguments={{'x-filter': {text!r}}})",
        **{_SQL_NAMES[d]: _sql_snippet(facts, d) for d in DIALECTS},
        "Spark": f"spark.read.format('headgate').option('filter', {text!r})",
        "Spark SQL": facts.spark,
    }


_SQL_NAMES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def _sql_snippet(facts: FilterFacts, dialect: str) -> str:
    plan = facts.plan.sql[dialect]  # type: ignore[index]
    lines = [f"WHERE {plan.where.text}"]
    if plan.where.params:
        lines.append(f"-- parameters: {list(plan.where.params)!r}")
    residual = facts.plan.residual[dialect]  # type: ignore[index]
    if residual:
        lines.append(f"-- checked in Python afterwards: {residual}")
    return "\n".join(lines)

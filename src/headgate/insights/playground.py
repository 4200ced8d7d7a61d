"""A filter tried on messages: which match and, for the others, the term that failed; and the filter in other languages."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

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
    """Why a text is no filter, and the position of the first wrong letter, if there is one place."""

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


@dataclass(frozen=True, slots=True)
class SnippetPlace:
    """The messages that a copied command or program reads."""

    kind: str  # stream; sql, a queue on SQL; queue, one of a broker; or none of them
    name: str  # of a stream: its directory
    database: str = ""  # URL of a queue on SQL
    vhost: str = "/"
    http: str = "http://localhost:15672"
    amqp: str = "amqp://localhost:5672"


def filter_snippets(facts: FilterFacts, place: SnippetPlace) -> dict[str, str]:
    """The filter as commands and programs that read this place, and as conditions of other languages."""
    text = facts.plan.text
    match place.kind:
        case "stream":
            programs = _stream_snippets(text, place)
        case "sql":
            programs = _sql_queue_snippets(text, place)
        case "queue":
            programs = _broker_snippets(text, place)
        case _:
            programs = {"Command line": f"headgate explain {_shell(text)}"}
    return {
        **programs,
        **{_SQL_NAMES[d]: _sql_snippet(facts, d) for d in DIALECTS},
        "Spark SQL": facts.spark,
    }


def _stream_snippets(text: str, place: SnippetPlace) -> dict[str, str]:
    name = place.name
    return {
        "Command line": f"headgate stream tail {_shell(name)} --follow --filter {_shell(text)}",
        "Python": f"from headgate import Stream\n\nwith Stream.open({name!r}) as stream:\n"
        f"    for message in stream.consume({text!r}):\n        print(message)",
        "Spark": _spark_snippet(f".option('filter', {text!r}).load({name!r})"),
    }


def _sql_queue_snippets(text: str, place: SnippetPlace) -> dict[str, str]:
    name, url = place.name, place.database
    read = f".option('filter', {text!r}).load({f'queue:{url}#{name}'!r})"
    return {
        "Command line": f"headgate queue browse {_shell(name)} --db {_shell(url)} --filter {_shell(text)}",
        "Python": f"from headgate import connect\n\nwith connect({url!r}) as database:\n"
        f"    for delivery in database.find({name!r}).claim(10, filter={text!r}):\n"
        "        print(delivery.message)\n        delivery.ack()",
        "Spark": _spark_snippet(read),
    }


def _broker_snippets(text: str, place: SnippetPlace) -> dict[str, str]:
    name, vhost = place.name, place.vhost
    options = f"--vhost {_shell(vhost)} --url {_shell(place.http)} --filter {_shell(text)}"
    url = f"{place.amqp}/{quote(vhost, safe='')}"
    return {
        "Command line": f"headgate broker queue browse {_shell(name)} {options}",
        "pika": f"import pika\n\nwith pika.BlockingConnection(pika.URLParameters({url!r})) as connection:\n"
        f"    channel = connection.channel()\n    arguments = {{'x-filter': {text!r}}}\n"
        f"    for method, properties, body in channel.consume({name!r}, arguments=arguments):\n"
        "        print(body)\n        channel.basic_ack(method.delivery_tag)",
    }


def _spark_snippet(read: str) -> str:
    return f"from headgate.spark import session\n\nsession().read.format('headgate'){read}.show()"


def _shell(text: str) -> str:
    """One word of a command; a filter is read more easily in double quotes, where these change nothing."""
    quoted = shlex.quote(text)
    return f'"{text}"' if "'" in text and not set(text) & set('"$`\\!\n') else quoted


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

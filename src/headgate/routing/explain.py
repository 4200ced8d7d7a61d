"""Who receives a message, and for every other binding the first condition that failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, assert_never

from headgate.clock import now_us
from headgate.filters import (
    KIND_OF,
    Field,
    Filter,
    conjuncts,
    evaluate,
    field_value,
    fields_read,
    matches,
    operand_text,
    to_text,
)
from headgate.matching import PRESENT
from headgate.message import Message
from headgate.routing.answers import Routable, Routed
from headgate.routing.bindings import Binding, Target, compared_headers, x_match
from headgate.routing.choosing import ChoosingIndex, describe_hashed
from headgate.routing.exchanges import ExchangeIndex
from headgate.routing.values import key_of, value_of


class Reason(NamedTuple):
    """One binding the message met: it matched, or this is the first condition that did not hold."""

    binding: Binding
    matched: bool
    why_not: str = ""


class Explained(NamedTuple):
    """Where the message goes, and every binding of every exchange it passed, in order."""

    routed: Routed
    reasons: tuple[Reason, ...]


def explain_bindings(
    indexes: Iterable[ExchangeIndex], message: Routable, routed: Routed
) -> Iterator[Reason]:
    """Judge each binding of these exchanges by itself, without the index; one that was drawn, by where the message went."""
    for index in indexes:
        chosen = index.choose(message) if isinstance(index, ChoosingIndex) else None
        for binding in index.bindings:
            if chosen is None:
                failed = _first_failure(index, binding, index.filters.get(binding), message)
            else:
                failed = _failure_of_choice(index, binding, chosen, routed)
            yield Reason(binding, failed is None, failed or "")


def _first_failure(
    index: ExchangeIndex, binding: Binding, tree: Filter | None, message: Routable
) -> str | None:
    failed = _failure_of_key(index, binding, message)
    if failed is None and tree is not None:
        asked = message if isinstance(message, Message) else message.message
        failed = failing_term(tree, asked)
    return failed


def _failure_of_key(index: ExchangeIndex, binding: Binding, message: Routable) -> str | None:
    match index.exchange.routing_type:
        case "fanout" | "filter":
            return None
        case "direct":
            same = binding.key == message.topic
            return None if same else f"the routing key is {message.topic!r}, not {binding.key!r}"
        case "topic":
            fits = matches(binding.key, message.topic)
            return None if fits else f"the topic {message.topic!r} does not match {binding.key!r}"
        case "headers":
            return _failure_of_headers(binding, message)
        case (
            "x-consistent-hash"
            | "x-modulus-hash"
            | "x-random"
            | "x-local-random"
            | "x-delayed-message"
        ):
            raise AssertionError("such an exchange chooses")
        case "x-super-stream":
            return f"no binding has the number of the partition of {message.topic!r} as its key"
        case _:
            assert_never(index.exchange.routing_type)


def _failure_of_choice(
    index: ExchangeIndex, binding: Binding, chosen: Target, routed: Routed
) -> str | None:
    if index.exchange.routing_type in ("x-random", "x-local-random"):
        to_queue = binding.kind == "queue"
        drawn = binding.destination in (routed.queues if to_queue else routed.via)
        return None if drawn else "another binding was drawn this time"
    if binding.target == chosen:
        return None
    name = chosen if isinstance(chosen, str) else f"exchange {chosen.name}"
    return f"the hash of {describe_hashed(index.exchange)} leads to {name}"


def _failure_of_headers(binding: Binding, message: Routable) -> str | None:
    match = x_match(binding)
    pairs = compared_headers(binding, match)
    failures = [_failure_of_pair(name, key, message.headers.get(name)) for name, key in pairs]
    if not match.startswith("any"):
        return next((failure for failure in failures if failure), None)
    if not pairs:
        return "it matches any of no headers, which is nothing"
    return "; ".join(f for f in failures if f) if all(failures) else None


def _failure_of_pair(name: str, key: Any, value: Any) -> str | None:
    if value is None:
        return f"header {name!r} is absent"
    if key is PRESENT or key == key_of(value):
        return None
    expected = value_of(key)
    if type(expected) is type(value):
        return f"header {name!r} is {_show(value)}, not {_show(expected)}"
    return (
        f"header {name!r} is the {_kind(value)} {_show(value)}, "
        f"not the {_kind(expected)} {_show(expected)}"
    )


def _show(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # Python spells out no integer of thousands of digits
        return "…"


def _kind(value: Any) -> str:
    kinds: dict[type, str] = {str: "text", list: "array", dict: "table"}
    return kinds.get(type(value)) or type(value).__name__


def failing_term(tree: Filter, message: Message) -> str | None:
    """The first term of the filter that is not TRUE, and what the message has instead."""
    now = now_us()
    for term in conjuncts(tree):
        answer = evaluate(term, message, now)
        if answer is not True:
            seen = "; ".join(
                _describe(field, message) for field in sorted(fields_read(term), key=str)
            )
            outcome = "UNKNOWN" if answer is None else "FALSE"
            return f"{to_text(term)} is {outcome}" + (f": {seen}" if seen else "")
    return None


def _describe(field: Field, message: Message) -> str:
    value = field_value(field, message)
    if value is None:
        return f"{operand_text(field)} is absent"
    if type(value) not in KIND_OF:
        return f"{operand_text(field)} holds nothing a filter can compare"
    return f"{operand_text(field)} is {value!r}"

"""Advice about a topology: bindings that no index makes fast, and declarations that have no effect.

None of this is an error: an index never does worse than looking at every binding. These are the bindings for
which it cannot do better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from headgate.filters import FALSE, normalize
from headgate.matching import PRESENT, EqualityIndex, PairCount, Presence
from headgate.routing.bindings import Binding, compared_headers, x_match
from headgate.routing.exchanges import (
    ExchangeIndex,
    FanoutIndex,
    FilterIndex,
    HeadersIndex,
    KeyedIndex,
    TopicIndex,
)
from headgate.routing.values import value_of

MANY: Final = 1_000  # bindings that a message should not be compared with one by one
MOST: Final = 0.5  # of an exchange's bindings


class BindingAdvice(NamedTuple):
    """What is slow about one exchange, how many bindings it concerns, and what to do."""

    exchange: str
    about: str
    bindings: int
    text: str


class TopologyProblem(NamedTuple):
    """A declaration that is allowed and has no effect."""

    where: str
    text: str


# ---- advice --------------------------------------------------------------------------------------------


def make_advice(index: ExchangeIndex) -> Iterator[BindingAdvice]:
    """The bindings an index does not help with, most bindings first."""
    entries = [BindingAdvice(index.exchange.name, *entry) for entry in _advise_index(index)]
    yield from sorted(entries, key=lambda entry: -entry.bindings)


def _advise_index(index: ExchangeIndex) -> Iterator[tuple[str, int, str]]:
    match index:
        case HeadersIndex():
            yield from _advise_equalities(index.equalities, len(index.bindings))
        case FilterIndex():
            yield from _advise_equalities(index.matcher.equalities, len(index.bindings))
            yield from _advise_patterns(index.matcher.trie.leading_many)
        case TopicIndex():
            yield from _advise_patterns(index.trie.leading_many)
        case FanoutIndex() if len(index.bindings) >= MANY:
            count = len(index.bindings)
            yield "fan-out", count, f"every message goes to {count:,} queues"
    for key, gate in index.gates.items() if isinstance(index, KeyedIndex) else ():
        for about, count, text in _advise_equalities(gate.matcher.equalities, len(gate.matcher)):
            yield about, count, f"under the key {key!r}, {text}"


def _advise_equalities(index: EqualityIndex[Any], bindings: int) -> Iterator[tuple[str, int, str]]:
    if index.scanned >= MANY:
        yield (
            "no equality",
            index.scanned,
            f"{index.scanned:,} bindings ask for no value of any header, so every message is tested against "
            "each of them; add an equality (a type, a tenant) to the filters",
        )
    for pair in index.count_pairs():
        yield from _advise_pair(pair, bindings)


def _advise_pair(pair: PairCount, bindings: int) -> Iterator[tuple[str, int, str]]:
    column, waiting = _name(pair.column), pair.waiting
    if pair.key is PRESENT and waiting >= MANY:
        yield (
            "ranges only",
            waiting,
            f"{waiting:,} bindings ask only whether {column} is there, or for ranges of it, so every message "
            f"that has it is tested against each; add an equality to the filters",
        )
    elif waiting >= MANY:
        yield (
            "same value",
            waiting,
            f"{waiting:,} bindings share {column} = {value_of(pair.key)!r} and differ in what no index answers; "
            "add another equality to the filters",
        )
    elif pair.asked >= MANY and pair.asked >= MOST * bindings:
        value = "any value" if pair.key is PRESENT else repr(value_of(pair.key))
        yield (
            "same value",
            pair.asked,
            f"{pair.asked:,} of {bindings:,} bindings ask for {column} = {value}: it selects nothing among them",
        )


def _advise_patterns(leading_many: int) -> Iterator[tuple[str, int, str]]:
    if leading_many >= MANY:
        yield (
            "leading #",
            leading_many,
            f"{leading_many:,} patterns begin with # and go on, so every word of a topic is looked up among "
            "them; begin patterns with a word",
        )


def _name(column: Any) -> str:
    if isinstance(column, Presence):
        return _name(column.column)
    return f"{column[0]}.{column[1]}" if isinstance(column, tuple) else f"header {column!r}"


# ---- problems ------------------------------------------------------------------------------------------


def find_problems(indexes: Mapping[str, ExchangeIndex]) -> Iterator[TopologyProblem]:
    """Declarations that have no effect: missing alternates, bindings that never match, dead ends."""
    for name, index in indexes.items():
        alternate = index.exchange.alternate
        if alternate is not None and alternate not in indexes:
            yield TopologyProblem(
                f"exchange {name!r}", f"its alternate {alternate!r} does not exist; declare it"
            )
        for binding in index.bindings:
            tree = index.filters.get(binding)
            if tree is not None and normalize(tree).tree == FALSE:
                yield TopologyProblem(
                    f"binding {binding}", f"its filter never matches: {binding.filter_text}"
                )
            elif isinstance(index, HeadersIndex) and _never_matches(binding):
                yield TopologyProblem(
                    f"binding {binding}", "it matches any of no headers, which is nothing"
                )
            if binding.kind == "exchange" and _is_dead_end(indexes[binding.destination]):
                yield TopologyProblem(
                    f"binding {binding}", "nothing is bound to that exchange: messages end there"
                )


def _never_matches(binding: Binding) -> bool:
    match = x_match(binding)
    return match.startswith("any") and not compared_headers(binding, match)


def _is_dead_end(index: ExchangeIndex) -> bool:
    return not index.bindings and index.exchange.alternate is None

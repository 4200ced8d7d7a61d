"""What makes a topology slow or useless, named: for people who wonder why, or before they have to.

Nothing here is an error: an index never does worse than looking at every binding. These are the bindings it
cannot do better for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from headgate.filters import FALSE, normalize
from headgate.matching import PRESENT, EqualityIndex, PairCount, Presence
from headgate.routing.bindings import Binding, wanted_headers, x_match
from headgate.routing.exchanges import (
    FanoutIndex,
    FilterIndex,
    HeadersIndex,
    Index,
    KeyedIndex,
    TopicIndex,
)
from headgate.routing.values import value_of

MANY: Final = 1_000  # bindings one by one that a message should not have to meet
MOST: Final = 0.5  # of an exchange's bindings


class Advice(NamedTuple):
    """Something about one exchange, how many bindings it is about, and what to do."""

    exchange: str
    about: str
    bindings: int
    text: str


class Problem(NamedTuple):
    """Something that is allowed and can hardly be meant."""

    where: str
    text: str


# ---- advice --------------------------------------------------------------------------------------------


def advice(index: Index) -> Iterator[Advice]:
    """What an index cannot help with, heaviest first."""
    found = [Advice(index.exchange.name, *named) for named in _named(index)]
    yield from sorted(found, key=lambda entry: -entry.bindings)


def _named(index: Index) -> Iterator[tuple[str, int, str]]:
    match index:
        case HeadersIndex():
            yield from _of_equalities(index.equalities, len(index.bindings))
        case FilterIndex():
            yield from _of_equalities(index.matcher.equalities, len(index.bindings))
            yield from _of_trie(index.matcher.trie.leading_many)
        case TopicIndex():
            yield from _of_trie(index.trie.leading_many)
        case FanoutIndex() if len(index.bindings) >= MANY:
            count = len(index.bindings)
            yield "fan-out", count, f"every message goes to {count:,} queues"
    for key, gate in index.gates.items() if isinstance(index, KeyedIndex) else ():
        for about, count, text in _of_equalities(gate.matcher.equalities, len(gate.matcher)):
            yield about, count, f"under the key {key!r}, {text}"


def _of_equalities(index: EqualityIndex[Any], bindings: int) -> Iterator[tuple[str, int, str]]:
    if index.scanned >= MANY:
        yield (
            "no equality",
            index.scanned,
            f"{index.scanned:,} bindings ask for no value of any header, so every message is tested against "
            "each of them; add an equality (a type, a tenant) to the filters",
        )
    for pair in index.count_pairs():
        yield from _of_pair(pair, bindings)


def _of_pair(pair: PairCount, bindings: int) -> Iterator[tuple[str, int, str]]:
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
        wanted = "any value" if pair.key is PRESENT else repr(value_of(pair.key))
        yield (
            "same value",
            pair.asked,
            f"{pair.asked:,} of {bindings:,} bindings ask for {column} = {wanted}: it selects nothing among them",
        )


def _of_trie(leading_many: int) -> Iterator[tuple[str, int, str]]:
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


def problems(indexes: Mapping[str, Index]) -> Iterator[Problem]:
    """What can be declared and does nothing: missing alternates, bindings that never match, dead ends."""
    for name, index in indexes.items():
        alternate = index.exchange.alternate
        if alternate is not None and alternate not in indexes:
            yield Problem(
                f"exchange {name!r}", f"its alternate {alternate!r} does not exist; declare it"
            )
        for binding in index.bindings:
            tree = index.filters.get(binding)
            if tree is not None and normalize(tree).tree == FALSE:
                yield Problem(
                    f"binding {binding}", f"its filter never matches: {binding.filter_text}"
                )
            elif isinstance(index, HeadersIndex) and _matches_nothing(binding):
                yield Problem(
                    f"binding {binding}", "it matches any of no headers, which is nothing"
                )
            if binding.kind == "exchange" and _dead_end(indexes[binding.destination]):
                yield Problem(
                    f"binding {binding}", "nothing is bound to that exchange: messages end there"
                )


def _matches_nothing(binding: Binding) -> bool:
    match = x_match(binding)
    return match.startswith("any") and not list(wanted_headers(binding, match))


def _dead_end(index: Index) -> bool:
    return not index.bindings and index.exchange.alternate is None

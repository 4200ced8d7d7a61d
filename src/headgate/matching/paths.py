"""The paths of a filter: what a message must hold for the filter to match.

A filter has one path for each way its OR can be true. A path names equalities that must all hold, or else a topic
pattern, or else a header that must be present; what these do not decide is its rest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from headgate.filters import (
    EXACT_AS_DOUBLE,
    FALSE,
    MANY,
    ONE,
    TRUE,
    And,
    Compare,
    Exists,
    Field,
    Filter,
    In,
    IsNull,
    Like,
    Literal,
    Or,
    TopicMatch,
    conjuncts,
    join_terms,
    normalize,
    walk,
    words_of,
)
from headgate.matching.index import PRESENT, Presence
from headgate.matching.tree import AnyOf, IndexColumn

Pair: TypeAlias = tuple[IndexColumn, Any]  # a column, and the key its value must have

MAX_PATHS: Final = 64  # of one filter; beyond that it is tested whole
TRUE_KEY: Final = ("bool", True)
FALSE_KEY: Final = ("bool", False)
_ALWAYS_PRESENT: Final = frozenset({("sys", "topic"), ("sys", "priority")})


class Path(NamedTuple):
    """One way a filter can be true."""

    pairs: tuple[Pair, ...] = ()
    pattern: str | None = None
    rest: Filter = TRUE

    @property
    def flat(self) -> tuple[Any, ...]:
        """The pairs as column, key, column, key, …"""
        return tuple(chain.from_iterable(self.pairs))

    @property
    def anchored(self) -> bool:
        """Whether a message finds the path by what it holds; otherwise every message is tested."""
        return bool(self.pairs) or self.pattern is not None


def column_of(field: Field) -> IndexColumn:
    """The column of a field: a header's name, anything else by scope and name."""
    return field.name if field.scope == "header" else (field.scope, field.name)


def key_of(value: object) -> Hashable:
    """The key of a literal: numbers equal numbers and booleans only booleans, although 1 == True in Python."""
    if type(value) is bool:
        return TRUE_KEY if value else FALSE_KEY
    return value


def paths(node: Filter) -> tuple[Path, ...]:
    """The paths of a filter; none when no message can match it."""
    tree = normalize(node).tree
    if tree == FALSE:
        return ()
    ways = tree.terms if isinstance(tree, Or) else (tree,)
    all_paths = [path for way in ways for path in _paths_of(conjuncts(way))]
    if len(all_paths) > MAX_PATHS or (
        len(all_paths) > 1 and not all(p.anchored for p in all_paths)
    ):
        return (Path(rest=tree),)
    return tuple(all_paths)


def _paths_of(terms: tuple[Filter, ...]) -> Iterator[Path]:
    fixed: dict[Pair, None] = {}
    lists: list[tuple[Filter, tuple[Pair, ...]]] = []
    rest: list[Filter] = []
    for term in terms:
        choices = _choices(term)
        if choices is None:
            rest.append(term)
        elif len(choices) == 1:
            fixed[choices[0]] = None
        else:
            lists.append((term, choices))
    lists.sort(key=lambda entry: len(entry[1]))
    # The shortest list leads to the filter: a second one would multiply the places it is filed under.
    rest += [term for term, _ in lists[1:]]
    term, choices = lists[0] if lists else (TRUE, ())
    columns = {column for column, _ in choices}
    if len(columns) == 1:
        listed = columns.pop(), AnyOf(key for _, key in choices)
        yield Path((*fixed, listed), None, _all_of(rest))
    elif columns and not fixed and len(choices) <= MAX_PATHS:
        yield from (Path((pair,), None, _all_of(rest)) for pair in choices)
    else:
        rest += [term] if columns else []
        yield Path(tuple(fixed), None, _all_of(rest)) if fixed else _weak_path(rest)


def _choices(term: Filter) -> tuple[Pair, ...] | None:
    """The equalities, one of which makes the term true, and none of which makes it not; None for any other term."""
    match term:
        case Compare(op="=", left=Field() as field, right=Literal(value=value)):
            return ((column_of(field), key_of(value)),) if _can_be_looked_up(value) else None
        case In(value=Field() as field, items=items, negated=False):
            values = [item.value for item in items if isinstance(item, Literal)]
            if len(values) < len(items) or not all(map(_can_be_looked_up, values)):
                return None
            return tuple((column_of(field), key_of(value)) for value in values)
        case TopicMatch(pattern=pattern, negated=False) if _plain(pattern):
            return ((("sys", "topic"), pattern),)
        case Or(terms=terms):
            return _choices_of_all(terms)
        case _:
            return None


def _choices_of_all(terms: tuple[Filter, ...]) -> tuple[Pair, ...] | None:
    collected: dict[Pair, None] = {}
    for term in terms:
        choices = _choices(term)
        if choices is None:
            return None
        collected.update(dict.fromkeys(choices))
    return tuple(collected)


def _can_be_looked_up(value: object) -> bool:
    """Whether equal keys mean equal values: beyond 2**53 an int may equal a double with another key."""
    return not isinstance(value, int | float) or abs(value) < EXACT_AS_DOUBLE


def _plain(pattern: str) -> bool:
    words = words_of(pattern)
    return ONE not in words and MANY not in words


def _weak_path(terms: list[Filter]) -> Path:
    """A path without equalities: by a topic pattern, or by a header that must be present, or by neither."""
    for at, term in enumerate(terms):
        if isinstance(term, TopicMatch) and not term.negated:
            return Path((), term.pattern, _all_of(terms[:at] + terms[at + 1 :]))
    required = (column for term in terms for column in _required_columns(term))
    column = next(required, None)
    pairs = () if column is None else ((Presence(column), PRESENT),)
    return Path(pairs, None, _all_of(terms))


def _required_columns(term: Filter) -> Iterator[IndexColumn]:
    """Columns without which the term is never TRUE."""
    match term:
        case Compare() | Like() | In():
            operands = (term.left, term.right) if isinstance(term, Compare) else (term.value,)
            fields = [f for operand in operands for f in walk(operand) if isinstance(f, Field)]
        case Exists(field=field, negated=False) | IsNull(field=field, negated=True):
            fields = [field]
        case _:
            fields = []
    yield from (c for c in map(column_of, fields) if c not in _ALWAYS_PRESENT)


def _all_of(terms: Iterable[Filter]) -> Filter:
    terms = tuple(terms)
    return join_terms(And, terms) if terms else TRUE

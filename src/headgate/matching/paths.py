"""The ways into a filter: what a message must hold for it to have a chance.

A filter is cut into paths, one for each way its OR can be true. A path names equalities that must all hold,
or at least a topic pattern, or at least a header that must be there; what they do not decide is its rest.
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
    joined,
    normalize,
    walk,
    words_of,
)
from headgate.matching.index import PRESENT, Presence
from headgate.matching.tree import AnyOf, Column

Pair: TypeAlias = tuple[Column, Any]  # a column, and the key its value must have

MAX_PATHS: Final = 64  # ways into one filter; beyond that it is tested whole
TRUE_KEY: Final = ("bool", True)
FALSE_KEY: Final = ("bool", False)
_ALWAYS_THERE: Final = frozenset({("sys", "topic"), ("sys", "priority")})


class Path(NamedTuple):
    """One way a filter can be true."""

    wanted: tuple[Pair, ...] = ()
    pattern: str | None = None
    rest: Filter = TRUE

    @property
    def flat(self) -> tuple[Any, ...]:
        """What is wanted, column, key, column, key, …"""
        return tuple(chain.from_iterable(self.wanted))

    @property
    def anchored(self) -> bool:
        """Whether anything but looking at every message leads here."""
        return bool(self.wanted) or self.pattern is not None


def column_of(field: Field) -> Column:
    """A header goes by its name alone, anything else by scope and name."""
    return field.name if field.scope == "header" else (field.scope, field.name)


def key_of(value: object) -> Hashable:
    """Numbers equal numbers and booleans only booleans, whatever Python thinks of 1 and True."""
    if type(value) is bool:
        return TRUE_KEY if value else FALSE_KEY
    return value


def paths(node: Filter) -> tuple[Path, ...]:
    """Every way into the filter; none when nothing can match it."""
    tree = normalize(node).tree
    if tree == FALSE:
        return ()
    ways = tree.terms if isinstance(tree, Or) else (tree,)
    found = [path for way in ways for path in _ways_into(conjuncts(way))]
    if len(found) > MAX_PATHS or (len(found) > 1 and not all(p.anchored for p in found)):
        return (Path(rest=tree),)
    return tuple(found)


def _ways_into(terms: tuple[Filter, ...]) -> Iterator[Path]:
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
    # The shortest list leads into the filter: a second one would multiply the places it is filed under.
    rest += [term for term, _ in lists[1:]]
    term, choices = lists[0] if lists else (TRUE, ())
    columns = {column for column, _ in choices}
    if len(columns) == 1:
        listed = columns.pop(), AnyOf(key for _, key in choices)
        yield Path((*fixed, listed), None, _all_of(rest))
    elif columns and not fixed and len(choices) <= MAX_PATHS:
        yield from (Path((chosen,), None, _all_of(rest)) for chosen in choices)
    else:
        rest += [term] if columns else []
        yield Path(tuple(fixed), None, _all_of(rest)) if fixed else _weak_path(rest)


def _choices(term: Filter) -> tuple[Pair, ...] | None:
    """The equalities of which one must hold, and that suffices; None when the term is no such thing."""
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
    """Beyond 2**53 an int equals more than one double: that takes a comparison."""
    return not isinstance(value, int | float) or abs(value) < EXACT_AS_DOUBLE


def _plain(pattern: str) -> bool:
    words = words_of(pattern)
    return ONE not in words and MANY not in words


def _weak_path(terms: list[Filter]) -> Path:
    """No equality leads there: a topic pattern may, or that some header must be there at all."""
    for at, term in enumerate(terms):
        if isinstance(term, TopicMatch) and not term.negated:
            return Path((), term.pattern, _all_of(terms[:at] + terms[at + 1 :]))
    needed = (column for term in terms for column in _columns_needed(term))
    column = next(needed, None)
    wanted = () if column is None else ((Presence(column), PRESENT),)
    return Path(wanted, None, _all_of(terms))


def _columns_needed(term: Filter) -> Iterator[Column]:
    """Columns without which the term is never TRUE."""
    match term:
        case Compare() | Like() | In():
            operands = (term.left, term.right) if isinstance(term, Compare) else (term.value,)
            fields = [f for operand in operands for f in walk(operand) if isinstance(f, Field)]
        case Exists(field=field, negated=False) | IsNull(field=field, negated=True):
            fields = [field]
        case _:
            fields = []
    yield from (c for c in map(column_of, fields) if c not in _ALWAYS_THERE)


def _all_of(terms: Iterable[Filter]) -> Filter:
    terms = tuple(terms)
    return joined(And, terms) if terms else TRUE

"""The plan of a claim: a filter as branches, each a lookup in an index or a scan.

A filter header that the queue declares is copied next to the delivery and indexed in the order of the queue. Where a
filter needs such a header to equal one of some values, the claim looks up each value and merges the results: the cost
depends on the number of matches taken. Otherwise the claim reads the READY deliveries in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from headgate.filters import (
    EXACT_AS_DOUBLE,
    TRUE,
    And,
    Compare,
    Field,
    Filter,
    In,
    IsNull,
    Like,
    Literal,
    Or,
    cheapest_first,
    conjuncts,
    fields_read,
    join_terms,
    literal_prefix,
    normalize,
)
from headgate.message import Scalar

MOST_BRANCHES: Final = 200
_PRIORITY: Final = Field("sys", "priority")


@dataclass(frozen=True, slots=True)
class Probe:
    """A lookup: an indexed header must equal this value."""

    header: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class Branch:
    """One alternative of a filter. `on_delivery` needs only the columns of the delivery, `on_message` the message."""

    probe: Probe | None
    on_delivery: Filter
    on_message: Filter


def branches_of(filter: Filter | None, indexed: Collection[str]) -> tuple[Branch, ...]:
    """The branches that together match exactly what the filter matches; at least one."""
    tree = TRUE if filter is None else normalize(filter).tree
    branches = _alternatives(tree, frozenset(indexed))
    if branches is None or not 0 < len(branches) <= MOST_BRANCHES:
        branches = [(None, tree)]
    return tuple(_split(probe, branch, frozenset(indexed)) for probe, branch in branches)


def choices_of(filter: Filter | None, indexed: Collection[str]) -> list[tuple[Branch, ...]]:
    """All sets of branches that answer the filter by lookups, the smallest first: where several headers must equal
    something, each of them can be looked up."""
    first = branches_of(filter, indexed)
    tree = TRUE if filter is None else normalize(filter).tree
    if not isinstance(tree, And) or first[0].probe is None:
        return [first]
    known = frozenset(indexed)
    by_term = (_probe_one(tree.terms, (term,), known) for term in tree.terms)
    usable = (branches for branches in by_term if branches and len(branches) <= MOST_BRANCHES)
    choices = [tuple(_split(probe, branch, known) for probe, branch in each) for each in usable]
    return sorted(choices, key=len)


def ranged_header(branch: Branch) -> str | None:
    """The indexed header that the branch restricts to a range of values, if there is one."""
    for term in conjuncts(branch.on_delivery):
        match term:
            case Compare(
                op="<" | "<=" | ">" | ">=",
                left=Field(scope="header", name=name),
                right=Literal(value=value),
            ) if _is_exact(value) and not isinstance(value, bool):
                return name
            case Like(value=Field(scope="header", name=name), negated=False) if literal_prefix(
                term.pattern, term.escape
            ):
                return name
            case _:
                continue
    return None


def key_prefix(branch: Branch) -> tuple[str, str] | None:
    """An indexed header that must begin with a text, and that text; or one that must only exist, and the empty text."""
    for term in conjuncts(branch.on_delivery):
        match term:
            case Like(value=Field(scope="header", name=name), negated=False) if prefix := (
                literal_prefix(term.pattern, term.escape)
            ):
                return name, prefix
            case IsNull(field=Field(scope="header", name=name), negated=True):
                return name, ""
            case _:
                continue
    return None


def headers_in(filter: Filter) -> frozenset[str]:
    """The headers that the filter reads."""
    tree = normalize(filter).tree
    return frozenset(field.name for field in fields_read(tree) if field.scope == "header")


def probed_headers(filter: Filter) -> tuple[str, ...]:
    """The headers to declare, so that a claim with this filter is answered by lookups instead of a scan; sorted."""
    tree = normalize(filter).tree
    branches = _alternatives(tree, headers_in(filter))
    if branches is None or len(branches) > MOST_BRANCHES:
        return ()
    return tuple(sorted({probe.header for probe, _ in branches if probe is not None}))


_Alternatives = list[tuple[Probe | None, Filter]]


def _alternatives(node: Filter, indexed: frozenset[str]) -> _Alternatives | None:
    """The node as an OR of branches, each with a probe; None if one of them has none."""
    match node:
        case Compare(op="=", left=Field(scope="header", name=name), right=Literal(value=value)):
            return [(Probe(name, value), node)] if name in indexed and _is_exact(value) else None
        case In(value=Field(scope="header", name=name) as field, items=items, negated=False):
            literals = [item for item in items if isinstance(item, Literal)]
            if name not in indexed or len(literals) < len(items):
                return None
            if not all(_is_exact(one.value) for one in literals):
                return None
            return [(Probe(name, one.value), Compare("=", field, one)) for one in literals]
        case And(terms=terms):
            return _probe_one(terms, terms, indexed)
        case Or(terms=terms):
            return _probe_all(terms, indexed)
        case _:
            return None


def _probe_one(
    terms: tuple[Filter, ...], choice: tuple[Filter, ...], indexed: frozenset[str]
) -> _Alternatives | None:
    """The branches of the term in `choice` that has the fewest; the other terms are part of each branch."""
    tried = [(_alternatives(term, indexed), term) for term in choice]
    usable = [(branches, term) for branches, term in tried if branches is not None]
    if not usable:
        return None
    branches, best = min(usable, key=lambda pair: len(pair[0]))
    others = tuple(term for term in terms if term is not best)
    return [(probe, join_terms(And, (branch, *others))) for probe, branch in branches]


def _is_exact(value: Scalar) -> bool:
    """Whether equal values have one entry in the index: several large integers are equal as doubles."""
    return isinstance(value, str) or abs(value) < EXACT_AS_DOUBLE


def _probe_all(terms: tuple[Filter, ...], indexed: frozenset[str]) -> _Alternatives | None:
    """The branches of all terms; None if one of them has none."""
    every: _Alternatives = []
    for term in terms:
        branches = _alternatives(term, indexed)
        if branches is None:
            return None
        every.extend(branches)
    return every


def _split(probe: Probe | None, node: Filter, indexed: frozenset[str]) -> Branch:
    terms = cheapest_first(conjuncts(normalize(node).tree))
    on_delivery = [term for term in terms if _needs_only_delivery(term, indexed)]
    on_message = [term for term in terms if not _needs_only_delivery(term, indexed)]
    return Branch(probe, _conjunction(on_delivery), _conjunction(on_message))


def _needs_only_delivery(term: Filter, indexed: frozenset[str]) -> bool:
    return all(
        field.name in indexed if field.scope == "header" else field == _PRIORITY
        for field in fields_read(term)
    )


def _conjunction(terms: Iterable[Filter]) -> Filter:
    terms = tuple(terms)
    return join_terms(And, terms) if terms else TRUE

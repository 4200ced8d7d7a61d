"""How a claim looks for what a filter wants.

A header that the queue declares is copied next to the delivery and indexed in the order of the queue. Where a filter
needs such a header to equal something, the claim looks up each of these values and merges what it finds: the cost
is that of the matches taken, however few there are. Otherwise it reads the READY deliveries in order.
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
    Like,
    Literal,
    Or,
    cheapest_first,
    conjuncts,
    fields_read,
    joined,
    literal_prefix,
    normalize,
)
from headgate.message import Scalar

MOST_BRANCHES: Final = 200
_PRIORITY: Final = Field("sys", "priority")


@dataclass(frozen=True, slots=True)
class Probe:
    """An indexed header must equal this."""

    header: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class Branch:
    """One of several ways to match: `on_delivery` is answered next to the delivery, `on_message` is not."""

    probe: Probe | None
    on_delivery: Filter
    on_message: Filter


def branches_of(filter: Filter | None, indexed: Collection[str]) -> tuple[Branch, ...]:
    """The branches that find, together, exactly what the filter matches; never none."""
    tree = TRUE if filter is None else normalize(filter).tree
    found = _alternatives(tree, frozenset(indexed))
    if found is None or not 0 < len(found) <= MOST_BRANCHES:
        found = [(None, tree)]
    return tuple(_split(probe, branch, frozenset(indexed)) for probe, branch in found)


def choices_of(filter: Filter | None, indexed: Collection[str]) -> list[tuple[Branch, ...]]:
    """All ways to look the filter up, the one with the fewest branches first: where several headers must equal
    something, any of them will do."""
    first = branches_of(filter, indexed)
    tree = TRUE if filter is None else normalize(filter).tree
    if not isinstance(tree, And) or first[0].probe is None:
        return [first]
    known = frozenset(indexed)
    found = (_best_of(tree.terms, known, chosen=term) for term in tree.terms)
    usable = (branches for branches in found if branches and len(branches) <= MOST_BRANCHES)
    ways = [tuple(_split(probe, branch, known) for probe, branch in way) for way in usable]
    return sorted(ways, key=len)


def ranged_header(branch: Branch) -> str | None:
    """An indexed header that the branch wants within a range of values, if there is one."""
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


def probed_headers(filter: Filter) -> tuple[str, ...]:
    """The headers which, declared, would let a claim look up instead of read: the best set, sorted."""
    tree = normalize(filter).tree
    everything = frozenset(field.name for field in fields_read(tree) if field.scope == "header")
    found = _alternatives(tree, everything)
    if found is None or len(found) > MOST_BRANCHES:
        return ()
    return tuple(sorted({probe.header for probe, _ in found if probe is not None}))


_Alternatives = list[tuple[Probe | None, Filter]]


def _alternatives(node: Filter, indexed: frozenset[str]) -> _Alternatives | None:
    """The node as an OR of branches with a probe each, or None."""
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
            return _best_of(terms, indexed)
        case Or(terms=terms):
            return _all_of(terms, indexed)
        case _:
            return None


def _best_of(
    terms: tuple[Filter, ...], indexed: frozenset[str], chosen: Filter | None = None
) -> _Alternatives | None:
    """The term with the fewest branches, or the one chosen; the others are asked in each of them."""
    wanted = terms if chosen is None else (chosen,)
    found = [(_alternatives(term, indexed), term) for term in wanted]
    usable = [(branches, term) for branches, term in found if branches is not None]
    if not usable:
        return None
    branches, best = min(usable, key=lambda pair: len(pair[0]))
    others = tuple(term for term in terms if term is not best)
    return [(probe, joined(And, (branch, *others))) for probe, branch in branches]


def _is_exact(value: Scalar) -> bool:
    """Whether one value of the index is all that equals it: as doubles, several large integers are equal."""
    return isinstance(value, str) or abs(value) < EXACT_AS_DOUBLE


def _all_of(terms: tuple[Filter, ...], indexed: frozenset[str]) -> _Alternatives | None:
    found: _Alternatives = []
    for term in terms:
        branches = _alternatives(term, indexed)
        if branches is None:
            return None
        found.extend(branches)
    return found


def _split(probe: Probe | None, node: Filter, indexed: frozenset[str]) -> Branch:
    terms = cheapest_first(conjuncts(normalize(node).tree))
    near = [term for term in terms if _answered_by_delivery(term, indexed)]
    far = [term for term in terms if not _answered_by_delivery(term, indexed)]
    return Branch(probe, _conjunction(near), _conjunction(far))


def _answered_by_delivery(term: Filter, indexed: frozenset[str]) -> bool:
    return all(
        field.name in indexed if field.scope == "header" else field == _PRIORITY
        for field in fields_read(term)
    )


def _conjunction(terms: Iterable[Filter]) -> Filter:
    terms = tuple(terms)
    return joined(And, terms) if terms else TRUE

"""Rough costs of terms: cheap and decisive ones are tested first."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.filters.nodes import (
    And,
    Compare,
    Constant,
    Exists,
    Field,
    Filter,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    TopicMatch,
)


def cheapest_first(terms: Iterable[Filter]) -> list[Filter]:
    """Sort terms by their cost."""
    return sorted(terms, key=cost)


def cost(node: Filter) -> int:
    """Estimate what testing a term costs."""
    match node:
        case Constant():
            return 0
        case Compare(op=op, left=Field(), right=Literal(kind=kind)):
            return (1 if op == "=" else 2) + (kind == "string")
        case IsNull() | Exists():
            return 2
        case In(value=Field(), items=items) if all(isinstance(item, Literal) for item in items):
            return 3
        case TopicMatch():
            return 5
        case Like(value=Field()):
            return 6
        case Compare() | In() | Like():
            return 50  # arithmetic, or one field against another
        case Not(term=term):
            return cost(term)
        case And(terms=terms) | Or(terms=terms):
            return 1 + sum(map(cost, terms))

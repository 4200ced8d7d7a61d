"""What a leaf costs to answer, roughly: cheap and decisive questions are asked first."""

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
    return sorted(terms, key=cost)


def cost(node: Filter) -> int:
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

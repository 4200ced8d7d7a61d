"""What a term costs per row of this batch, in nanoseconds: is it worth picking the undecided rows first?

The order of the terms is fixed beforehand (`filters.cost`), but only the batch knows whether strings come
as codes, which are cheap to test everywhere, or as text, which is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from headgate.filters.compile.arrow.rows import Rows, Text, source
from headgate.filters.like import pieces_of
from headgate.filters.nodes import (
    And,
    Compare,
    Field,
    Filter,
    In,
    Like,
    Literal,
    Or,
    TopicMatch,
)


class Weight(NamedTuple):
    """What a term costs per row: at most, which is known before there are rows, and for these."""

    most: float
    of: Callable[[Rows], float]


PLAIN: Final = 0.2  # a comparison of numbers
CODES: Final = 0.5  # of dictionary codes
COMPUTED: Final = 4.0  # arithmetic, or one field against another
TEXT: Final = 6.0  # a kernel that looks at every string
SEARCHED: Final = 100.0  # a regular expression
# Finding the undecided rows, fetching what they hold, and putting the answers back.
PICKING: Final = 15_000.0
PICKING_PER_ROW: Final = 0.5
PICKING_PER_ROW_PICKED: Final = 2.0


def saved_at_least(count: int) -> float:
    """What picking must save, of so many rows, however few are picked."""
    return PICKING + PICKING_PER_ROW * count


def worth_picking(rows: Rows, undecided: int, weight: Weight) -> bool:
    """Asking only about the undecided rows costs less than asking about all."""
    saved = (rows.count - undecided) * weight.of(rows)
    return saved > saved_at_least(rows.count) + PICKING_PER_ROW_PICKED * undecided


def weight_of(node: Filter) -> Weight:
    match node:
        case And(terms=terms) | Or(terms=terms):
            weights = [weight_of(term) for term in terms]
            most = sum(weight.most for weight in weights)
            return Weight(most, lambda rows: sum(weight.of(rows) for weight in weights))
        case Compare(left=Field() as field, right=Literal(value=str())):
            return _text_weight(field, TEXT)
        case In(value=Field() as field, items=items) if _all_text(items):
            return _text_weight(field, TEXT)
        case Like(value=Field() as field, pattern=pattern, escape=escape):
            return _text_weight(field, SEARCHED if _is_searched(pattern, escape) else TEXT)
        case TopicMatch():
            return _text_weight(Field("sys", "topic"), SEARCHED)
        case Compare(right=right) if not isinstance(right, Literal):
            return _always(COMPUTED)
        case Compare(left=left) | In(value=left) if not isinstance(left, Field):
            return _always(COMPUTED)
        case In(items=items):
            return _always(PLAIN * len(items))
        case _:
            return _always(PLAIN)


def _always(cost: float) -> Weight:
    return Weight(cost, lambda rows: cost)


def _text_weight(field: Field, as_text: float) -> Weight:
    strings = source(field, "string")
    return Weight(as_text, lambda rows: as_text if isinstance(rows.text(strings), Text) else CODES)


def _all_text(items: tuple[object, ...]) -> bool:
    return all(isinstance(item, Literal) and isinstance(item.value, str) for item in items)


def _is_searched(pattern: str, escape: str | None) -> bool:
    pieces = pieces_of(pattern, escape)
    return len(pieces) > 2 or any(part is None for piece in pieces for part in piece)

"""What is asked of a stream: a filter, in either of two forms, and which columns.

RabbitMQ's own form is `filter_values=["AMER"]`, with `match_unfiltered=True` for the messages that have no filter
value at all. Both forms may be given; a message must pass both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from headgate.errors import StreamOptionsError
from headgate.filters import (
    FALSE,
    MAX_IN_ITEMS,
    TRUE,
    And,
    Field,
    Filter,
    FilterLike,
    In,
    IsNull,
    Literal,
    NormalFilter,
    Or,
    as_filter,
    joined,
    normalize,
)
from headgate.streams.read.entry_filters import EntryFilter, EntryFilters, resolve_entry_filters

_FILTER_VALUE: Final = Field("sys", "filter_value")


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """What is asked of a stream."""

    filter: NormalFilter = field(default_factory=lambda: normalize(TRUE))
    entry_filters: tuple[EntryFilter, ...] = ()
    columns: tuple[str, ...] | None = None  # None: all there are; `offset` comes always

    def at(self, now_us: int) -> StreamQuery:
        """The query at one moment: `UTC()` is the same for all messages."""
        return replace(self, filter=self.filter.at(now_us))


def make_query(
    filter: FilterLike | None = None,
    *,
    filter_values: Iterable[str] | None = None,
    match_unfiltered: bool = False,
    entry_filter: EntryFilters = None,
    columns: Sequence[str] | None = None,
) -> StreamQuery:
    """The query that these arguments of `consume` and `scan` mean; a bad filter is refused here."""
    if match_unfiltered and filter_values is None:
        raise StreamOptionsError(
            "match_unfiltered=True adds the messages without a filter value to those that filter_values "
            "selects: give filter_values too"
        )
    wanted = TRUE if filter_values is None else _one_of(filter_values, match_unfiltered)
    whole = joined(And, (TRUE if filter is None else as_filter(filter), wanted))
    return StreamQuery(
        normalize(whole),
        resolve_entry_filters(entry_filter),
        None if columns is None else tuple(columns),
    )


def _one_of(values: Iterable[str], match_unfiltered: bool) -> Filter:
    if isinstance(values, str):
        raise StreamOptionsError(f"filter_values: give a list, [{values!r}]")
    terms: list[Filter] = list(_lists(values))
    if match_unfiltered:
        terms.append(IsNull(_FILTER_VALUE))
    return joined(Or, terms) if terms else FALSE


def _lists(values: Iterable[str]) -> Iterator[Filter]:
    items = tuple(map(Literal, dict.fromkeys(values)))
    for start in range(0, len(items), MAX_IN_ITEMS):
        yield In(_FILTER_VALUE, items[start : start + MAX_IN_ITEMS])

"""What a reader asks of a stream: a filter, in either of two forms, entry filters and columns.

RabbitMQ's own form is `filter_values=["AMER"]`, with `match_unfiltered=True` to include the messages that have no
filter value. Both forms may be given; a message must pass both. With `whole_chunks=True` filter values only decide which
chunks are read, as in RabbitMQ: all messages of a chunk that may hold one of the values are returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from headgate.checks import list_texts, suggest
from headgate.columns import OVERFLOW, SYSTEM_COLUMNS, is_typed_name
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
    join_terms,
    normalize,
)
from headgate.streams.read.entry_filters import EntryFilter, EntryFilters, resolve_entry_filters

_FILTER_VALUE: Final = Field("sys", "filter_value")


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """A filter in normal form, entry filters and columns."""

    filter: NormalFilter = field(default_factory=lambda: normalize(TRUE))
    entry_filters: tuple[EntryFilter, ...] = ()
    columns: tuple[str, ...] | None = None  # None: all columns; `offset` is always among them
    chunk_filter: NormalFilter | None = None  # which chunks are read, whatever else is in them

    def at(self, now_us: int) -> StreamQuery:
        """Return the query for one moment: `UTC()` is the same for all messages."""
        return replace(self, filter=self.filter.at(now_us))


def make_query(
    filter: FilterLike | None = None,
    *,
    filter_values: Iterable[str] | None = None,
    match_unfiltered: bool = False,
    entry_filter: EntryFilters = None,
    columns: Sequence[str] | None = None,
    whole_chunks: bool = False,
) -> StreamQuery:
    """Make a query from the arguments of `consume` and `scan`; refuse a bad filter."""
    if match_unfiltered and filter_values is None:
        raise StreamOptionsError(
            "match_unfiltered=True adds the messages without a filter value to those that filter_values "
            "selects: give filter_values too"
        )
    has_value = TRUE if filter_values is None else _has_value(filter_values, match_unfiltered)
    own = TRUE if filter is None else as_filter(filter)
    narrow = not whole_chunks and has_value != TRUE
    return StreamQuery(
        normalize(join_terms(And, (own, has_value)) if narrow else own),
        resolve_entry_filters(entry_filter),
        None if columns is None else _check_columns(columns),
        normalize(has_value) if whole_chunks else None,
    )


def _check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Refuse a name that no column can have; those of headers that no message holds are accepted."""
    names = list_texts("columns", columns, StreamOptionsError)
    for name in names:
        if not is_typed_name(name) and name not in (*SYSTEM_COLUMNS, OVERFLOW):
            raise StreamOptionsError(
                f"columns: there is no column {name!r}. The header of that name has a column for each kind of value: "
                f"h.s.{name} (text), h.i.{name} (integers), h.f.{name} (floats), h.b.{name} (booleans). "
                f"Of the other columns, {suggest(name, SYSTEM_COLUMNS)}"
            )
    return names


def _has_value(values: Iterable[str], match_unfiltered: bool) -> Filter:
    values = list_texts("filter_values", values, StreamOptionsError)
    terms: list[Filter] = list(_in_lists(values))
    if match_unfiltered:
        terms.append(IsNull(_FILTER_VALUE))
    return join_terms(Or, terms) if terms else FALSE


def _in_lists(values: Iterable[str]) -> Iterator[Filter]:
    items = tuple(map(Literal, dict.fromkeys(values)))
    for start in range(0, len(items), MAX_IN_ITEMS):
        yield In(_FILTER_VALUE, items[start : start + MAX_IN_ITEMS])

"""Messages turned on their side: one Python list per field, so that a batch is checked and stored by column.

Publishers repeat themselves: nearly always all messages of a batch have the same headers. Then a column
is one C-speed pass; otherwise values are put in place one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from types import NoneType
from typing import Any, Final, NamedTuple

from headgate.message import HeaderValue, Message

ABSENT: Final = frozenset({NoneType})


class Column(NamedTuple):
    """A field's values, None where a message has none, and the types that occur."""

    values: list[Any]
    types: frozenset[type]


class Transposed(NamedTuple):
    """Everything of the messages but their payloads."""

    topic: Column
    priority: Column
    timestamp: Column
    id: Column
    filter_value: Column
    key: Column
    headers: dict[str, Column]
    properties: dict[str, Column]


def transpose(messages: Sequence[Message]) -> Transposed:
    return Transposed(
        column([m.topic for m in messages]),
        column([m.priority for m in messages]),
        column([m.timestamp for m in messages]),
        column([m.id for m in messages]),
        column([m.filter_value for m in messages]),
        column([m.key for m in messages]),
        by_name([m.headers for m in messages]),
        by_name([m.properties for m in messages]),
    )


def column(values: list[Any]) -> Column:
    if values and values[0] is None and values.count(None) == len(values):
        # Most columns nobody uses: counting is much faster than asking.
        return Column(values, ABSENT)
    return Column(values, frozenset(map(type, values)))


def by_name(
    rows: Sequence[Mapping[str, HeaderValue]], only: Collection[str] | None = None
) -> dict[str, Column]:
    """One column per name, in order of appearance; `only` keeps a hostile batch from making thousands."""
    if not any(rows):
        return {}
    found = in_common(rows)
    if found is None:
        found = _put_in_place(rows, only)
    return {name: column(v) for name, v in found.items() if only is None or name in only}


def in_common(rows: Sequence[Mapping[str, HeaderValue]]) -> dict[str, list[Any]] | None:
    """The values of each name, if all rows have the same names; else None."""
    names = list(rows[0])
    if list(map(len, rows)).count(len(names)) != len(rows):
        return None
    try:
        # With as many names as the first row, and all of its names, a row has the same names.
        return {name: list(map(itemgetter(name), rows)) for name in names}
    except KeyError:
        return None


def _put_in_place(
    rows: Sequence[Mapping[str, HeaderValue]], only: Collection[str] | None
) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for at, row in enumerate(rows):
        for name, value in row.items():
            values = found.get(name)
            if values is None:
                if only is not None and name not in only:
                    continue
                values = found[name] = [None] * len(rows)
            values[at] = value
    return found

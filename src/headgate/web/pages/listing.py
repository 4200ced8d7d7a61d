"""Tables of things that have a row each: what is in a cell, and what can be done with a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class ListColumn(NamedTuple):
    """A column and whether it holds numbers."""

    title: str
    is_number: bool = False


class Cell(NamedTuple):
    """The text of a cell, where it leads, and what the row is sorted by."""

    text: str
    href: str | None = None
    key: Any = None
    mono: bool = False


class RowAction(NamedTuple):
    """A button of a row that asks the API, after a question."""

    text: str
    api: str  # method and path
    question: str


@dataclass(frozen=True, slots=True)
class ListRow:
    """One row of a table."""

    cells: Sequence[Cell]
    actions: Sequence[RowAction] = ()


def number_cell(value: float, text: str | None = None) -> Cell:
    """A number, with thousands apart."""
    return Cell(f"{value:,.0f}" if text is None else text, key=value)

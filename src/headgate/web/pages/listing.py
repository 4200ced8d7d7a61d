"""Tables of pages: columns, cells, and the actions of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class ListColumn(NamedTuple):
    """A column and whether it holds numbers."""

    title: str
    is_number: bool = False


class Cell(NamedTuple):
    """The text of a cell, its link, and the key by which rows are sorted."""

    text: str
    href: str | None = None
    key: Any = None
    mono: bool = False


class RowAction(NamedTuple):
    """A button of a row that calls the API after a confirmation."""

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

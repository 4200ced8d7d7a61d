"""Rows as columns, the way a statement takes many of them: what all rows have alike is said once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from headgate.queues.contract import SqlValue


class Column(NamedTuple):
    name: str
    type: str
    values: list[SqlValue]


class Columns(NamedTuple):
    """For `SELECT {select} FROM unnest({arrays}) AS g ({names})`, and its parameters."""

    select: str
    arrays: str
    names: str
    params: list[SqlValue]


def columns(given: Sequence[Column], first_parameter: int) -> Columns:
    """The first column is always an array: it says how many rows there are."""
    varied = [not at or not _is_same(column.values) for at, column in enumerate(given)]
    shape = tuple(
        (name, type, varies) for (name, type, _), varies in zip(given, varied, strict=True)
    )
    params = [
        column.values if varies else column.values[0]
        for column, varies in zip(given, varied, strict=True)
    ]
    return Columns(*_texts(shape, first_parameter), params)


def _is_same(values: Sequence[SqlValue]) -> bool:
    return values.count(values[0]) == len(values)


@lru_cache(maxsize=256)
def _texts(shape: tuple[tuple[str, str, bool], ...], first: int) -> tuple[str, str, str]:
    places = [
        (name, f"${number}::{type}", varies)
        for number, (name, type, varies) in enumerate(shape, first)
    ]
    select = [f"g.{name}" if varies else f"{place} AS {name}" for name, place, varies in places]
    arrays = [f"{place}[]" for _, place, varies in places if varies]
    names = [name for name, _, varies in places if varies]
    return ", ".join(select), ", ".join(arrays), ", ".join(names)

"""Rows as columns, the way a statement takes many of them: what all rows have alike is said once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from headgate.queues.engine import SqlValue


class Column(NamedTuple):
    name: str
    type: str
    values: list[SqlValue]


class Columns(NamedTuple):
    """For `SELECT {varied}{same} FROM unnest({arrays}) AS g ({names})`, and its parameters."""

    varied: str
    same: str  # begins with a comma, if there is any
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
def _texts(shape: tuple[tuple[str, str, bool], ...], first: int) -> tuple[str, str, str, str]:
    varied, same, arrays, names = [], [], [], []
    for number, (name, type, varies) in enumerate(shape, first):
        if varies:
            varied.append(f"g.{name}::jsonb" if type == "jsonb" else f"g.{name}")
            arrays.append(f"${number}::{'text' if type == 'jsonb' else type}[]")
            names.append(name)
        elif type == "jsonb":  # a SELECT of its own is asked once, not for every row
            same.append(f", (SELECT ${number}::text::jsonb) AS {name}")
        else:
            same.append(f", ${number}::{type} AS {name}")
    return ", ".join(varied), "".join(same), ", ".join(arrays), ", ".join(names)

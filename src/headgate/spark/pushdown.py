"""Spark's pushed filters -> our tree, where it says exactly the same.

The tree compares a header whatever its kind; a column shows one kind of it and null for the others. So a pushed
comparison is answered in two steps: the tree finds the rows, to it 1 and 1.0 are alike, and of these the ones whose
column turns out null are dropped. What Spark sees differently (NaN, the order of booleans, collations, floats of 32
bits) stays with Spark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import FilterError
from headgate.filters import (
    MAX_IN_ITEMS,
    OPPOSITE,
    TRUE,
    And,
    Compare,
    CompareOp,
    Field,
    Filter,
    In,
    IsNull,
    Like,
    Literal,
    Or,
    joined,
)
from headgate.message import INT64_MAX
from headgate.spark.schema import Column

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter as SparkFilter

_COMPARISONS: Final[dict[str, CompareOp]] = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_PATTERNS: Final = {"StringStartsWith": "{}%", "StringEndsWith": "%{}", "StringContains": "%{}%"}
_ESCAPE: Final = "\\"
_VALUE_TYPES: Final[dict[str, type]] = {
    "string": str,
    "bigint": int,
    "int": int,
    "smallint": int,
    "tinyint": int,
    "double": float,
    "boolean": bool,
    "timestamp": datetime,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Pushed:
    """What was taken over from Spark: a filter, columns that must not be null, and bounds of offsets."""

    filter: Filter = TRUE
    required: frozenset[str] = frozenset()
    low: int = 0
    high: int = INT64_MAX

    def and_also(self, other: Pushed) -> Pushed:
        """Both at once."""
        terms = [term for term in (self.filter, other.filter) if term != TRUE]
        return Pushed(
            joined(And, terms) if terms else TRUE,
            self.required | other.required,
            max(self.low, other.low),
            min(self.high, other.high),
        )


def translate(filter: SparkFilter, columns: Mapping[str, Column]) -> Pushed | None:
    """The same question as ours; None when it must stay with Spark."""
    inner, negated = _stripped(filter)
    column = columns.get(inner.attribute[0]) if len(inner.attribute) == 1 else None
    if column is None:
        return None
    try:
        if column.holds == "offset":
            return _bounds(inner, negated)
        return _condition(inner, negated, column)
    except FilterError:  # text that no message can hold
        return None


def _stripped(filter: Any) -> tuple[Any, bool]:
    return (filter.child, True) if type(filter).__name__ == "Not" else (filter, False)


def _condition(filter: Any, negated: bool, column: Column) -> Pushed | None:
    name = type(filter).__name__
    if name in ("IsNull", "IsNotNull"):
        return _absence(column) if (name == "IsNull") is not negated else _presence(column)
    if column.field is None or column.views == ("opaque",):
        return None
    term = _term(name, filter.value, negated, column)
    return None if term is None else Pushed(term, frozenset({column.name}))


def _term(name: str, value: Any, negated: bool, column: Column) -> Filter | None:
    """TRUE for every row of which Spark's condition is, and for no other whose column is not null."""
    assert column.field is not None
    if name in _COMPARISONS:
        return _comparison(name, value, negated, column, column.field)
    if name == "In":
        return _membership(value, negated, column, column.field)
    if name in _PATTERNS and column.type == "string" and type(value) is str:
        pattern = _PATTERNS[name].format(_escaped(value))
        return Like(column.field, pattern, _ESCAPE, negated)
    return None


def _comparison(
    name: str, value: Any, negated: bool, column: Column, field: Field
) -> Filter | None:
    if name == "EqualNullSafe" and negated:  # TRUE for nulls too
        return None
    op, literal = _COMPARISONS[name], _literal(value, column)
    if literal is None or (literal.kind == "bool" and op != "="):
        return None
    return Compare(OPPOSITE[op] if negated else op, field, literal)


def _membership(
    values: Iterable[Any], negated: bool, column: Column, field: Field
) -> Filter | None:
    wanted = list(values)
    if None in wanted and negated:  # never TRUE
        return None
    literals = [_literal(value, column) for value in wanted if value is not None]
    found = [literal for literal in literals if literal is not None]
    if not found or len(found) < len(literals):
        return None
    lists = [
        In(field, tuple(found[start : start + MAX_IN_ITEMS]), negated)
        for start in range(0, len(found), MAX_IN_ITEMS)
    ]
    return joined(And if negated else Or, lists)


def _literal(value: Any, column: Column) -> Literal | None:
    if type(value) is not _VALUE_TYPES.get(column.type):
        return None
    assert isinstance(value, str | int | float | datetime)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return None
        return Literal((value - _EPOCH) // timedelta(microseconds=1))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return Literal(value)


def _escaped(text: str) -> str:
    return "".join(_ESCAPE + c if c in ("%", "_", _ESCAPE) else c for c in text)


# ---- nulls -------------------------------------------------------------------------------------------


def _presence(column: Column) -> Pushed | None:
    if column.holds == "standing":
        return Pushed(required=frozenset({column.name}))
    if column.field is None:
        return Pushed()  # the payload, the maps and the stream's name are always there
    if column.views == ("opaque",):
        return None
    return Pushed(IsNull(column.field, negated=True), frozenset({column.name}))


def _absence(column: Column) -> Pushed | None:
    if column.field is None:
        return None
    if column.holds == "system":
        return Pushed(IsNull(column.field))
    others = list(_of_other_kinds(column, column.field))
    return Pushed(joined(Or, [IsNull(column.field), *others])) if others else None


def _of_other_kinds(column: Column, field: Field) -> Iterator[Filter]:
    """TRUE for a header of a kind that the column does not show; nothing when no filter can tell them apart."""
    shown = {("string",): "string", ("float", "int"): "number", ("bool",): "bool"}.get(column.views)
    if shown is None:
        return
    if shown != "string":
        yield Like(field, "%")
    if shown != "number":
        yield Compare("<", field, Literal(0))
        yield Compare(">=", field, Literal(0))
    if shown != "bool":
        yield In(field, (Literal(True), Literal(False)))


# ---- offsets -----------------------------------------------------------------------------------------


def _bounds(filter: Any, negated: bool) -> Pushed | None:
    name = type(filter).__name__
    if name in ("IsNull", "IsNotNull"):
        return Pushed() if (name == "IsNotNull") is not negated else None
    op = _COMPARISONS.get(name)
    if op is None or type(filter.value) is not int:
        return None
    value: int = filter.value
    match OPPOSITE[op] if negated else op:
        case "=":
            return Pushed(low=value, high=value + 1)
        case ">":
            return Pushed(low=value + 1)
        case ">=":
            return Pushed(low=value)
        case "<":
            return Pushed(high=value)
        case "<=":
            return Pushed(high=value + 1)
        case _:
            return None

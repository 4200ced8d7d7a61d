"""Spark's pushed filters -> a filter tree with exactly their meaning, and the reader that takes them over.

The tree compares a header of any kind; a column shows one kind of it and null for the others. So a pushed comparison is
answered in two steps: the tree finds the rows (to it 1 and 1.0 are equal), and rows whose column is null are dropped.
Conditions that Spark decides differently (NaN, the order of booleans, collations, 32-bit floats) stay with Spark.

PySpark up to 4.3 keeps what a reader took over, and the plan made with it, on the source, which all scans of a DataFrame
or view share: a second use of it would be answered with the conditions of the first. With these versions the reader
takes over no condition, Spark applies its conditions to all rows, and only the option `filter` skips rows before that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.version import __version__

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
    join_terms,
)
from headgate.message import INT64_MAX
from headgate.spark.schema import SchemaColumn
from headgate.spark.source.projection import Projection

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
class PushedConditions:
    """Conditions taken over from Spark: a filter, columns that must not be null, and bounds of offsets."""

    filter: Filter = TRUE
    required: frozenset[str] = frozenset()
    low: int = 0
    high: int = INT64_MAX

    def and_also(self, other: PushedConditions) -> PushedConditions:
        """Join both by AND: rows must meet the conditions of each."""
        terms = [term for term in (self.filter, other.filter) if term != TRUE]
        return PushedConditions(
            join_terms(And, terms) if terms else TRUE,
            self.required | other.required,
            max(self.low, other.low),
            min(self.high, other.high),
        )


def translate(filter: SparkFilter, columns: Mapping[str, SchemaColumn]) -> PushedConditions | None:
    """Translate a condition of Spark; None when it must stay with Spark."""
    inner, negated = _strip_not(filter)
    column = columns.get(inner.attribute[0]) if len(inner.attribute) == 1 else None
    if column is None:
        return None
    try:
        if column.holds == "offset":
            return _bounds(inner, negated)
        return _condition(inner, negated, column)
    except FilterError:  # a text that no message can contain
        return None


def _strip_not(filter: Any) -> tuple[Any, bool]:
    return (filter.child, True) if type(filter).__name__ == "Not" else (filter, False)


def _condition(filter: Any, negated: bool, column: SchemaColumn) -> PushedConditions | None:
    name = type(filter).__name__
    if name in ("IsNull", "IsNotNull"):
        return _absence(column) if (name == "IsNull") is not negated else _presence(column)
    if column.field is None or column.views == ("opaque",):
        return None
    term = _term(name, filter.value, negated, column)
    return None if term is None else PushedConditions(term, frozenset({column.name}))


def _term(name: str, value: Any, negated: bool, column: SchemaColumn) -> Filter | None:
    """A filter that is TRUE for exactly the rows for which Spark's condition is, among rows whose column is not null."""
    assert column.field is not None
    if name in _COMPARISONS:
        return _comparison(name, value, negated, column, column.field)
    if name == "In":
        return _membership(value, negated, column, column.field)
    if name in _PATTERNS and column.type == "string" and type(value) is str:
        pattern = _PATTERNS[name].format(_escape(value))
        return Like(column.field, pattern, _ESCAPE, negated)
    return None


def _comparison(
    name: str, value: Any, negated: bool, column: SchemaColumn, field: Field
) -> Filter | None:
    if name == "EqualNullSafe" and negated:  # TRUE for nulls too
        return None
    op, literal = _COMPARISONS[name], _literal(value, column)
    if literal is None or (literal.kind == "bool" and op != "="):
        return None
    return Compare(OPPOSITE[op] if negated else op, field, literal)


def _membership(
    values: Iterable[Any], negated: bool, column: SchemaColumn, field: Field
) -> Filter | None:
    items = list(values)
    if None in items and negated:  # never TRUE
        return None
    literals = [_literal(value, column) for value in items if value is not None]
    known = [literal for literal in literals if literal is not None]
    if not known or len(known) < len(literals):
        return None
    lists = [
        In(field, tuple(known[start : start + MAX_IN_ITEMS]), negated)
        for start in range(0, len(known), MAX_IN_ITEMS)
    ]
    return join_terms(And if negated else Or, lists)


def _literal(value: Any, column: SchemaColumn) -> Literal | None:
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


def _escape(text: str) -> str:
    return "".join(_ESCAPE + c if c in ("%", "_", _ESCAPE) else c for c in text)


# ---- nulls -------------------------------------------------------------------------------------------


def _presence(column: SchemaColumn) -> PushedConditions | None:
    if column.holds == "standing":
        return PushedConditions(required=frozenset({column.name}))
    if column.field is None:
        return PushedConditions()  # every row has a payload, maps and the stream's name
    if column.views == ("opaque",):
        return None
    return PushedConditions(IsNull(column.field, negated=True), frozenset({column.name}))


def _absence(column: SchemaColumn) -> PushedConditions | None:
    if column.field is None:
        return None
    if column.holds == "system":
        return PushedConditions(IsNull(column.field))
    others = list(_match_other_kinds(column, column.field))
    return PushedConditions(join_terms(Or, [IsNull(column.field), *others])) if others else None


def _match_other_kinds(column: SchemaColumn, field: Field) -> Iterator[Filter]:
    """Filters that are TRUE for headers of kinds the column does not show; none when no filter can tell them apart."""
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


def _bounds(filter: Any, negated: bool) -> PushedConditions | None:
    name = type(filter).__name__
    if name in ("IsNull", "IsNotNull"):
        return PushedConditions() if (name == "IsNotNull") is not negated else None
    op = _COMPARISONS.get(name)
    if op is None or type(filter.value) is not int:
        return None
    value: int = filter.value
    match OPPOSITE[op] if negated else op:
        case "=":
            return PushedConditions(low=value, high=value + 1)
        case ">":
            return PushedConditions(low=value + 1)
        case ">=":
            return PushedConditions(low=value)
        case "<":
            return PushedConditions(high=value)
        case "<=":
            return PushedConditions(high=value + 1)
        case _:
            return None


# ---- the reader --------------------------------------------------------------------------------------

FIRST_WITH_FILTERS_PER_SCAN: Final[tuple[int, int] | None] = None  # no version of PySpark yet


def keeps_filters_per_scan(
    version: str = __version__, first: tuple[int, int] | None = FIRST_WITH_FILTERS_PER_SCAN
) -> bool:
    """Whether that version of PySpark applies pushed conditions only to the scan they were pushed into."""
    major, minor, *_ = version.split(".")
    return first is not None and (int(major), int(minor)) >= first


class PushdownReader(DataSourceReader):
    """A batch reader that fills these columns and takes over conditions where PySpark allows it.

    `UTC()` in a filter is `now_us`.
    """

    def __init__(self, columns: Sequence[SchemaColumn], arrow: pa.Schema, now_us: int) -> None:
        self.columns, self.arrow, self.now_us = columns, arrow, now_us
        self.pushed = PushedConditions()
        if keeps_filters_per_scan():
            self.pushFilters = PushFilters(self)  # type: ignore[method-assign]

    def take(self, filters: Iterable[SparkFilter]) -> Iterator[SparkFilter]:
        """Take over the conditions that can be translated, and yield the others."""
        known = {column.name: column for column in self.columns}
        for filter in filters:
            pushed = translate(filter, known)
            if pushed is None:
                yield filter
            else:
                self.pushed = self.pushed.and_also(pushed)

    def add_pushed(self, filter: Filter) -> Filter:
        """Join the filter of the options and the conditions taken over by AND."""
        return join_terms(And, (filter, self.pushed.filter))

    def projection(self) -> Projection:
        return Projection(self.columns, self.arrow, self.pushed.required)


class PushFilters:
    """The reader's `pushFilters`.

    Spark refuses a reader that overrides this method while `spark.sql.python.filterPushdown.enabled` is off, and a reader
    cannot find out whether it is. To Spark this object looks like the method of the base class.
    """

    __func__: Final = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: PushdownReader) -> None:
        self.reader = reader

    def __call__(self, filters: list[SparkFilter]) -> Iterable[SparkFilter]:
        return list(self.reader.take(filters))

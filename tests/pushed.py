"""Conditions as Spark pushes them, and the answers Spark would give: null is never true."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as asked

from headgate.filters.logic import OPERATORS
from headgate.message import HeaderValue, Message
from headgate.spark.schema import SchemaColumn
from tests import generate

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARISONS = {
    asked.EqualTo: "=",
    asked.GreaterThan: ">",
    asked.GreaterThanOrEqual: ">=",
    asked.LessThan: "<",
    asked.LessThanOrEqual: "<=",
}
RANGES = {"bigint": 63, "int": 31, "smallint": 15, "tinyint": 7}


def in_spark(message: Message, column: SchemaColumn) -> Any:
    """The value that Spark sees in the column."""
    if column.name == "timestamp":
        return EPOCH + timedelta(microseconds=message.timestamp or 0)
    if column.name in ("payload", "topic", "id", "key", "priority"):
        return getattr(message, column.name)
    assert column.field is not None
    of = message.headers if column.field.scope == "header" else message.properties
    return _shown(of.get(column.field.name), column)


def _shown(value: HeaderValue, column: SchemaColumn) -> Any:
    if isinstance(value, bool):
        return value if column.type == "boolean" and column.views != ("opaque",) else None
    if isinstance(value, str):
        return value if column.type == "string" else None
    if isinstance(value, int) and column.type in RANGES:
        limit = 1 << RANGES[column.type]
        return value if -limit <= value < limit else None
    if isinstance(value, float) or (isinstance(value, int) and "int" in column.views):
        return float(value) if column.type == "double" else None
    return None


def answered_by_spark(filter: Any, value: Any) -> bool:
    """Whether Spark's condition is true of the value: null is never true, whatever is asked."""
    negated = isinstance(filter, asked.Not)
    inner = filter.child if isinstance(filter, asked.Not) else filter
    match inner:
        case asked.IsNull():
            return (value is None) is not negated
        case asked.IsNotNull():
            return (value is not None) is not negated
        case asked.EqualNullSafe():
            return (value is not None and value == inner.value) is not negated
        case asked.In():
            if value is None or (None in inner.value and value not in inner.value):
                return False
            return (value in inner.value) is not negated
        case asked.StringStartsWith():
            return value is not None and value.startswith(inner.value) is not negated
        case asked.StringEndsWith():
            return value is not None and value.endswith(inner.value) is not negated
        case asked.StringContains():
            return value is not None and (inner.value in value) is not negated
        case _:
            op = COMPARISONS[type(inner)]
            return value is not None and OPERATORS[op](value, inner.value) is not negated  # type: ignore[index]


def stamped(message: Message) -> Message:
    """As it is in a stream, where every message has one."""
    return message if message.timestamp is not None else replace(message, timestamp=17)


def some_value(rng: Random, column: SchemaColumn) -> Any:
    match column.type:
        case "string":
            return rng.choice(generate.STRINGS)
        case "boolean":
            return rng.random() < 0.5
        case "double":
            return rng.choice(generate.FLOATS)
        case "timestamp":
            return EPOCH + timedelta(microseconds=rng.choice((0, 1_750_000_000_000_000)))
        case "binary":
            return b"x"
        case _:
            fitting = [i for i in generate.INTS if abs(i) < 1 << RANGES[column.type]]
            return rng.choice(fitting)


def some_filter(rng: Random, column: SchemaColumn) -> Any:
    place, value = (column.name,), some_value(rng, column)
    kinds = [*COMPARISONS, asked.EqualNullSafe, asked.In, asked.IsNull, asked.IsNotNull]
    if column.type == "string":
        kinds += [asked.StringStartsWith, asked.StringEndsWith, asked.StringContains]
    made: Any = rng.choice(kinds)
    if made in (asked.IsNull, asked.IsNotNull):
        found = made(place)
    elif made is asked.In:
        items = [some_value(rng, column) for _ in range(rng.randint(1, 4))]
        found = made(place, tuple(items + [None] * (rng.random() < 0.2)))
    else:
        found = made(place, value)
    return asked.Not(found) if rng.random() < 0.4 else found


def as_column(filter: Any) -> SparkColumn:
    """The same condition as a user of Spark writes it."""
    from pyspark.sql import functions

    if isinstance(filter, asked.Not):
        return ~as_column(filter.child)
    column = functions.col(f"`{filter.attribute[0]}`")
    match filter:
        case asked.IsNull():
            return column.isNull()
        case asked.IsNotNull():
            return column.isNotNull()
        case asked.In():
            return column.isin(*filter.value)
        case asked.EqualNullSafe():
            return column.eqNullSafe(filter.value)
        case asked.StringStartsWith():
            return column.startswith(filter.value)
        case asked.StringEndsWith():
            return column.endswith(filter.value)
        case asked.StringContains():
            return column.contains(filter.value)
        case _:
            op = COMPARISONS[type(filter)]
            return OPERATORS[op](column, filter.value)  # type: ignore[index,return-value]


@contextmanager
def pushing(spark: SparkSession) -> Iterator[str]:
    """A format that reads like ours and takes over Spark's conditions in every version; each frame of it is for one use."""
    from headgate.spark.datasource import HeadgateSource
    from headgate.spark.pushdown import PushFilters

    class PushingSource(HeadgateSource):
        @classmethod
        def name(cls) -> str:
            return "headgate_pushing"

        def reader(self, schema: Any) -> Any:
            made: Any = super().reader(schema)
            made.pushFilters = PushFilters(made)
            return made

    spark.dataSource.register(PushingSource)
    with pushdown(spark, True):
        yield PushingSource.name()


@contextmanager
def pushdown(spark: SparkSession, wanted: bool) -> Iterator[None]:
    """Spark offers its conditions to sources in Python, or does not."""
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, wanted)
    try:
        yield
    finally:
        spark.conf.set(PUSHDOWN, str(before))

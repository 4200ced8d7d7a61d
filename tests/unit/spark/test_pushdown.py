from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pyspark.sql import datasource as asked

from headgate.filters.logic import matches_filter
from headgate.filters.nodes import Compare, Field, Literal
from headgate.message import Message
from headgate.spark.pushdown import PushedConditions, keeps_filters_per_scan, translate
from headgate.spark.schema import SchemaColumn, reading_columns
from tests import generate
from tests.pushed import answered_by_spark, in_spark, some_filter, stamped
from tests.unit.spark.ddl import struct


def columns_of(type_: str) -> dict[str, SchemaColumn]:
    """A header `a` of this type among columns of all sorts."""
    schema = struct(
        f"a {type_}, offset bigint, timestamp timestamp, topic string, id string, key string, priority int, "
        "payload binary, `p.s.subject` string, `h.f.b` double, `h.o.c` boolean"
    )
    return {column.name: column for column in reading_columns(schema)}


def answered_by_us(
    pushed: PushedConditions, message: Message, columns: dict[str, SchemaColumn]
) -> bool:
    return matches_filter(pushed.filter, message) and all(
        in_spark(message, columns[name]) is not None for name in pushed.required
    )


@pytest.mark.parametrize("type_", ["string", "bigint", "int", "smallint", "double", "boolean"])
def test_pushed_conditions_select_the_rows_that_spark_would(type_: str, seed: int) -> None:
    rng, columns = Random(f"{seed} {type_}"), columns_of(type_)
    messages = [stamped(message) for message in generate.messages(rng, 60)]
    taken, tries = 0, 0
    while taken < 160:
        tries += 1
        assert tries < 450, "hardly any condition is translated"
        column = columns["a"] if rng.random() < 0.6 else rng.choice(list(columns.values()))
        if column.name == "offset":
            continue
        filter = some_filter(rng, column)
        pushed = translate(filter, columns)
        if pushed is None:
            continue
        taken += 1
        for message in messages:
            expected = answered_by_spark(filter, in_spark(message, column))
            assert answered_by_us(pushed, message, columns) is expected, (filter, message)


@pytest.mark.parametrize(
    ("filter", "low", "high"),
    [
        (asked.EqualTo(("offset",), 7), 7, 8),
        (asked.GreaterThan(("offset",), 7), 8, 2**63 - 1),
        (asked.GreaterThanOrEqual(("offset",), 7), 7, 2**63 - 1),
        (asked.LessThan(("offset",), 7), 0, 7),
        (asked.LessThanOrEqual(("offset",), 7), 0, 8),
        (asked.Not(asked.LessThan(("offset",), 7)), 7, 2**63 - 1),
        (asked.IsNotNull(("offset",)), 0, 2**63 - 1),
    ],
)
def test_conditions_on_offsets_become_bounds(filter: Any, low: int, high: int) -> None:
    assert translate(filter, columns_of("string")) == PushedConditions(low=low, high=high)


@pytest.mark.parametrize(
    ("type_", "filter"),
    [
        ("double", asked.LessThan(("a",), float("nan"))),
        ("double", asked.LessThan(("a",), float("inf"))),
        ("float", asked.EqualTo(("a",), 0.5)),
        ("boolean", asked.GreaterThan(("a",), False)),
        ("string", asked.EqualTo(("a",), "nul\0")),
        ("string", asked.EqualTo(("a", "b"), "x")),
        ("string", asked.EqualTo(("unheard-of",), "x")),
        ("string", asked.Not(asked.EqualNullSafe(("a",), "x"))),
        ("string", asked.Not(asked.In(("a",), ("x", None)))),
        ("string", asked.EqualTo(("payload",), b"x")),
        ("string", asked.Not(asked.EqualTo(("offset",), 3))),
        ("string", asked.EqualTo(("h.o.c",), True)),
        ("bigint", asked.IsNull(("a",))),
    ],
)
def test_conditions_that_spark_decides_differently_stay_with_spark(type_: str, filter: Any) -> None:
    assert translate(filter, columns_of(type_)) is None


def test_a_collated_column_stays_with_spark() -> None:
    columns = {
        "a": SchemaColumn("a", "field", "string collate UNICODE_CI", field=Field("header", "a"))
    }
    assert translate(asked.EqualTo(("a",), "x"), columns) is None
    assert translate(asked.StringStartsWith(("a",), "x"), columns) is None


def test_a_list_longer_than_ours_may_be_is_cut() -> None:
    pushed = translate(asked.In(("a",), tuple(range(3000))), columns_of("bigint"))
    assert pushed is not None
    inside, outside = Message(headers={"a": 2999}), Message(headers={"a": 3000})
    assert matches_filter(pushed.filter, inside)
    assert not matches_filter(pushed.filter, outside)


def test_conditions_are_joined() -> None:
    both = PushedConditions(Compare("=", Field("header", "a"), Literal(1)), frozenset({"a"}), 5, 50)
    assert both.and_also(PushedConditions(low=7, high=90)) == PushedConditions(
        both.filter, both.required, 7, 50
    )


def test_conditions_are_taken_over_only_from_the_version_on_that_keeps_them_per_scan() -> None:
    assert not keeps_filters_per_scan()
    assert not keeps_filters_per_scan("9.0.0", first=None)
    versions = ("4.3.9", "4.4.0.dev1", "4.10.0", "5.0.0")
    assert [keeps_filters_per_scan(v, first=(4, 4)) for v in versions] == [False, True, True, True]

"""The Spark condition as text: readable, and written without pyspark's help."""

from __future__ import annotations

import pytest

from headgate.filters.parser import parse
from headgate.spark.filter_column import like_pattern, to_expression_text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("region = 'EU'", "headers['region'].s = 'EU'"),
        ("amount > 10", "headers['amount'].i > 10 OR headers['amount'].f > 10.0D"),
        ("sys.priority >= 5 AND sys.key = 'k'", "priority >= 5 AND key = 'k'"),
        ("NOT sys.id IN ('a', 'b')", "NOT id IN ('a', 'b')"),
        ("express", "headers['express'].b = TRUE"),
        ("sys.id IS NULL OR sys.key LIKE 'a%'", "id IS NULL OR key LIKE 'a%'"),
        ("sys.topic MATCHES 'a.*'", "topic RLIKE '\\\\A(?:a\\\\.[^.]*)\\\\z'"),
        ("sys.priority + 1 > 5", "try_add(priority, 1) > 5"),
        (
            "sys.priority + sys.timestamp + 1 > 5",
            "try_add(try_subtract(try_add(priority, timestamp), 0), 1) > 5",
        ),
        ("sys.timestamp < UTC()", "timestamp < unix_micros(current_timestamp())"),
        ("TRUE", "TRUE"),
    ],
)
def test_a_filter_reads_as_spark_sql(text, written):
    assert to_expression_text(parse(text)) == written


def test_now_can_be_passed_as_a_number():
    assert to_expression_text(parse("sys.timestamp < UTC()"), now_us=42) == "timestamp < 42"


def test_quotes_and_backslashes_in_names_and_values_are_escaped():
    written = to_expression_text(parse("[it's] = 'back\\slash'"))
    assert written == "headers['it\\'s'].s = 'back\\\\slash'"


def test_nested_arithmetic_grows_with_its_length_and_does_not_double():
    short, long = (
        len(to_expression_text(parse(" / (".join("a" * n) + ")" * (n - 1) + " > 1")))
        for n in (10, 40)
    )
    assert long < 5 * short


def test_a_like_pattern_is_escaped_with_backslashes_for_every_escape_character():
    assert like_pattern("a%b_c", None) == "a%b_c"
    assert like_pattern("100!%_!!\\", "!") == "100\\%_!\\\\"

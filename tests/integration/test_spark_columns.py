"""Filters as Spark columns, answered by Spark itself."""

from __future__ import annotations

from random import Random

import pytest

from headgate.check.engines import Question
from headgate.check.spark import SparkCheck
from headgate.filters.logic import matches_filter
from headgate.filters.nodes import Compare, Field, Literal
from headgate.filters.normal import bind_now
from headgate.filters.parser import parse
from headgate.filters.printer import to_text
from headgate.message import OPAQUE, Message
from headgate.spark.filter_column import SCHEMA, to_column, to_expression_text
from tests import generate

pytestmark = pytest.mark.spark

INTERPRETED = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"


@pytest.fixture
def generated_code(spark):
    """Small local tables are interpreted by the optimizer; without that rule they run as real data does."""
    spark.conf.set("spark.sql.optimizer.excludedRules", INTERPRETED)
    yield
    spark.conf.unset("spark.sql.optimizer.excludedRules")


def random_questions(seed: int, filters: int) -> list[Question]:
    rng = Random(seed)
    messages = generate.messages(rng, 12)
    trees = [bind_now(generate.filter(rng), generate.NOW_US) for _ in range(filters)]
    return [Question(tree, message) for tree in trees for message in messages]


def flat_frame(spark, *rows: tuple[object, ...]):
    return spark.createDataFrame(list(rows), "n int, region string, amount bigint")


def test_the_code_spark_generates_agrees_with_the_reference(spark, generated_code, seed):
    questions = random_questions(seed, 25)
    answers = SparkCheck(spark).answer(questions)
    for question, answer in zip(questions, answers, strict=True):
        assert answer is matches_filter(*question), (
            f"{to_text(question.filter)} on {question.message}"
        )


def test_the_expression_text_gives_the_results_of_the_column(spark, seed):
    from pyspark.sql import functions

    rng = Random(seed)
    entry = {"s": None, "i": 2**53 + 1, "f": None, "b": None}
    row = ("a.b", 4, 1, "id-1", None, "k", {"a": entry, "b": dict.fromkeys("sifb")}, {})
    frame = spark.createDataFrame([row], SCHEMA)
    trees = [bind_now(generate.filter(rng, depth=2), generate.NOW_US) for _ in range(25)]
    columns = [to_column(tree) for tree in trees]
    texts = [functions.expr(to_expression_text(tree)) for tree in trees]
    by_column, by_text = frame.select(*columns).first(), frame.select(*texts).first()
    for tree, column, text in zip(trees, by_column, by_text, strict=True):
        assert column is (text is True), to_text(tree)


def test_a_column_is_never_null(spark):
    frame = flat_frame(spark, (1, "EU", 5), (2, None, None), (3, "US", 2**62))
    tree = parse("amount * 4 > 10 OR NOT amount / 0 > 1 OR region <> 'EU' AND amount < 7")
    column = to_column(tree, lambda field, view: _flat_view(frame, field, view))
    assert [row[0] for row in frame.select(column).collect()] == [True, False, False]


def _flat_view(frame, field, view):
    kinds = {"region": "string", "amount": "int"}
    return frame[field.name] if kinds.get(field.name) == view else None


def test_a_filter_works_on_a_flat_table_too(spark):
    frame = flat_frame(spark, (1, "EU", 5), (2, "EU", None), (3, "US", 50), (4, None, 50))

    def matching(text: str) -> list[int]:
        column = to_column(parse(text), lambda field, view: _flat_view(frame, field, view))
        return [row.n for row in frame.where(column).collect()]

    assert matching("region = 'EU'") == [1, 2]
    assert matching("amount > 4.5 AND region IS NOT NULL") == [1, 3]
    assert matching("NOT EXISTS(amount) OR NOT region LIKE 'E_'") == [2, 3]
    assert matching("region = 5 OR nowhere = 'x' OR nowhere NOT IN (1, 2)") == []
    assert matching("nowhere IS NULL AND NOT EXISTS(nowhere)") == [1, 2, 3, 4]


def test_utc_is_the_start_of_the_query_by_default(spark):
    one = spark.range(1)
    late = parse("UTC() > 1700000000000")
    assert one.where(to_column(late)).count() == 1
    assert one.where(to_column(late, now_us=5)).count() == 0


def test_hostile_names_and_values_are_only_names_and_values(spark):
    texts = [
        "it's",
        'a"b',
        "back\\slash",
        "`tick`",
        "a.b",
        "--",
        "/* */",
        "$1",
        "{}",
        "%s",
        "😀",
        "",
    ]
    message = Message(headers={text: f"{text}\n{text}" for text in texts})
    asked = [
        Compare(op, Field("header", text), Literal(f"{text}\n{text}"))
        for text in texts
        for op in ("=", "<>")
    ]
    answers = SparkCheck(spark).answer([Question(tree, message) for tree in asked])
    assert answers == [True, False] * len(texts)


def test_like_treats_every_character_literally(spark):
    values = ["a\nb", "a😀b", "a%b", "a_b", "a\\b", "axxb", "ab"]
    like = {
        "v LIKE 'a_b'": ["a\nb", "a😀b", "a%b", "a_b", "a\\b"],
        "v LIKE 'a!_b' ESCAPE '!'": ["a_b"],
        "v LIKE 'a\\b'": ["a\\b"],
        "v NOT LIKE 'a%b'": [],
    }
    questions = [Question(parse(text), Message(headers={"v": v})) for text in like for v in values]
    answers = iter(SparkCheck(spark).answer(questions))
    assert {text: [v for v in values if next(answers)] for text in like} == like


def test_the_engine_answers_in_the_order_of_the_questions_and_keeps_the_session(spark):
    eu, us, odd = (Message(headers={"r": value}) for value in ("EU", "US", OPAQUE))
    is_eu, there = parse("r = 'EU'"), parse("EXISTS(r) AND r IS NULL")
    asked = [(is_eu, us), (there, odd), (is_eu, eu), (is_eu, us), (there, eu), (is_eu, eu)]
    with SparkCheck() as engine:
        assert engine.answer([]) == []
        answers = engine.answer([Question(*pair) for pair in asked])
    assert answers == [False, True, True, False, False, True]
    assert spark.range(3).count() == 3

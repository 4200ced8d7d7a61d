"""One filter, one answer: every engine against the reference evaluator, on random filters and messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import numpy as np
import pytest

from headgate.check.engines import ArrowCheck, CheckEngine, Question
from headgate.check.postgres import open_postgres
from headgate.check.spark import SparkCheck
from headgate.check.sql import open_sqlite
from headgate.filters.compile.python import compile_predicate
from headgate.filters.compile.verdict import Verdict, judge
from headgate.filters.facts import DistinctSets, Facts, FieldFacts
from headgate.filters.logic import compare, field_value, matches_filter
from headgate.filters.nodes import KIND_OF, Field, Filter, fields_read
from headgate.filters.normal import bind_now, normalize
from headgate.filters.parser import parse
from headgate.filters.printer import to_text
from headgate.message import Message
from tests import generate
from tests.conftest import FULL
from tests.exact_facts import facts_of_values

LOCAL_EXAMPLES = 50_000 if FULL else 2_000
BULK_EXAMPLES = 5_000 if FULL else 300
MESSAGES = 6  # a filter is asked about this many messages


BLOCK = 100  # filters an engine is asked about at a time


def rounds(seed: int, count: int) -> Iterator[Random]:
    """One seeded source of chance a round; HEADGATE_SEED repeats a run exactly."""
    return (Random(f"{seed}/{i}") for i in range(count))


def clock() -> int:
    return generate.NOW_US


def expected(tree: Filter, messages: Sequence[Message]) -> list[bool]:
    return [matches_filter(tree, message, generate.NOW_US) for message in messages]


def test_the_text_of_a_filter_parses_back_to_it(seed):
    for rng in rounds(seed, LOCAL_EXAMPLES):
        tree = generate.filter(rng)
        assert parse(to_text(tree)) == tree
        assert parse(to_text(normalize(tree).tree)) == normalize(tree).tree


def test_the_python_predicate_and_the_normal_form_agree_with_the_reference(seed):
    for rng in rounds(seed, LOCAL_EXAMPLES):
        tree, messages = generate.filter(rng), generate.messages(rng, MESSAGES)
        answers = expected(tree, messages)
        assert list(map(compile_predicate(tree, clock), messages)) == answers, to_text(tree)
        assert expected(normalize(tree).tree, messages) == answers, to_text(normalize(tree).tree)


def questions_of(rng: Random, filters: int) -> list[Question]:
    """Filters that ask for the time ask for a fixed one: the reference cannot know an engine's clock."""
    trees = [bind_now(generate.filter(rng), generate.NOW_US) for _ in range(filters)]
    messages = generate.messages(rng, MESSAGES)
    return [Question(tree, message) for tree in trees for message in messages]


def assert_agrees(engine: CheckEngine, questions: list[Question]) -> None:
    for question, answer in zip(questions, engine.answer(questions), strict=True):
        reference = matches_filter(question.filter, question.message)
        assert answer is reference, (
            f"{engine.name}: {to_text(question.filter)} on {question.message}"
        )


def assert_agrees_on(engine: CheckEngine, seed: int, examples: int) -> None:
    for rng in rounds(seed, examples // BLOCK):
        assert_agrees(engine, questions_of(rng, BLOCK))


def test_arrow_agrees_with_the_reference(seed):
    assert_agrees_on(ArrowCheck(), seed, LOCAL_EXAMPLES)


def test_sqlite_agrees_with_the_reference(seed):
    with open_sqlite() as engine:
        assert_agrees_on(engine, seed, LOCAL_EXAMPLES)


@pytest.mark.postgres
def test_postgres_agrees_with_the_reference(postgres_url, seed):
    with open_postgres(postgres_url) as engine:
        assert_agrees_on(engine, seed, BULK_EXAMPLES)


@pytest.mark.spark
def test_spark_agrees_with_the_reference(spark, seed):
    with SparkCheck(spark) as engine:
        assert_agrees_on(engine, seed, BULK_EXAMPLES)


# ---- verdicts ----------------------------------------------------------------------------------------


def random_facts(rng: Random, tree: Filter, chunks: list[list[Message]]) -> Facts:
    """True facts about the chunks, with random gaps in what is known."""
    known = {
        field: _random_field_facts(rng, field, chunks)
        for field in sorted(fields_read(tree), key=repr)
        if rng.random() < 0.8
    }
    blooms = {field for field in known if rng.random() < 0.6}

    def probe(field, value, at):
        return (
            np.array([_held(field, value, chunks[i]) for i in at], np.bool_)
            if field in blooms
            else None
        )

    def _held(field, value, chunk):
        present = (field_value(field, message) for message in chunk)
        return (
            any(compare("=", value, v) is True for v in present if type(v) in KIND_OF)
            or rng.random() < 0.1
        )

    return Facts(np.array([len(chunk) for chunk in chunks]), known, probe)


def _random_field_facts(rng: Random, field: Field, chunks: list[list[Message]]) -> FieldFacts:
    values = [[field_value(field, message) for message in chunk] for chunk in chunks]
    facts = facts_of_values(values)
    distinct = DistinctSets.of(_typed(vs) if rng.random() < 0.6 else None for vs in values)
    covered = np.array([rng.random() < 0.8 for _ in chunks])
    return FieldFacts(
        facts.ranges,
        covered=covered if rng.random() < 0.5 else None,
        opaque=facts.opaque,
        distinct=distinct if rng.random() < 0.5 else None,
    )


def _typed(values):
    return [value for _, value in {(type(v), v) for v in values if type(v) in KIND_OF}]


def test_a_verdict_is_never_wrong(seed):
    for rng in rounds(seed, LOCAL_EXAMPLES):
        tree = generate.filter(rng)
        chunks = [generate.messages(rng, rng.randint(0, 4)) for _ in range(4)]
        verdicts = judge(tree, random_facts(rng, tree, chunks), now=clock)
        for i, chunk in enumerate(chunks):
            answers = expected(tree, chunk)
            if verdicts[i] is Verdict.NONE:
                assert not any(answers), to_text(tree)
            if verdicts[i] is Verdict.ALL:
                assert all(answers), to_text(tree)

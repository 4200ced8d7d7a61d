"""What a summary alone can say, and what it must not say."""

import numpy as np
import pytest

from headgate.filters.compile.verdict import Verdict, judge
from headgate.filters.facts import DistinctSets, Facts, FieldFacts, ValueRange
from headgate.filters.nodes import Field
from headgate.filters.parser import parse
from headgate.message import OPAQUE
from tests.exact_facts import facts_of_values

NONE, SOME, ALL = Verdict.NONE, Verdict.SOME, Verdict.ALL
A, B = Field("header", "a"), Field("header", "b")

# One chunk a row: what header `a` holds in its messages.
CHUNKS = [
    [1, 2, 3],
    [10, 20.5],
    ["x", "y"],
    ["y", "y"],
    [None, None],
    [5, None],
    [True, False],
    ["x", 7],
    [OPAQUE, OPAQUE],
]


def facts(**extra) -> Facts:
    known = facts_of_values(CHUNKS)
    return Facts(
        np.array([len(chunk) for chunk in CHUNKS]),
        {A: FieldFacts(known.ranges, opaque=known.opaque, **extra)},
    )


@pytest.mark.parametrize(
    ("text", "verdicts"),
    [
        ("a > 3", [NONE, ALL, NONE, NONE, NONE, SOME, NONE, SOME, NONE]),
        ("a >= 1", [ALL, ALL, NONE, NONE, NONE, SOME, NONE, SOME, NONE]),
        ("a = 2", [SOME, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE]),
        ("a = 20.5", [NONE, SOME, NONE, NONE, NONE, NONE, NONE, NONE, NONE]),
        ("a = 'y'", [NONE, NONE, SOME, ALL, NONE, NONE, NONE, NONE, NONE]),
        ("a <> 'y'", [NONE, NONE, SOME, NONE, NONE, NONE, NONE, SOME, NONE]),
        ("a IN ('y', 5)", [NONE, NONE, SOME, ALL, NONE, SOME, NONE, NONE, NONE]),
        ("a NOT IN (100, 200)", [ALL, ALL, NONE, NONE, NONE, SOME, NONE, SOME, NONE]),
        ("a LIKE 'y%'", [NONE, NONE, SOME, SOME, NONE, NONE, NONE, NONE, NONE]),
        ("a LIKE '%y'", [NONE, NONE, SOME, SOME, NONE, NONE, NONE, SOME, NONE]),
        ("a IS NULL", [NONE, NONE, NONE, NONE, ALL, SOME, NONE, NONE, ALL]),
        ("a IS NOT NULL", [ALL, ALL, ALL, ALL, NONE, SOME, ALL, ALL, NONE]),
        ("EXISTS(a)", [ALL, ALL, ALL, ALL, NONE, SOME, ALL, ALL, ALL]),
        ("a = TRUE", [NONE, NONE, NONE, NONE, NONE, NONE, SOME, NONE, NONE]),
        ("a > 3 AND a < 9", [NONE, NONE, NONE, NONE, NONE, SOME, NONE, SOME, NONE]),
        ("a > 3 OR a <= 3", [ALL, ALL, NONE, NONE, NONE, SOME, NONE, SOME, NONE]),
        ("NOT a > 3", [ALL] + [NONE] * 8),
        ("a * 2 > 3", [SOME, SOME, NONE, NONE, NONE, SOME, NONE, SOME, NONE]),
        ("TRUE", [ALL] * 9),
        ("FALSE", [NONE] * 9),
        ("b = 1", [SOME] * 9),
        ("b = 1 AND a > 100", [NONE] * 9),
    ],
)
def test_ranges_and_counts_decide_a_verdict(text, verdicts):
    judged = judge(parse(text), facts())
    assert [judged[i] for i in range(len(CHUNKS))] == verdicts


def test_a_chunk_without_facts_is_neither_skipped_nor_passed_whole():
    nothing = facts(covered=np.zeros(len(CHUNKS), np.bool_))
    for text in ("a = 1", "a IS NULL", "EXISTS(a)", "a LIKE 'x%'", "a > a", "a * 2 = 1"):
        assert not any(judge(parse(text), nothing).all), text
        assert all(judge(parse(text), nothing).some), text


def test_a_bloom_miss_skips_and_a_hit_proves_nothing():
    asked = []

    def probe(field, value, chunks):
        asked.append((field, value, list(chunks)))
        return chunks == 1

    unknown = Facts(np.array([10, 10, 10]), {}, probe)
    judged = judge(parse("a IN ('p', 'q')"), unknown)
    assert [judged[i] for i in range(3)] == [NONE, SOME, NONE]
    assert [value for _, value, _ in asked] == ["p", "q"]


def test_later_terms_probe_only_what_earlier_terms_let_through():
    probed = {}

    def probe(field, value, chunks):
        probed[value] = list(chunks)
        return chunks >= 2

    times = {
        "int": ValueRange(np.array([5] * 4), np.array([0, 10, 20, 30]), np.array([9, 19, 29, 39]))
    }
    known = Facts(np.array([5] * 4), {Field("sys", "priority"): FieldFacts(times)}, probe)
    judge(parse("a = 'x' AND b = 'y' AND sys.priority >= 10"), known)
    assert probed == {"x": [1, 2, 3], "y": [2, 3]}


def test_a_negated_leaf_does_not_probe_the_bloom_filter():
    def probe(field, value, chunks):
        raise AssertionError("a Bloom filter cannot prove presence")

    judged = judge(parse("a <> 'x' AND NOT b IN ('y')"), Facts(np.array([3]), {}, probe))
    assert judged[0] is SOME


def test_a_complete_set_of_values_answers_anything_exactly():
    values = facts_of_values(
        [["orders.eu", "orders.us"], ["orders.eu", "bills"], ["bills", "bills"]]
    )
    distinct = DistinctSets.of([["orders.eu", "orders.us"], ["orders.eu", "bills"], ["bills"]])
    topics = FieldFacts(values.ranges, opaque=values.opaque, distinct=distinct)
    known = Facts(np.array([2, 2, 2]), {Field("sys", "topic"): topics, A: topics})
    for text in ("sys.topic MATCHES 'orders.*'", "a LIKE '%rs._%'"):
        judged = judge(parse(text), known)
        assert [judged[i] for i in range(3)] == [ALL, SOME, NONE]


def test_an_incomplete_set_falls_back_to_the_range():
    values = facts_of_values([["a", "m"], ["n", "z"]])
    distinct = DistinctSets.of([None, ["n", "z"]])
    known = Facts(
        np.array([2, 2]), {A: FieldFacts(values.ranges, opaque=values.opaque, distinct=distinct)}
    )
    judged = judge(parse("a = 'k'"), known)
    assert [judged[0], judged[1]] == [SOME, NONE]


def test_empty_chunks_hold_no_match():
    assert judge(parse("TRUE"), Facts(np.array([0, 1])))[0] is NONE


def test_ints_and_floats_compare_as_doubles():
    big = facts_of_values([[2**53 + 1], [float(2**53)]])
    known = Facts(np.array([1, 1]), {A: FieldFacts(big.ranges)})
    assert list(judge(parse("a = 9007199254740992.0"), known).some) == [True, True]
    assert list(judge(parse("a = 9007199254740993"), known).some) == [True, True]
    assert list(judge(parse("a = 9007199254740992"), known).some) == [False, True]


def test_a_million_chunks_are_judged_in_a_few_numpy_operations():
    count = 1_000_000
    times = ValueRange(np.full(count, 100), np.arange(count), np.arange(count) + 5)
    known = Facts(np.full(count, 100), {Field("sys", "timestamp"): FieldFacts({"int": times})})
    judged = judge(parse("sys.timestamp BETWEEN 500 AND 600"), known)
    assert judged.some.sum() == 106
    assert judged.all.sum() == 96

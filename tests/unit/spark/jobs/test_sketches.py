"""Sketches are exact while they are small, close when they are large, and equal in any order of merging."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from headgate.filters.nodes import Field
from headgate.spark.jobs.sketches import (
    HEAVY,
    KEPT,
    SAMPLED,
    Heavy,
    distinct_from_json,
    distinct_json,
    distinct_of,
    heavy_from_json,
    heavy_json,
    heavy_of,
    merge_distinct,
    merge_heavy,
)
from headgate.streams.segments.bloom import hash_numbers, hash_texts

FIELD = Field("header", "customer")


def distinct(values):
    hashes = hash_texts(FIELD, values)[:, 0]
    return distinct_of(hashes, lambda at: [values[i] for i in at.tolist()])


def names(count, start=0):
    return [f"c{i}" for i in range(start, start + count)]


def test_few_values_are_counted_exactly():
    parts = [distinct(names(700)), distinct(names(700, 300)), distinct(names(10))]
    together = reduce(merge_distinct, parts)
    assert together.exact
    assert together.estimate == 1000
    assert together.error == 0


@pytest.mark.parametrize("count", [5_000, 200_000])
def test_many_values_are_estimated_within_three_standard_errors(count):
    found = distinct(names(count))
    assert not found.exact
    assert abs(found.estimate - count) < 3 * found.error * count


def test_a_merged_sketch_equals_the_sketch_of_all_values():
    whole = distinct(names(30_000))
    parts = [distinct(names(10_000, start)) for start in (20_000, 0, 10_000)]
    together = reduce(merge_distinct, parts)
    assert together.hashes.tolist() == whole.hashes.tolist()
    assert together.sample == whole.sample
    assert len(whole.hashes) == KEPT
    assert len(whole.sample) == SAMPLED


def test_the_sample_is_fair_to_values_however_often_they_occur():
    drawn = [
        int(v[1:]) for start in range(0, 100_000, 1000) for v in distinct(names(1000, start)).values
    ]
    assert abs(np.mean([n % 1000 for n in drawn]) - 499.5) < 30


def test_an_integer_and_an_equal_float_are_one_value():
    ints = hash_numbers(FIELD, np.arange(10))[:, 0]
    floats = hash_numbers(FIELD, np.arange(10.0))[:, 0]
    both = merge_distinct(
        distinct_of(ints, lambda at: at.tolist()), distinct_of(floats, lambda at: at.tolist())
    )
    assert both.estimate == 10


def heavy(counts):
    values = list(counts)
    return heavy_of(lambda at: [values[i] for i in at.tolist()], np.array(list(counts.values())))


def test_counts_of_heavy_values_are_within_the_missed_count():
    rng = np.random.default_rng(7)
    truth: dict[str, int] = {}
    parts = []
    for _ in range(20):
        drawn = [f"v{n}" for n in np.minimum(rng.zipf(1.3, 4000), 5000).tolist()]
        counts = {value: drawn.count(value) for value in dict.fromkeys(drawn)}
        parts.append(heavy(counts))
        for value, count in counts.items():
            truth[value] = truth.get(value, 0) + count
    together = reduce(merge_heavy, parts)
    assert len(together.counts) == HEAVY
    for value, count in together.counts:
        assert count <= truth[value] <= count + together.missed
    best = sorted(truth, key=truth.__getitem__, reverse=True)[:3]
    assert [value for value, _ in together.top(3)] == best


def test_one_and_true_are_two_heavy_values():
    together = merge_heavy(Heavy(((1, 5),)), Heavy(((True, 3), (1, 1))))
    assert together.counts == ((1, 6), (True, 3))
    assert [type(value) for value, _ in together.counts] == [int, bool]


def test_sketches_survive_json():
    found, counted = distinct(names(5000)), heavy({"a": 3, "b": 1})
    again = distinct_from_json(distinct_json(found))
    assert again.hashes.tolist() == found.hashes.tolist()
    assert again.sample == found.sample
    assert heavy_from_json(heavy_json(counted)) == counted

from __future__ import annotations

import numpy as np
import pytest

from headgate.streams.segments import clustering
from headgate.streams.segments.clustering import SortKey, cluster, sort_key
from headgate.streams.segments.segment_rows import join_column


def key(ranks: list[int]) -> SortKey:
    return SortKey(np.array(ranks), max(ranks) + 1, len(set(ranks)))


def no_groups(rows: int) -> np.ndarray:
    return np.zeros(rows, np.int64)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "CHUNK_ROWS", 4)


def test_the_key_with_the_fewest_values_sorts_first_and_equal_keys_keep_their_order() -> None:
    many, few = key([3, 0, 2, 1, 3, 0]), key([1, 0, 1, 0, 1, 0])
    found = cluster(no_groups(6), [many, few], np.ones(6, np.int64))
    assert found.order.tolist() == [1, 5, 3, 2, 0, 4]
    assert not (np.diff(found.order) > 0).all()


def test_without_keys_the_rows_stay_as_they_are() -> None:
    found = cluster(no_groups(5), [], np.ones(5, np.int64))
    assert found.order.tolist() == [0, 1, 2, 3, 4]
    assert (np.diff(found.order) > 0).all()


@pytest.mark.usefixtures("small_chunks")
def test_a_chunk_ends_where_a_key_changes() -> None:
    found = cluster(no_groups(20), [key([i // 5 for i in range(20)])], np.ones(20, np.int64))
    assert found.starts.tolist() == [0, 5, 10, 15]


@pytest.mark.usefixtures("small_chunks")
def test_a_chunk_never_holds_rows_of_two_groups() -> None:
    groups = np.array([0, 0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 1])
    found = cluster(groups, [], np.ones(14, np.int64))
    for start, end in zip(found.starts, found.ends, strict=True):
        assert len(set(groups[found.order[start:end]].tolist())) == 1
    assert sorted(found.order.tolist()) == list(range(14))


def test_large_rows_make_small_chunks() -> None:
    rows = np.full(100, 300_000)
    found = cluster(no_groups(100), [], rows)
    sizes = found.ends - found.starts
    assert sizes.max() <= 8
    assert (found.ends[:-1] == found.starts[1:]).all()


def test_a_row_larger_than_a_chunk_has_a_chunk_of_its_own() -> None:
    found = cluster(no_groups(3), [], np.array([64 << 20, 64 << 20, 64 << 20]))
    assert found.starts.tolist() == [0, 1, 2]


def test_a_sort_key_puts_missing_values_first_and_then_kind_after_kind() -> None:
    import pyarrow as pa

    texts = join_column([pa.array(["b", None, None, "a", None])], [5])
    ints = join_column([pa.array([None, 7, None, None, -7])], [5])
    found = sort_key([texts, ints], 5)
    assert np.argsort(found.ranks).tolist() == [2, 3, 0, 4, 1]
    assert found.distinct == 5


def test_keys_that_do_not_fit_into_one_number_are_sorted_too() -> None:
    rng = np.random.default_rng(1)
    keys = [SortKey(rng.integers(0, 2**40, 50), 2**40, 50 + i) for i in range(3)]
    found = cluster(no_groups(50), keys, np.ones(50, np.int64))
    rows = [tuple(int(k.ranks[row]) for k in keys) for row in found.order]
    assert rows == sorted(rows)

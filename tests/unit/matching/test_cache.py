"""A cache keeps answers while questions repeat."""

from __future__ import annotations

import pytest

from headgate.matching import cache as module
from headgate.matching.cache import AnswerCache


@pytest.fixture
def cache(monkeypatch) -> AnswerCache[str]:
    for name, value in (
        ("FIRST", 4),
        ("MOST", 16),
        ("MAX_WEIGHT", 1_000),
        ("MIN_HIT_RATIO", 1 / 2),
        ("PAUSE_FACTOR", 10),
        ("FULL_SIZE_EVERY", 3),
    ):
        monkeypatch.setattr(module, name, value)
    return AnswerCache()


def fill(cache: AnswerCache[str], count: int, weight: int = 0) -> None:
    for n in range(count):
        cache.keep((n, len(cache.known)), "answer", weight)


def test_a_kept_answer_is_known_until_the_cache_forgets(cache):
    cache.keep("question", "answer", 1)
    assert cache.known["question"] == "answer"
    cache.forget()
    assert cache.known == {}


def test_a_full_cache_without_hits_rests(cache):
    fill(cache, 5)
    assert cache.resting == 40
    assert len(cache.known) == 1


def test_a_cache_with_hits_grows_and_starts_over_at_its_limit(cache):
    fill(cache, 4)
    cache.hits = 4
    fill(cache, 1)
    assert cache.resting == 0
    assert len(cache.known) == 5
    cache.hits = 16
    fill(cache, 12)
    assert cache.resting == 0
    assert len(cache.known) == 1


def test_a_cache_tries_at_full_size_every_few_times(cache):
    for _ in range(3):
        cache.resting = 0
        fill(cache, 5)
        cache.forget()
    fill(cache, 16)
    assert len(cache.known) == 16


def test_heavy_answers_leave_room_for_fewer(cache):
    fill(cache, 2, weight=400)
    assert len(cache.known) == 2
    fill(cache, 1, weight=400)
    assert len(cache.known) == 1


def test_forgotten_answers_are_freed_a_few_at_a_time(cache, monkeypatch):
    monkeypatch.setattr(module, "FREED", 3)
    fill(cache, 4)
    cache.forget()
    left = []
    for n in range(3):
        cache.keep(n, "answer", 0)
        left.append(sum(map(len, cache._forgotten)))
    assert left == [1, 0, 0]
    assert cache._forgotten == []
    assert len(cache.known) == 3

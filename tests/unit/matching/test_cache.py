"""A memory remembers while that helps."""

from __future__ import annotations

import pytest

from headgate.matching import cache as module
from headgate.matching.cache import AnswerCache


@pytest.fixture
def memory(monkeypatch) -> AnswerCache[str]:
    for name, value in (
        ("FIRST", 4),
        ("MOST", 16),
        ("HEAVY", 1_000),
        ("HELPS", 2),
        ("REST", 10),
        ("THOROUGH", 3),
    ):
        monkeypatch.setattr(module, name, value)
    return AnswerCache()


def fill(memory: AnswerCache[str], count: int, weight: int = 0) -> None:
    for n in range(count):
        memory.keep((n, len(memory.known)), "answer", weight)


def test_what_was_kept_is_known_until_it_is_no_longer_true(memory):
    memory.keep("question", "answer", 1)
    assert memory.known["question"] == "answer"
    memory.forget()
    assert memory.known == {}


def test_a_memory_nobody_needed_rests_when_it_is_full(memory):
    fill(memory, 5)
    assert memory.resting == 40
    assert len(memory.known) == 1


def test_a_memory_that_helps_grows_and_begins_anew_at_its_limit(memory):
    fill(memory, 4)
    memory.hits = 4
    fill(memory, 1)
    assert memory.resting == 0
    assert len(memory.known) == 5
    memory.hits = 16
    fill(memory, 12)
    assert memory.resting == 0
    assert len(memory.known) == 1


def test_every_so_often_it_tries_as_large_as_it_may_be(memory):
    for _ in range(3):
        memory.resting = 0
        fill(memory, 5)
        memory.forget()
    fill(memory, 16)
    assert len(memory.known) == 16


def test_heavy_answers_leave_room_for_fewer(memory):
    fill(memory, 2, weight=400)
    assert len(memory.known) == 2
    fill(memory, 1, weight=400)
    assert len(memory.known) == 1


def test_what_is_forgotten_is_freed_a_little_with_every_answer_that_is_kept(memory, monkeypatch):
    monkeypatch.setattr(module, "FREED", 3)
    fill(memory, 4)
    memory.forget()
    left = []
    for n in range(3):
        memory.keep(n, "answer", 0)
        left.append(sum(map(len, memory._forgotten)))
    assert left == [1, 0, 0]
    assert memory._forgotten == []
    assert len(memory.known) == 3

"""A million patterns behave like each of them alone."""

from __future__ import annotations

from collections.abc import Set
from random import Random
from typing import Any

import pytest

from headgate.errors import TopicPatternError
from headgate.filters.topics import matches
from headgate.matching import trie as trie_module
from headgate.matching.trie import TopicTrie
from tests.generate import TOPIC_PATTERNS, TOPICS


def trie_of(*patterns: str) -> TopicTrie[set]:
    trie: TopicTrie[set] = TopicTrie(set)
    for pattern in patterns:
        trie.add(pattern, pattern)
    return trie


def test_every_pattern_matches_what_it_matches_alone():
    trie = trie_of(*TOPIC_PATTERNS)
    for topic in TOPICS:
        assert trie.match(topic) == {p for p in TOPIC_PATTERNS if matches(p, topic)}


def test_random_patterns_match_while_others_are_added_and_removed(seed):
    rng = Random(seed)
    trie, present = trie_of(), []
    for _ in range(3_000):
        if present and rng.random() < len(present) / 200:  # about a hundred, coming and going
            pattern = present.pop(rng.randrange(len(present)))
            assert trie.remove(pattern, pattern)
        else:
            pattern = ".".join(rng.choice("ab*#") for _ in range(rng.randint(0, 5)))
            present.append(pattern)
            trie.add(pattern, pattern)
        topic = ".".join(rng.choice("abc") for _ in range(rng.randint(0, 6)))
        assert trie.match(topic) == {p for p in present if matches(p, topic)}
    for pattern in present:
        assert trie.remove(pattern, pattern)
    assert trie.match("a.b") == set()
    assert trie._root.empty
    assert not trie._exact


def test_a_member_stays_until_it_was_removed_as_often_as_added():
    trie = trie_of("a.*", "a.*")
    assert trie.remove("a.*", "a.*")
    assert trie.match("a.b") == {"a.*"}
    assert trie.remove("a.*", "a.*")
    assert trie.match("a.b") == set()
    assert not trie.remove("a.*", "a.*")


def test_two_spellings_of_a_pattern_are_one_place():
    trie = trie_of("a.#.*")
    trie.add("a.*.#", "other")
    assert trie.match("a.b.c") == {"a.#.*", "other"}
    assert trie.remove("a.*.#", "a.#.*")
    assert trie.match("a.b.c") == {"other"}


def test_a_remembered_answer_is_forgotten_when_it_changes():
    trie = trie_of("a.b")
    assert trie.match("a.b") == {"a.b"}
    assert trie.final == {"a.b": {"a.b"}}
    trie.add("a.#", "more")
    assert not trie.final
    assert trie.match("a.b") == {"a.b", "more"}
    trie.remove("a.b", "a.b")
    assert trie.match("a.b") == {"more"}


def test_the_number_of_remembered_topics_is_bounded(monkeypatch):
    monkeypatch.setattr(trie_module, "REMEMBERED", 10)
    trie = trie_of("#")
    for n in range(100):
        trie.match(f"topic.{n}")
    assert 0 < len(trie.final) <= 10


def crowd(members: Set[Any]) -> set | tuple:
    """One is a set, more are a tuple."""
    return tuple(sorted(members)) if len(members) > 1 else set(members)


def test_provisional_answers_count_in_the_bound(monkeypatch):
    monkeypatch.setattr(trie_module, "REMEMBERED", 10)
    trie: TopicTrie[set | tuple] = TopicTrie(crowd, provisional=tuple)
    trie.add("#", "all")
    trie.add("*.odd", "odd")
    for n in range(100):
        assert trie.match(f"{n}.odd") == ("all", "odd")
        assert trie.match(f"{n}.even") == {"all"}
        assert len(trie.final) + len(trie._provisional) <= 10


def test_a_provisional_answer_is_remembered_apart():
    trie: TopicTrie[set | tuple] = TopicTrie(crowd, provisional=tuple)
    trie.add("a.b", 1)
    trie.add("a.b", 2)
    both = trie.match("a.b")
    assert trie.match("a.b") is both
    assert not trie.final
    trie.remove("a.b", 2)
    assert trie.match("a.b") == {1}
    assert trie.final == {"a.b": {1}}


def test_a_member_that_is_not_there_cannot_be_removed():
    trie = trie_of("a.*")
    assert not trie.remove("a.*.b", "a.*")
    assert not trie.remove("a.b", "a.*")
    assert not trie.remove("a.*", "somebody else")
    assert trie.match("a.x") == {"a.*"}


def test_patterns_that_begin_with_many_are_counted():
    assert trie_of("#", "#.a", "#.a.#", "a.#", "*.#").leading_many == 2


def test_a_bad_pattern_is_refused():
    with pytest.raises(TopicPatternError):
        trie_of("a" * 300)

"""Many filters at once answer what each answers alone."""

from __future__ import annotations

import pickle
from random import Random

import pytest

from headgate.filters.logic import matches_filter
from headgate.filters.nodes import TRUE
from headgate.filters.parser import parse
from headgate.matching.index import PRESENT, WIDE, Presence
from headgate.matching.matcher import Matcher
from headgate.matching.paths import MAX_PATHS, Path, paths
from headgate.matching.tree import AnyOf
from headgate.message import OPAQUE, Message
from tests import generate


def matcher_of(**filters: str) -> Matcher[str]:
    return Matcher((name, parse(text)) for name, text in filters.items())


def test_random_filters_answer_as_they_do_alone(seed):
    rng = Random(seed)
    matcher: Matcher[int] = Matcher()
    present = []
    for _ in range(40):
        for _ in range(15):
            entry = (rng.randrange(60), generate.timeless(rng))
            matcher.add(*entry)
            present.append(entry)
        for _ in range(9):
            handle, tree = present.pop(rng.randrange(len(present)))
            assert matcher.remove(handle, tree)
        for message in generate.messages(rng, 12):
            assert matcher.match(message) == {h for h, t in present if matches_filter(t, message)}


def test_nothing_is_left_when_all_filters_are_removed(seed):
    rng = Random(seed)
    entries = [(n % 7, generate.timeless(rng)) for n in range(300)]
    matcher = Matcher(entries)
    for handle, tree in entries:
        assert matcher.remove(handle, tree)
    assert len(matcher) == 0
    assert matcher.equalities.columns == ()
    assert matcher.equalities._root.empty
    assert matcher.trie._root.empty
    assert not matcher._checks


def test_a_handle_with_two_filters_is_found_once_and_by_either():
    matcher = Matcher([("h", parse("a = 1")), ("h", parse("b = 2"))])
    assert matcher.match(Message(headers={"a": 1, "b": 2})) == {"h"}
    matcher.remove("h", parse("a = 1"))
    assert matcher.match(Message(headers={"a": 1})) == set()
    assert matcher.match(Message(headers={"b": 2})) == {"h"}


def test_a_filter_that_was_added_twice_must_be_removed_twice():
    matcher = Matcher([("h", parse("a = 1")), ("h", parse("a = 1"))])
    assert matcher.remove("h", parse("a = 1"))
    assert matcher.match(Message(headers={"a": 1})) == {"h"}
    assert matcher.remove("h", parse("a = 1"))
    assert not matcher.remove("h", parse("a = 1"))
    assert matcher.match(Message(headers={"a": 1})) == set()


def test_numbers_equal_numbers_and_booleans_only_booleans():
    matcher = matcher_of(one="a = 1", true="a = TRUE", text="a = '1'", point="a = 1.0")
    assert matcher.match(Message(headers={"a": 1})) == {"one", "point"}
    assert matcher.match(Message(headers={"a": 1.0})) == {"one", "point"}
    assert matcher.match(Message(headers={"a": True})) == {"true"}
    assert matcher.match(Message(headers={"a": "1"})) == {"text"}
    assert matcher.match(Message(headers={"a": OPAQUE})) == set()


def test_a_pickled_matcher_has_its_filters():
    matcher = matcher_of(a="region = 'EU' AND amount > 5", b="sys.topic MATCHES 'x.#'")
    arrived = pickle.loads(pickle.dumps(matcher))
    message = Message(topic="x.y", headers={"region": "EU", "amount": 6})
    assert arrived.match(message) == matcher.match(message) == {"a", "b"}


def test_a_filter_on_the_time_asks_the_clock_each_time():
    now = [0]
    matcher: Matcher[str] = Matcher(clock=lambda: now[0])
    matcher.add("late", parse("a = 1 AND UTC() > 100"))
    assert matcher.match(Message(headers={"a": 1})) == set()
    now[0] = 101
    assert matcher.match(Message(headers={"a": 1})) == {"late"}


def test_equal_rests_share_one_test():
    matcher = Matcher((n, parse(f"a = {n} AND b LIKE 'x%'")) for n in range(100))
    assert len(matcher._checks) == 1


# ---- the ways into a filter ----------------------------------------------------------------------------


def ways(text: str) -> list[Path]:
    return list(paths(parse(text)))


def test_equalities_make_the_path_of_a_filter_and_the_rest_is_tested():
    (path,) = ways("a = 1 AND b = 'x' AND c > 5")
    assert set(path.pairs) == {("a", 1), ("b", "x")}
    assert path.rest == parse("c > 5")


def test_each_side_of_an_or_is_a_path_of_its_own():
    assert {path.pairs for path in ways("a = 1 OR b = 2")} == {(("a", 1),), (("b", 2),)}


@pytest.mark.parametrize("length", [2, MAX_PATHS, MAX_PATHS + 1, 1_000])
def test_a_list_of_any_length_is_one_path_and_leaves_nothing_to_test(length):
    values = [f"v{n}" for n in range(length)]
    (path,) = ways(f"a IN ({', '.join(map(repr, values))})")
    assert path.pairs == (("a", AnyOf(values)),)
    assert path.rest == TRUE
    matcher = matcher_of(listed=f"a IN ({', '.join(map(repr, values))})", other="a = 'v1'")
    assert matcher.match(Message(headers={"a": "v1"})) == {"listed", "other"}
    assert matcher.match(Message(headers={"a": "v0"})) == {"listed"}
    assert matcher.match(Message(headers={"a": "v"})) == set()


def test_the_shorter_of_two_lists_makes_the_path_and_the_other_is_tested():
    (path,) = ways("a IN (1, 2, 3) AND b IN ('x', 'y') AND c = 1")
    assert set(path.pairs) == {("b", AnyOf(["x", "y"])), ("c", 1)}
    assert path.rest == parse("a IN (1, 2, 3)")


def test_alternatives_in_several_columns_are_one_path_each_without_a_better_one():
    found = ways("(a = 1 OR b = 2) AND c > 3")
    assert [path.pairs for path in found] == [(("a", 1),), (("b", 2),)]
    assert {path.rest for path in found} == {parse("c > 3")}
    (path,) = ways("(a = 1 OR b = 2) AND c = 3")
    assert path.pairs == (("c", 3),)
    assert path.rest == parse("a = 1 OR b = 2")


def test_the_path_of_a_range_is_the_presence_of_its_header():
    (path,) = ways("amount > 5")
    assert path.pairs == ((Presence("amount"), PRESENT),)


def test_a_topic_pattern_makes_the_path_without_an_equality():
    (path,) = ways("sys.topic MATCHES 'a.#' AND b > 1")
    assert path.pattern == "a.#"
    (path,) = ways("sys.topic MATCHES 'a.#' AND b = 1")
    assert path.pattern is None


def test_a_filter_that_an_empty_message_can_match_is_not_anchored():
    (path,) = ways("a IS NULL")
    assert not path.anchored


def test_a_filter_that_cannot_match_has_no_path():
    assert ways("a = 1 AND a = 2") == []


def test_an_integer_that_is_no_double_is_compared_and_not_looked_up():
    (path,) = ways("a = 9007199254740993")
    assert path.pairs == ((Presence("a"), PRESENT),)
    matcher = matcher_of(big="a = 9007199254740993")
    assert matcher.match(Message(headers={"a": 9007199254740992.0})) == {"big"}
    assert matcher.match(Message(headers={"a": 9007199254740992})) == set()


def test_an_index_of_very_many_columns_looks_up_the_headers_of_the_message():
    matcher = Matcher((n, parse(f"h{n} = 1")) for n in range(WIDE + 1))
    for n in range(WIDE + 1):
        for _ in range(2):
            assert matcher.match(Message(headers={f"h{n}": 1})) == {n}

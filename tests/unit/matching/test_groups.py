"""Groups of members are shared, counted, and contain each member once."""

from __future__ import annotations

from headgate.matching.groups import (
    SMALL,
    MemberGroup,
    MemberUnion,
    exclude,
    include,
    merge,
    size,
    unite,
)


def test_a_slot_grows_from_nothing_to_a_member_to_a_group_and_back():
    slot = include(None, "a")
    assert slot == "a"
    slot = include(slot, "b")
    assert slot.members == {"a", "b"}
    assert size(slot) == 2
    slot, found = exclude(slot, "a")
    assert found
    slot, found = exclude(slot, "c")
    assert not found
    slot, found = exclude(slot, "b")
    assert (slot, found, size(slot)) == (None, True, 0)
    assert exclude(None, "a") == (None, False)
    assert exclude("a", "b") == ("a", False)


def test_a_member_stays_until_it_was_discarded_as_often_as_added():
    group = MemberGroup("a", "a")
    assert group.discard("a")
    assert group.members == {"a"}
    assert group.discard("a")
    assert not group.discard("a")
    assert group.members == frozenset()


def test_members_are_one_object_until_a_member_is_added_or_discarded():
    group = MemberGroup("a")
    before = group.members
    group.add("a")
    group.discard("a")
    assert group.add("b") is None
    assert before == {"a"}
    assert group.members is group.members


def test_few_members_are_copied_and_many_are_shared():
    large = frozenset(range(SMALL + 1))
    assert unite([1, 2], [frozenset({3})]) == {1, 2, 3}
    assert unite([], [large]) is large
    both = unite([-1, 0], [large, frozenset({-2})])
    assert isinstance(both, MemberUnion)
    assert large in both.parts
    assert both == {*large, -1, -2}
    assert len(both) == SMALL + 3
    assert -2 in both
    assert SMALL + 5 not in both


def test_a_union_is_a_set():
    union = MemberUnion((frozenset("ab"), frozenset("bc")))
    assert union
    assert sorted(union) == ["a", "b", "c"]
    assert union & {"a", "z"} == {"a"}
    assert union | {"z"} == {"a", "b", "c", "z"}
    assert merge(union, frozenset()) is union
    assert merge(frozenset(), union) is union
    assert merge(union, frozenset("d")) == {"a", "b", "c", "d"}

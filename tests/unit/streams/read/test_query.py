from __future__ import annotations

import pytest

from headgate.errors import FilterSyntaxError, StreamOptionsError
from headgate.filters.builder import header
from headgate.filters.compile.python import compile_predicate
from headgate.filters.nodes import FALSE, TRUE
from headgate.filters.normal import normalize
from headgate.filters.parser import parse
from headgate.message import Message
from headgate.streams.read.query import make_query

VALUES = [Message(filter_value=value) for value in ("AMER", "EMEA", "APAC", None)]


def selected(**arguments: object) -> list[str | None]:
    matches = compile_predicate(make_query(**arguments).filter)  # type: ignore[arg-type]
    return [m.filter_value for m in VALUES if matches(m)]


def test_a_query_without_a_filter_matches_everything() -> None:
    assert make_query().filter.tree == TRUE
    assert make_query("").filter.tree == TRUE


def test_filter_values_select_exactly_the_messages_that_have_one_of_them() -> None:
    assert selected(filter_values=["AMER", "APAC"]) == ["AMER", "APAC"]


def test_messages_without_a_filter_value_need_match_unfiltered() -> None:
    assert selected(filter_values=["AMER"], match_unfiltered=True) == ["AMER", None]
    assert selected(filter_values=[], match_unfiltered=True) == [None]
    assert make_query(filter_values=[]).filter.tree == FALSE


def test_a_message_must_pass_the_filter_and_the_filter_values() -> None:
    query = make_query(header("a") > 1, filter_values=["AMER"])
    assert query.filter == make_query("a > 1 AND sys.filter_value = 'AMER'").filter
    assert query.filter != make_query("a > 1").filter


def test_more_filter_values_than_one_list_holds_are_several_lists() -> None:
    many = [f"v{i}" for i in range(3000)]
    matches = compile_predicate(make_query(filter_values=many).filter)
    assert all(matches(Message(filter_value=value)) for value in many)
    assert not matches(Message(filter_value="v3000"))


def test_contradictory_arguments_of_a_query_are_refused() -> None:
    with pytest.raises(StreamOptionsError, match="give filter_values too"):
        make_query(match_unfiltered=True)
    with pytest.raises(StreamOptionsError, match="give a list"):
        make_query(filter_values="AMER")
    with pytest.raises(FilterSyntaxError):
        make_query("region = ")


def test_every_filter_that_the_language_allows_is_one_that_a_stream_answers() -> None:
    deepest = "NOT " * 62 + "a"
    assert make_query(deepest).filter == normalize(parse(deepest))

"""Nodes refuse to be built from the wrong things; seed 000's unit tests by their categories."""

import math
import pickle

import pytest

from headgate import all_of, any_of, as_filter, header, topic
from headgate.errors import FilterError, FilterLimitError, FilterTypeError, TopicPatternError
from headgate.filters.builder import amqp_property, priority
from headgate.filters.nodes import (
    And,
    Compare,
    Field,
    In,
    Like,
    Literal,
    Not,
    Or,
    TopicMatch,
    fields_read,
)
from headgate.filters.parser import parse
from headgate.filters.printer import to_text

A = Field("header", "a")


class TestInvalidNodes:
    @pytest.mark.parametrize("name", [None, 5, "", "a\x00", "a\nb", "x" * 256, "\ud800"])
    def test_a_header_needs_a_name_that_can_exist(self, name):
        with pytest.raises(FilterTypeError):
            header(name)

    @pytest.mark.parametrize(
        "value", [None, b"x", [1], {}, object(), math.nan, math.inf, 2**63, "\x00", "\udc00"]
    )
    def test_a_value_must_be_a_scalar_that_a_message_could_hold(self, value):
        with pytest.raises(FilterTypeError):
            header("type") == value

    def test_a_comparison_with_none_names_the_method_for_it(self):
        with pytest.raises(FilterTypeError, match=r"is_null\(\)"):
            header("type") == None  # noqa: E711

    def test_in_needs_at_least_one_value(self):
        with pytest.raises(FilterTypeError, match="at least one value"):
            header("type").is_in()
        with pytest.raises(FilterTypeError, match="at least one value"):
            header("type").is_in([])

    def test_in_takes_no_more_than_its_limit(self):
        with pytest.raises(FilterLimitError):
            header("type").is_in(*range(1025))

    def test_and_and_or_need_at_least_one_condition(self):
        for empty in (all_of, any_of, lambda: And(()), lambda: Or(())):
            with pytest.raises(FilterTypeError):
                empty()

    def test_and_or_and_not_take_conditions_only(self):
        for wrong in (
            lambda: And((A,)),
            lambda: Not(Literal(1)),
            lambda: all_of(header("a")),
            lambda: all_of(5),
        ):
            with pytest.raises(FilterTypeError):
                wrong()

    @pytest.mark.parametrize(
        ("pattern", "escape"), [(None, None), (5, None), ("a", "ab"), ("a", "%"), ("a!", "!")]
    )
    def test_like_needs_a_pattern_and_a_sensible_escape(self, pattern, escape):
        with pytest.raises(FilterTypeError):
            header("type").like(pattern, escape)

    def test_comparisons_take_values_only(self):
        for wrong in (
            lambda: Compare("=", A, Compare("=", A, A)),
            lambda: Compare("~", A, A),
            lambda: In(A, (None,)),
            lambda: Like(And((Compare("=", A, A),)), "x"),
            lambda: header("a") + "text",
            lambda: -header("a") == [1],
        ):
            with pytest.raises(FilterTypeError):
                wrong()

    def test_topic_patterns_are_checked(self):
        for wrong in (None, "a\x00", "x" * 256):
            with pytest.raises(TopicPatternError):
                topic.matches(wrong)

    def test_python_truth_is_refused_because_it_would_lose_a_condition(self):
        with pytest.raises(FilterTypeError, match=r"join conditions with & \| ~"):
            (header("a") == 1) and (header("b") == 2)
        with pytest.raises(FilterTypeError):
            bool(header("a"))

    def test_every_refusal_is_a_filter_error(self):
        with pytest.raises(FilterError):
            header("")


class TestEquality:
    def test_equal_filters_are_equal_and_hash_alike(self):
        one, two = (
            parse("region = 'EU' AND amount > 1000"),
            parse("region='EU' and (amount > 1000)"),
        )
        assert one == two
        assert hash(one) == hash(two)
        assert len({one, two}) == 1

    def test_values_of_different_kinds_are_different_filters(self):
        texts = ["a = 1", "a = 1.0", "a = TRUE", "a = '1'", "a <> 1", "b = 1", "[A] = 1"]
        assert len({parse(text) for text in texts}) == len(texts)

    def test_filters_survive_pickling(self):
        tree = parse(
            "a IN (1, 'x') OR NOT sys.topic MATCHES 'a.#' AND -b < UTC() + TIMESTAMP '2026-01-01'"
        )
        assert pickle.loads(pickle.dumps(tree)) == tree


class TestHeaderNames:
    NAMES = [
        "type",
        "x-header",
        "a.b",
        "with space",
        "ünï",
        "$1",
        "quote'\"",
        "AND",
        "[x]",
        "back\\slash",
        "1st",
        "`",
    ]

    @pytest.mark.parametrize("name", NAMES)
    def test_any_printable_name_works_and_is_quoted_where_needed(self, name):
        condition = header(name) == 1
        assert parse(to_text(condition.filter)) == condition.filter


def test_the_builder_makes_the_tree_of_the_equal_text():
    pairs = [
        (header("region") == "EU", "region = 'EU'"),
        (header("amount") > 1000, "amount > 1000"),
        (header("a").is_in("x", 2), "a IN ('x', 2)"),
        (header("a").not_in(["x", 2]), "a NOT IN ('x', 2)"),
        (header("a").like("x%"), "a LIKE 'x%'"),
        (header("a").not_like("x!%", "!"), "a NOT LIKE 'x!%' ESCAPE '!'"),
        (header("a").between(1, 2), "a BETWEEN 1 AND 2"),
        (header("a").is_null() | header("b").exists(), "a IS NULL OR EXISTS(b)"),
        (~header("b").exists(), "NOT EXISTS(b)"),
        (~(header("a") == 1) & (header("b") != 2), "NOT a = 1 AND b <> 2"),
        (topic.matches("orders.#"), "sys.topic MATCHES 'orders.#'"),
        (priority >= 5, "sys.priority >= 5"),
        (amqp_property("subject") == "x", "properties.subject = 'x'"),
        (header("a") * 2 + header("b") < 10, "a * 2 + b < 10"),
        (-header("a") <= 1, "-a <= 1"),
        (2 + header("a") * (1 - header("b")) > 5, "2 + a * (1 - b) > 5"),
        (3 * header("a") < 7 / header("b"), "3 * a < 7 / b"),
        (7 % header("a") == 1, "7 % a = 1"),
        (all_of(header("a") == 1, header("b") == 2, header("c") == 3), "a = 1 AND b = 2 AND c = 3"),
        (
            any_of(header("a") == 1, (header("b") == 2) | (header("c") == 3)),
            "a = 1 OR b = 2 OR c = 3",
        ),
        (header("express").is_true(), "express"),
    ]
    for built, text in pairs:
        assert built.filter == parse(text), text
        assert as_filter(built) == as_filter(text)


def test_fields_read_collects_every_field_of_a_filter():
    tree = parse("a + b > 1 AND sys.topic MATCHES 'x.#' AND p.subject IS NULL")
    names = {f"{f.scope}.{f.name}" for f in fields_read(tree)}
    assert names == {"header.a", "header.b", "sys.topic", "property.subject"}


def test_topic_match_is_printed_as_text():
    assert to_text(TopicMatch("it's.#")) == "sys.topic MATCHES 'it''s.#'"

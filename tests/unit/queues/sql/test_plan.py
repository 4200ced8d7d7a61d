"""The plan of a claim: lookups and scans."""

import pytest

from headgate.filters.nodes import TRUE
from headgate.filters.parser import parse
from headgate.filters.printer import to_text
from headgate.queues.sql.plan import (
    MOST_BRANCHES,
    Probe,
    branches_of,
    choices_of,
    probed_headers,
    ranged_header,
)

INDEXED = ("type", "region")


def probes(text):
    return [branch.probe for branch in branches_of(parse(text), INDEXED)]


def test_without_a_filter_everything_is_read_in_order():
    [branch] = branches_of(None, INDEXED)
    assert (branch.probe, branch.on_delivery, branch.on_message) == (None, TRUE, TRUE)


def test_an_equality_on_a_declared_header_is_looked_up():
    assert probes("type = 'a'") == [Probe("type", "a")]
    assert probes("'a' = type") == [Probe("type", "a")]
    assert probes("type = TRUE") == [Probe("type", True)]


def test_an_undeclared_header_is_not_looked_up():
    assert probes("size = 1") == [None]


def test_in_is_a_lookup_for_each_value():
    assert probes("type IN ('a', 'b')") == [Probe("type", "a"), Probe("type", "b")]


def test_or_is_looked_up_only_if_every_branch_can_be():
    assert probes("type = 'a' OR region = 'EU'") == [Probe("type", "a"), Probe("region", "EU")]
    assert probes("type = 'a' OR size = 1") == [None]


def test_and_takes_the_term_with_the_fewest_values():
    assert probes("type IN ('a', 'b') AND region = 'EU' AND size = 1") == [Probe("region", "EU")]


def test_the_other_terms_of_and_are_evaluated_on_the_delivery_where_possible():
    [branch] = branches_of(parse("type = 'a' AND size > 3 AND region <> 'EU'"), INDEXED)
    assert to_text(branch.on_message) == "size > 3"
    assert "region" in to_text(branch.on_delivery)


def test_a_topic_needs_the_message_and_the_priority_does_not():
    [branch] = branches_of(parse("sys.topic MATCHES 'a.#' AND sys.priority > 3"), INDEXED)
    assert to_text(branch.on_delivery) == "sys.priority > 3"
    assert "MATCHES" in to_text(branch.on_message)


@pytest.mark.parametrize(
    "text", ["type <> 'a'", "type NOT IN ('a')", "type = region", "NOT (type = 'a')"]
)
def test_a_term_that_is_no_equality_with_a_constant_is_not_looked_up(text):
    assert probes(text) == [None]


def test_large_integers_are_not_looked_up_because_several_are_equal_as_doubles():
    assert probes("type = 9007199254740991") == [Probe("type", 2**53 - 1)]
    assert probes("type = 9007199254740993") == [None]
    assert probes("type IN (1, 9007199254740993)") == [None]


def test_too_many_branches_become_a_scan():
    values = ", ".join(f"'{at}'" for at in range(MOST_BRANCHES + 1))
    assert probes(f"type IN ({values})") == [None]


def test_each_of_several_headers_with_an_equality_is_a_choice():
    ways = choices_of(parse("type IN ('a', 'b') AND region = 'EU'"), INDEXED)
    assert [[b.probe.header for b in way] for way in ways] == [["region"], ["type", "type"]]
    assert choices_of(parse("type = 'a'"), INDEXED) == [branches_of(parse("type = 'a'"), INDEXED)]


def test_advice_names_the_headers_that_would_help():
    assert probed_headers(parse("size = 1 OR colour IN ('r', 'g')")) == ("colour", "size")
    assert probed_headers(parse("size > 1")) == ()


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("type LIKE 'a%'", "type"),
        ("type LIKE '%a'", None),
        ("type NOT LIKE 'a%'", None),
        ("region >= 5", "region"),
        ("size >= 5", None),
        ("type <> 'a'", None),
    ],
)
def test_a_range_of_a_declared_header_is_found(text, header):
    [branch] = branches_of(parse(text), INDEXED)
    assert ranged_header(branch) == header

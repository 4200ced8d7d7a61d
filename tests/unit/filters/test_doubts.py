"""What is said of a filter that is legal and hardly meant."""

import pytest

from headgate.filters.doubts import doubts, likely_mistakes
from headgate.filters.parser import parse


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a = 1 OR sys.timestamp > '2026-01-01'",
            "sys.timestamp > '2026-01-01' is never TRUE: sys.timestamp is a number; write TIMESTAMP '…'",
        ),
        (
            "order-id <> 'x' OR a = 1",
            "order - id <> 'x' is never TRUE: it subtracts; the header of that name is [order-id]",
        ),
        (
            "a = 1 OR x-tenant-id IN ('a', 'b')",
            "x - tenant - id IN ('a', 'b') is never TRUE: it subtracts; the header of that name is [x-tenant-id]",
        ),
        ("sys.priority = 'high'", "the filter can never be TRUE: it matches nothing"),
    ],
)
def test_a_comparison_that_no_message_makes_true_is_named(text, said):
    assert list(likely_mistakes(parse(text))) == [said]


@pytest.mark.parametrize(
    "text", ["order-id = 5", "order - 1 > 5", "sys.timestamp > 1767225600000000"]
)
def test_arithmetic_that_may_be_meant_is_not_doubted(text):
    assert list(likely_mistakes(parse(text))) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "topic LIKE 'orders%'",
            "topic is a header of that name; the topic of the message is sys.topic",
        ),
        (
            "payload LIKE '%x%'",
            "payload is a header of that name; a filter does not see the payload of a message",
        ),
    ],
)
def test_a_header_named_like_a_part_of_the_message_is_told_apart(text, said):
    assert list(doubts(parse(text))) == [said]
    assert list(likely_mistakes(parse(text))) == []

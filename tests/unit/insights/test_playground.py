"""A filter tried on messages."""

from headgate.insights import Sighting, explain_filter, filter_snippets, find_problem, try_filter
from headgate.message import Message

BIG = Sighting(1, Message(b"", headers={"region": "EU", "amount": 1200}))
SMALL = Sighting(2, Message(b"", headers={"region": "EU", "amount": 70}))
BARE = Sighting(3, Message(b"", headers={"amount": 5000}))


def test_the_first_term_that_failed_is_named_with_the_values_it_read():
    big, small, bare = try_filter("region = 'EU' AND amount > 1000", [BIG, SMALL, BARE])
    assert big.matches
    assert small.failed is not None
    assert (small.failed.text, small.failed.answer) == ("amount > 1000", "FALSE")
    assert small.failed.because == "amount is 70"
    assert bare.failed is not None
    assert (bare.failed.answer, bare.failed.because) == ("UNKNOWN", "region is absent")


def test_a_bad_filter_has_a_problem_with_its_place():
    assert find_problem("region = 'EU'") is None
    problem = find_problem("region = = 'EU'")
    assert problem is not None
    assert problem.at == 9
    assert problem.expected


def test_snippets_hold_the_filter_quoted_for_each_language():
    facts = explain_filter("region = 'EU' AND amount > 1000")
    of_stream = filter_snippets(facts, "stream", "my orders")
    assert of_stream["Command line"].startswith("headgate stream tail 'my orders'")
    assert "x-filter" in of_stream["pika"]
    assert "region" in of_stream["SQLite"]
    assert "queue browse orders" in filter_snippets(facts, "queue", "orders")["Command line"]

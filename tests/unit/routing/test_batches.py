"""A batch is routed as its messages are, into selection vectors."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.columns.shred import shred_messages
from headgate.errors import NotPermitted, UnknownExchange
from headgate.matching.batch import combine_codes
from headgate.message import Message
from headgate.routing.topology import Topology


@pytest.fixture
def made() -> Topology:
    made = Topology()
    made.declare_exchange("orders", "headers", alternate="rest")
    made.declare_exchange("rest", "topic")
    for name in ("eu", "eu-large", "topics"):
        made.declare_queue(name)
    made.bind("orders", queue="eu", arguments={"region": "EU"})
    made.bind("orders", queue="eu-large", arguments={"region": "EU"}, filter="amount > 1000")
    made.bind("rest", queue="topics", key="orders.#")
    return made


MESSAGES = [
    Message(topic="orders.a", headers={"region": "EU", "amount": 5}),
    Message(topic="orders.b", headers={"region": "US"}),
    Message(topic="other", headers={"region": "US"}),
    Message(topic="other", headers={"region": "EU", "amount": 5000}),
]


def test_each_queue_gets_its_rows_in_order(made):
    routed = made.route_batch("orders", shred_messages(MESSAGES))
    found = {queue: rows.tolist() for queue, rows in routed.selections().items()}
    assert found == {"eu": [0, 3], "eu-large": [3], "topics": [1]}
    assert routed.rows_of("eu").tolist() == [0, 3]
    assert routed.rows_of("nobody").tolist() == []
    assert routed.queues == {"eu", "eu-large", "topics"}
    assert routed.unroutable.tolist() == [2]
    assert routed.num_rows == 4


def test_rows_that_no_binding_tells_apart_are_matched_once(made):
    routed = made.route_batch("orders", shred_messages(MESSAGES * 500))
    assert routed.combinations <= 4
    assert len(routed.rows_of("eu")) == 1000


def test_values_that_no_binding_asks_for_make_no_difference():
    made = Topology()
    made.declare_exchange("x", "headers")
    made.declare_queue("q")
    made.bind("x", queue="q", arguments={"tenant": "acme"})
    batch = shred_messages(
        [Message(headers={"tenant": f"t{n}", "id": str(n)}) for n in range(999)]
        + [Message(headers={"tenant": "acme"})]
    )
    routed = made.route_batch("x", batch)
    assert routed.combinations == 2
    assert routed.rows_of("q").tolist() == [999]


def test_an_empty_batch_goes_nowhere(made):
    routed = made.route_batch("orders", shred_messages(MESSAGES).slice(0, 0))
    assert routed.selections() == {}
    assert routed.unroutable.tolist() == []


def test_a_batch_needs_an_exchange_one_may_publish_to(made):
    made.declare_exchange("inner", internal=True)
    with pytest.raises(NotPermitted):
        made.route_batch("inner", shred_messages(MESSAGES))
    with pytest.raises(UnknownExchange):
        made.route_batch("gone", shred_messages(MESSAGES))


def test_more_combinations_than_an_integer_holds_get_different_codes():
    rng = np.random.default_rng(5)
    columns = [rng.integers(0, 50_000, 2_000) for _ in range(6)]
    codes, first = combine_codes(columns, 2_000)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert len(first) == len(set(rows))
    assert [rows[first[code]] for code in codes.tolist()] == rows

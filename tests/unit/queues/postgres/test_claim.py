"""The reply of a claim becomes claimed messages, also when messages were left out of it."""

from __future__ import annotations

from headgate.queues.engine import QueueInfo, Receipt
from headgate.queues.postgres.claim import by_column, claimed_of_reply, left_out, reply_of

QUEUE = QueueInfo(id=1, name="orders")
PUSH = QueueInfo(id=2, name="pushed", kind="push")
TOKEN = 77


def message_row(id: int, priority: int = 0) -> tuple[object, ...]:
    """Id and MESSAGE_COLUMNS."""
    return (id, "t", '{"n": 1}', "{}", priority, 5, None, None, None, b"body %d" % id)


def answer(leased: list[int], *came: tuple[object, ...]):
    columns = [list(column) for column in zip(*came, strict=True)] or [None] * 10
    attempts, groups = [id * 10 for id in leased], [f"g{id}" for id in leased]
    leases = (leased, attempts, groups) if leased else (None, None, None)
    return reply_of([(1, False, len(leased), None, None, TOKEN, *leases, *columns)])


def test_claimed_messages_are_in_the_order_of_the_queue():
    got = answer([1, 2, 3], message_row(1), message_row(2, priority=9), message_row(3))
    assert [one.id for one in claimed_of_reply(got, QUEUE)] == [2, 1, 3]
    assert [one.id for one in claimed_of_reply(got, PUSH)] == [1, 2, 3]


def test_each_message_has_its_own_lease_although_leases_and_messages_differ_in_order():
    got = answer([3, 1, 2], message_row(1), message_row(2), message_row(3))
    claimed = claimed_of_reply(got, QUEUE)
    assert [(c.id, c.token, c.attempts, c.group) for c in claimed] == [
        (1, TOKEN, 10, "g1"),
        (2, TOKEN, 20, "g2"),
        (3, TOKEN, 30, "g3"),
    ]
    assert [c.message.payload for c in claimed] == [b"body 1", b"body 2", b"body 3"]
    assert claimed[0].message.headers == {"n": 1}


def test_a_message_left_out_of_the_reply_is_fetched_and_put_in_order():
    got = answer([1, 2, 3], message_row(1), message_row(3))
    assert left_out(got) == [2]
    assert [c.attempts for c in claimed_of_reply(got, QUEUE, [message_row(2)])] == [10, 20, 30]


def test_a_leased_message_that_was_deleted_meanwhile_is_not_claimed():
    assert [c.id for c in claimed_of_reply(answer([1, 2], message_row(2)), QUEUE)] == [2]
    assert claimed_of_reply(answer([1]), QUEUE) == []


def test_a_reply_without_leases_has_no_messages():
    nothing = answer([])
    assert (left_out(nothing), claimed_of_reply(nothing, QUEUE)) == ([], [])


def test_receipts_of_one_claim_have_one_token():
    assert by_column([Receipt(3, TOKEN), Receipt(1, TOKEN)]) == ([1, 3], [TOKEN])
    assert by_column([Receipt(3, 5), Receipt(1, TOKEN)]) == ([1, 3], [TOKEN, 5])
    assert by_column([]) == ([], [])

"""What a consumer knows of its deliveries."""

import pytest

from headgate.errors import DatabaseUnavailable
from headgate.filters import parse
from headgate.message import Message
from headgate.queues.engine import ClaimedMessage, Outcome, Receipt, Usage
from headgate.queues.ledger import Ledger

FIRST, SECOND = Receipt(1, 10), Receipt(2, 20)


@pytest.fixture
def ledger():
    ledger = Ledger("orders")
    claimed = [
        ClaimedMessage(receipt.id, receipt.token, 1, Message()) for receipt in (FIRST, SECOND)
    ]
    ledger.add_claimed(claimed, spent_us=7)
    return ledger


def test_a_claimed_message_is_leased_until_it_is_acked_or_forgotten(ledger):
    assert ledger.leased() == [FIRST, SECOND]
    ledger.add_acked([FIRST], [Outcome.DONE])
    ledger.forget([SECOND])
    assert ledger.leased() == []


def test_acks_that_failed_are_acked_before_those_that_came_later(ledger):
    ledger.add_handled(FIRST)

    def fail() -> None:
        with ledger.acking():
            ledger.add_handled(SECOND)
            raise DatabaseUnavailable("no answer")

    with pytest.raises(DatabaseUnavailable):
        fail()
    with ledger.acking() as acks:
        assert acks == [FIRST, SECOND]
    assert ledger.seconds_to_ack() is None


def test_an_ack_after_the_end_of_the_lease_is_logged_and_not_counted(ledger, caplog):
    ledger.add_acked([FIRST, SECOND], [Outcome.DONE, Outcome.STALE])
    assert ledger.report(None).acked == 1
    assert "cannot ack" in caplog.text


def test_a_rejected_message_is_skipped_and_counted_once(ledger):
    ledger.reject([1, 2])
    ledger.reject([2])
    assert sorted(ledger.rejected()) == [1, 2]
    assert ledger.report(parse("a = 1")) == Usage(
        claims=1, rows=2, claim_us=7, unmatched=2, filter="a = 1"
    )
    assert ledger.report(None) is None

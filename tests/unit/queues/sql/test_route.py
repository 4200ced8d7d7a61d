"""Upkeep of subscriptions, while their owners are at work."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from headgate.filters import parse
from headgate.queues.engine import Operation, Statement, Step
from tests.steps import watched

LEASE_US = 30_000_000


def test_a_push_subscription_whose_lease_is_extended_at_this_moment_is_not_deleted(
    pair, manual_clock
):
    one, two = pair
    operations = two.engine.operations
    subscribe = operations.subscribe("push", parse("x = 1"), lease_us=LEASE_US)
    two.engine.run(subscribe)
    manual_clock.advance(timedelta(microseconds=LEASE_US))
    renewed: list[bool] = []
    upkeep = one.engine.operations.dialect.text("upkeep")
    texts: list[str] = []

    def renew(step: Step) -> None:
        if texts == [upkeep]:
            renewed.append(two.engine.run(operations.keep_alive("push", LEASE_US)))
        texts.append(getattr(step, "text", ""))

    one.engine.run(watched(one.engine.operations.route(), renew))
    assert renewed == [True]
    queues = one.engine.operations.queues
    assert [info.name for info in one.engine.run(queues())] == ["push"]
    manual_clock.advance(timedelta(microseconds=LEASE_US))
    one.engine.run(one.engine.operations.route())
    assert one.engine.run(queues()) == []


def test_what_is_not_yet_routed_is_something_to_claim_for_subscriptions_only(pair):
    db, _ = pair
    queue, copies = db.queue("q"), db.subscription("copies", pattern="#")
    db.engine.run(run_step(Statement("INSERT INTO inbox (queue, payload) VALUES ('q', 'a')")))
    queue.purge()
    has_ready = db.engine.operations.has_ready
    assert not db.engine.run(has_ready(queue.info))
    assert db.engine.run(has_ready(copies.info))
    queue.delete()
    assert db.engine.run(has_ready(queue.info))


def run_step(step: Step) -> Operation[Any]:
    return (yield step)

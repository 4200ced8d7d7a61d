"""Declarations that meet: two programs declare different filter headers of one queue at the same time."""

from __future__ import annotations

import pytest

from headgate.queues.engine import QueueOptions, Step
from tests.conformance.queue_behaviour.base import payloads
from tests.steps import before, watched

FIRST_OF_BUILD = {"sqlite": "misnamed_indexes", "postgres": "lock_indexes"}


class Killed(Exception):
    pass


@pytest.mark.parametrize("is_killed", [False, True])
def test_headers_that_another_program_declares_meanwhile_are_found_in_older_messages(
    pair, is_killed
):
    one, two = pair
    queue = one.queue("q")
    queue.publish(b"m", headers={"a": "x", "b": "x"})
    dialect, pages = one.engine.operations.dialect, []
    overtake = before(
        one, FIRST_OF_BUILD[dialect.name], lambda: two.queue("q", filter_headers=["b"])
    )

    def see(step: Step) -> None:
        overtake(step)
        if getattr(step, "text", "") == dialect.text("backfill"):
            pages.append(step)
            if is_killed and len(pages) == 2:
                raise Killed

    declare = one.engine.operations.declare("q", QueueOptions(filter_headers=("a",)))
    if is_killed:
        with pytest.raises(Killed):
            one.engine.run(watched(declare, see))
    else:
        assert one.engine.run(watched(declare, see)).indexed == ("a", "b")
    assert len(pages) == 2
    found = two.find("q").claim(filter="b = 'x'")
    assert payloads(found) == [b"m"]
    found[0].release()
    assert payloads(two.queue("q", filter_headers=["a"]).claim(filter="a = 'x'")) == [b"m"]

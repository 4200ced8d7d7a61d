"""Work over many queues, bindings or messages is cut into turns, between which everything else goes on."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from time import thread_time

import pytest

from headgate.amqp import AmqpCodec
from headgate.amqp.content import make_content
from headgate.broker import Broker, PreconditionFailed, import_definitions
from headgate.broker.broker import STEPS
from headgate.store import InMemoryStore

QUEUES = 4_000
LONGEST_S = 0.1  # of CPU; it is below 10 ms on a machine with nothing else to do


class Turns:
    """A broker in memory, whose turns are taken when the test says so."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        store = InMemoryStore(self._calls.append)
        self.broker = Broker(
            store, AmqpCodec(), lambda _, call: self._calls.append(call), bound=sys.maxsize
        )
        self.vhost = self.broker.add_vhost("many")

    def run(self, work: Callable[[], object]) -> tuple[int, float]:
        """Do something, and all that follows from it; return the number of turns and the longest."""
        self._calls.append(lambda: work() and None)
        turns, longest = 0, 0.0
        while self._calls:
            began = thread_time()
            self._calls.popleft()()
            turns, longest = turns + 1, max(longest, thread_time() - began)
        return turns, longest

    def declare_queues(self) -> None:
        for number in range(QUEUES):
            self.vhost.declare_queue(f"q{number}", durable=True)
            self.vhost.bind("amq.topic", f"q{number}", f"a.{number}.#", {})
        self.run(self.broker.flush)


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_a_policy_comes_to_many_queues_in_turns(turns):
    turns.declare_queues()
    policies = turns.broker.policies
    count, longest = turns.run(lambda: policies.set("many", "p", "^q", {"max-length": 7}))
    assert {queue.definition.max_length for queue in turns.vhost.queues.values()} == {7}
    assert count > QUEUES // STEPS
    assert longest < LONGEST_S
    turns.run(lambda: policies.clear("many", "p"))
    assert {queue.definition.max_length for queue in turns.vhost.queues.values()} == {None}


def test_a_virtual_host_is_gone_at_once_and_its_contents_go_in_turns(turns):
    turns.declare_queues()
    broker, seen = turns.broker, []

    def delete() -> None:
        broker.take_steps(broker.delete_vhost_stepwise("many"), lambda: seen.append("done"))
        assert "many" not in broker.vhosts
        with pytest.raises(PreconditionFailed, match="still being deleted"):
            broker.add_vhost("many")

    count, longest = turns.run(delete)
    assert seen == ["done"]
    assert count > 2 * QUEUES // STEPS
    assert longest < LONGEST_S
    assert not [key for key in broker.store.read().definitions if "q1" in key[1]]
    assert not broker.add_vhost("many").queues


def test_the_queues_of_a_connection_that_is_gone_go_in_turns(turns):
    owner = object()
    for number in range(QUEUES):
        turns.vhost.declare_queue(f"own{number}", exclusive=True, connection=owner)
    count, longest = turns.run(lambda: turns.vhost.release(owner))
    assert not turns.vhost.queues
    assert count > QUEUES // STEPS
    assert longest < LONGEST_S


def test_a_purge_of_many_messages_is_short(turns):
    queue = turns.vhost.declare_queue("long")
    content = make_content(b"\x00\x04long", b"\x00\x00", b"body")
    for _ in range(200_000):
        queue.publish(content)
    counts: list[int] = []
    _, longest = turns.run(lambda: counts.append(queue.purge()))
    assert (counts, len(queue)) == ([200_000], 0)
    assert longest < LONGEST_S


def test_an_import_of_more_queues_than_the_limit_changes_nothing(turns):
    turns.vhost.declare_queue("old")
    turns.broker.parameters.set_vhost_limits("many", {"max-queues": 3})
    names = ("old", "new1", "new2", "new3")
    document = {"queues": [{"vhost": "many", "name": name} for name in names]}
    with pytest.raises(PreconditionFailed, match=r"has 1, the document adds 3, .* is 3"):
        import_definitions(turns.broker, document)
    assert set(turns.vhost.queues) == {"old"}
    document["queues"].pop()
    import_definitions(turns.broker, document)
    assert set(turns.vhost.queues) == {"old", "new1", "new2"}

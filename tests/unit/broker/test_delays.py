"""The window of delayed messages: all are published, each in its turn, and few are in memory."""

import math
import random
from collections import deque
from heapq import heappop, heappush

import pytest

from headgate.amqp import AmqpCodec
from headgate.amqp.content import make_content
from headgate.amqp.properties import encode_properties
from headgate.amqp.tables import short_text
from headgate.broker import Broker, delays
from headgate.store import InMemoryStore


class Machine:
    """A clock that is moved, timers, and callbacks that wait for their turn."""

    def __init__(self):
        self.now = 1_000
        self.timers = []
        self.posted = deque()
        self.store = InMemoryStore(self.posted.append)

    def call_later(self, seconds, call):
        heappush(self.timers, (self.now + seconds * 1000, len(self.timers), id(call), call))

    def turn(self):
        while self.posted:
            self.posted.popleft()()

    def pass_ms(self, span):
        end = self.now + span
        self.turn()
        while self.timers and self.timers[0][0] <= end:
            when, _, _, call = heappop(self.timers)
            self.now = max(self.now, when)
            call()
            self.turn()
        self.now = end

    def start(self):
        return Broker(self.store, AmqpCodec(), self.call_later, now_ms=lambda: int(self.now))


@pytest.fixture
def machine():
    return Machine()


def declare(broker):
    vhost = broker.vhosts["/"]
    vhost.declare_exchange("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})  # fmt: skip
    vhost.declare_queue("q", durable=True)
    vhost.bind("later", "q", "", {})
    return vhost


def message(body, delay):
    route = short_text("later") + short_text("")
    return make_content(route, encode_properties({"headers": {"x-delay": delay}, "delivery_mode": 2}), body)  # fmt: skip


def published(broker):
    queue = broker.vhosts["/"].queues["q"]
    found = []
    while (entry := queue.get()) is not None:
        queue.ack(entry)
        found.append(entry.message.body)
    return found


@pytest.fixture
def window(monkeypatch, full) -> int:
    """How many messages a page brings: everyday a small one, so that fewer messages need several."""
    if not full:
        monkeypatch.setattr(delays, "WINDOW", delays.WINDOW // 16)
        monkeypatch.setattr(delays, "TURN", delays.TURN // 16)
    return delays.WINDOW


@pytest.mark.parametrize("restarts", [False, True])
def test_many_messages_are_published_in_the_order_of_their_times(machine, window, restarts):
    chance = random.Random(18)
    broker = machine.start()
    vhost = declare(broker)
    count, plan = 5 * window, []
    for number in range(count):
        delay = chance.randrange(1, 60_000)
        plan.append((machine.now + delay, number))
        vhost.hold_back(message(b"%d" % number, delay))
        broker.flush()
        if number % 100 == 0:
            machine.pass_ms(5)
    machine.turn()
    assert broker.delays.count + len(broker.vhosts["/"].queues["q"]) == count
    assert len(broker.delays._window) <= 2 * window
    if restarts:
        machine.timers.clear()
        broker = machine.start()
    machine.pass_ms(30_000)
    # What arrives when the window is in use.
    vhost = broker.vhosts["/"]
    for number in range(count, count + 100):
        delay = chance.randrange(1, 40_000)
        plan.append((machine.now + delay, number))
        vhost.hold_back(message(b"%d" % number, delay))
        broker.flush()
    machine.pass_ms(100_000)
    assert [int(body) for body in published(broker)] == [number for _, number in sorted(plan)]
    assert broker.delays.count == 0
    assert machine.store.read().delayed == 0


def test_large_messages_do_not_fill_the_memory(machine):
    broker = machine.start()
    vhost = declare(broker)
    for _ in range(100):
        vhost.hold_back(message(bytes(1 << 20), 1_000))
        broker.flush()
    assert sum(len(found.record) for found in broker.delays._window) < 20 << 20
    machine.pass_ms(10_000)
    assert len(published(broker)) == 100


@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [
        (5, 5),
        (2.7, 2),
        (2**63 - 1, delays.MOST_MS),
        (math.inf, delays.MOST_MS),
        (-math.inf, 0),
        (math.nan, 0),
        (-5, 0),
        (True, 0),
        ("5", 0),
    ],
)
def test_the_delay_of_a_message_is_a_time_that_can_be_stored(delay, milliseconds):
    assert delays.delay_of(message(b"", delay)) == milliseconds

"""Connections that sent much take turns, and one that sent little is served between them."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from headgate.amqp import AmqpCodec, connection
from headgate.amqp.connection import Connection
from headgate.amqp.handshake import AmqpListener
from headgate.amqp.methods import PREAMBLE
from headgate.amqp.turns import LOOK_BYTES, SLICE_S
from headgate.broker import Broker
from headgate.store import InMemoryStore

HEARTBEAT = b"\x08\0\0\0\0\0\0\xce"


class Peer(asyncio.Transport):
    """A client whose bytes the test hands over, as far as they are read."""

    def __init__(self, listener: AmqpListener) -> None:
        super().__init__()
        self.answers: list[bytes] = []
        self.is_read = True
        self.connection = Connection(listener)
        self.connection.connection_made(self)
        self.send(PREAMBLE)

    def send(self, data: bytes) -> None:
        assert self.is_read
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def write(self, data: bytes) -> None:
        self.answers.append(data)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


@pytest.fixture
def make_peer(monkeypatch):
    clock = count(step=SLICE_S)  # every look at it ends a slice
    monkeypatch.setattr(connection, "perf_counter", lambda: next(clock))
    listeners: list[AmqpListener] = []

    def make() -> Peer:
        if not listeners:
            loop = asyncio.get_running_loop()
            broker = Broker(InMemoryStore(loop.call_soon), AmqpCodec(), loop.call_later)
            listeners.append(AmqpListener(broker, "RabbitMQ", "4.0.5"))
        return Peer(listeners[0])

    return make


async def take_turns(*peers: Peer) -> list[int]:
    """The turns after which each of the connections reads on."""
    ends: dict[Peer, int] = {}
    for turn in count(1):
        await asyncio.sleep(0)
        ends |= {peer: turn for peer in peers if peer.is_read and peer not in ends}
        if len(ends) == len(peers):
            return [ends[peer] for peer in peers]
    raise AssertionError


def test_who_sends_little_is_answered_while_others_wait_for_their_next_slice(make_peer):
    async def run() -> None:
        size = len(make_peer().connection.listener.buffer)
        floods = [make_peer() for _ in range(3)]
        for flood in floods:
            flood.send(HEARTBEAT * (size // len(HEARTBEAT)))
            assert not flood.is_read
        assert make_peer().answers  # its greeting
        slices = size // LOOK_BYTES
        assert await take_turns(*floods) == [3 * slices - 2, 3 * slices - 1, 3 * slices]

    asyncio.run(run())


def test_the_next_slice_waits_while_its_connection_is_blocked(make_peer):
    async def run() -> None:
        flood = make_peer()
        flood.send(HEARTBEAT * 4_000)
        await asyncio.sleep(0)
        flood.connection.listener.broker.alarms.set("memory", True)
        flood.connection.is_blocked = True
        for _ in range(20):
            await asyncio.sleep(0)
        assert flood.connection.is_behind
        assert not flood.is_read
        flood.connection.listener.broker.alarms.set("memory", False)
        await take_turns(flood)
        assert not flood.connection.is_behind

    asyncio.run(run())

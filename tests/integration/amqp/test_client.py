"""The client of the shovel against peers that are not what they seem."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from headgate.amqp import AmqpClient, client
from headgate.amqp.methods import FRAME, PREAMBLE, method_frame
from headgate.errors import BrokerUnreachable, HeadgateError, PeerClosed

START = method_frame(0, "connection.start", 0, 9, {}, b"PLAIN", b"en_US")
# What a client sends ends with these bytes, and what a broker answers.
GREETING = (
    (PREAMBLE, START),
    (b"en_US\xce", method_frame(0, "connection.tune", 10, 0, 60)),
    (b"/\0\0\xce", method_frame(0, "connection.open-ok", "")),
    (b"\0\x14\0\x0a\0\xce", method_frame(1, "channel.open-ok", b"")),
    (b"\0\x55\0\x0a\0\xce", method_frame(1, "confirm.select-ok")),
)


async def meet(steps: int, sent: bytes) -> None:
    """Consume from a peer that sends these bytes after some steps of the greeting, and listens no more."""

    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for awaited, reply in GREETING[:steps]:
            await reader.readuntil(awaited)
            writer.write(reply)
        writer.write(sent)
        with suppress(OSError):
            while await reader.read(1_000):
                pass
            writer.close()
            await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with asyncio.timeout(30):
            async with await AmqpClient.connect(f"amqp://u:hidden@127.0.0.1:{port}/") as made:
                await consume(made)
    finally:
        server.close()
        await ended.wait()


async def consume(made: AmqpClient) -> None:
    async for _ in made.consume("q", prefetch=1):
        pass


@pytest.mark.parametrize(
    "sent",
    [
        FRAME.pack(1, 0, 4) + b"\0\x63\0\1\xce",
        FRAME.pack(1, 0, 2) + b"\0\1\xce",
        FRAME.pack(1, 0, 4_000_000_000),
        FRAME.pack(1, 0, len(START) - 9) + START[7:-2] + b"\xce",
    ],
    ids=["unknown method", "half a method", "4 GB", "half a table"],
)
@pytest.mark.parametrize("steps", [0, len(GREETING)], ids=["handshake", "open"])
def test_what_is_no_amqp_ends_the_connection(sent: bytes, steps: int) -> None:
    with pytest.raises(PeerClosed, match="501 the peer sent"):
        asyncio.run(meet(steps, sent))


def test_a_message_without_end_is_not_collected() -> None:
    deliver = method_frame(1, "basic.deliver", "t", 1, False, "", "q")
    header = b"\0\x3c\0\0" + (1 << 60).to_bytes(8, "big") + b"\0\0"
    sent = deliver + FRAME.pack(2, 1, len(header)) + header + b"\xce"
    with pytest.raises(PeerClosed, match="a message of 1152921504606846976 bytes"):
        asyncio.run(meet(len(GREETING), sent))


def test_a_peer_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "HEARTBEAT_S", 1)
    with pytest.raises(BrokerUnreachable, match="silent for") as problem:
        asyncio.run(meet(len(GREETING), b""))
    assert "hidden" not in str(problem.value)


async def leave_unread() -> None:
    """Close a connection whose peer reads nothing of what was sent."""
    may_end = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for awaited, reply in GREETING:
            await reader.readuntil(awaited)
            writer.write(reply)
        await may_end.wait()
        writer.transport.abort()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(30):
        made = await AmqpClient.connect(f"amqp://127.0.0.1:{port}/")
        made._writer.write(bytes(20_000_000))
        await made.close()
    may_end.set()
    server.close()


def test_a_peer_that_does_not_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 0.2)
    asyncio.run(leave_unread())


@pytest.mark.parametrize("host", ["x" * 70, "a..b", "[::1", "h:99999", "\udcff"])
def test_a_host_that_cannot_be_is_no_traceback(host: str) -> None:
    with pytest.raises(HeadgateError) as problem:
        asyncio.run(AmqpClient.connect(f"amqp://u:hidden@{host}/"))
    assert "hidden" not in str(problem.value)

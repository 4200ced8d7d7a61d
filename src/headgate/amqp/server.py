"""An AMQP server on a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from headgate.amqp.connection import Connection
from headgate.amqp.handshake import PRODUCT, VERSION, AmqpListener, Authenticate
from headgate.broker import Broker

GUEST: Final = "guest"
BACKLOG: Final = 512


def allow_guest(user: str, password: str, address: str) -> bool:
    """Let `guest` in with its well-known password, from this machine only."""
    return user == password == GUEST and is_loopback(address)


def is_loopback(address: str) -> bool:
    try:
        return ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return address == ""  # a Unix socket


class AmqpServer:
    """Accepts AMQP clients for a broker; `product` and `version` are what it says of itself."""

    def __init__(
        self,
        broker: Broker,
        authenticate: Authenticate = allow_guest,
        *,
        product: str = PRODUCT,
        version: str = VERSION,
    ) -> None:
        self._listener = AmqpListener(broker, authenticate, product, version)
        self._servers: list[asyncio.Server] = []

    async def listen(self, host: str, port: int) -> int:
        """Listen on a host and port, 0 for any free one; return the port."""
        loop = asyncio.get_running_loop()
        make: Callable[[], Connection] = lambda: Connection(self._listener)  # noqa: E731
        server = await loop.create_server(make, host, port, backlog=BACKLOG)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        return len(self._listener.connections)

    async def close(self) -> None:
        """Stop accepting, and close all connections."""
        for server in self._servers:
            server.close()
        for connection in list(self._listener.connections):
            connection.close("broker forced connection closure with reason 'shutdown'")
            connection.transport.close()
        for server in self._servers:
            await server.wait_closed()

"""An AMQP server on a socket."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Final

from headgate.amqp.connection import Connection
from headgate.amqp.handshake import PRODUCT, VERSION, AmqpListener
from headgate.amqp.login import CertificateName
from headgate.broker import Broker

BACKLOG: Final = 512
GRACE_S: Final = 0.2  # how long peers may take to read the last frames


class AmqpServer:
    """Accepts AMQP clients for a broker; `product` and `version` are told to clients."""

    def __init__(
        self,
        broker: Broker,
        *,
        product: str = PRODUCT,
        version: str = VERSION,
    ) -> None:
        self._listener = AmqpListener(broker, product, version)
        self._servers: list[asyncio.Server] = []

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen on a host and port, 0 for any free one; return the port."""
        loop = asyncio.get_running_loop()
        make: Callable[[], Connection] = lambda: Connection(self._listener)  # noqa: E731
        in_time = None if tls is None else self._listener.login_s
        server = await loop.create_server(
            make, host, port, backlog=BACKLOG, ssl=tls, ssl_handshake_timeout=in_time
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        return len(self._listener.connections)

    def set_consumer_timeout(self, timeout_ms: int | None) -> None:
        """Set the time within which deliveries must be acknowledged, unless consumer or queue set another; None: no limit."""
        self._listener.broker.consumer_timeout_ms = timeout_ms
        self._listener.timeouts.use(timeout_ms)

    def set_login(self, timeout_s: float, certificate_name: CertificateName) -> None:
        """Set how long a login may take, and the part of a certificate that names its user."""
        self._listener.login_s = timeout_s
        self._listener.certificate_name = certificate_name

    async def close(self) -> None:
        """Stop accepting, and close all connections; peers that do not read what they are sent are cut off."""
        self._listener.timeouts.stop()
        for server in self._servers:
            server.close()
        left = self._listener.connections
        for connection in list(left):
            connection.close("broker forced connection closure with reason 'shutdown'")
            connection.transport.close()
        # Not `wait_closed`: since Python 3.12 it waits for every peer, also for one that has not shaken hands.
        deadline = time.monotonic() + GRACE_S
        while left and time.monotonic() < deadline:
            await asyncio.sleep(GRACE_S / 20)
        for connection in list(left):
            connection.transport.abort()
        await asyncio.sleep(0)

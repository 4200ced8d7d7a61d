"""HTTP on a socket, in the event loop of the broker."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

GRACE_S: Final = 1.0  # how long requests may take to end when the broker stops
KEEP_ALIVE_S: Final = 75
BACKLOG: Final = 512
REQUEST_S: Final = 20.0  # a connection that has not sent the head of a request by then is cut off
MOST_CONNECTIONS: Final = 2_000


class _ImpatientProtocol(H11Protocol):
    """A connection that must send a request soon: one that sends a byte a minute would hold its place for ever."""

    _answered: object = None  # the request before the one that is waited for

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if (
            self.cycle is not None
            and self.cycle.response_complete
            and self.cycle is not self._answered
        ):
            self._wait_for_request()  # these bytes belong to the head of the next request

    def _wait_for_request(self) -> None:
        self._answered = self.cycle
        loop = asyncio.get_running_loop()
        loop.call_later(REQUEST_S, self._cut_off_silent, self.cycle)

    def _cut_off_silent(self, answered: object) -> None:
        if self.cycle is answered:
            self.transport.abort()


class HttpListener:
    """Serves an app from `listen` to `close`; signals, logs and processes are left to the broker."""

    def __init__(self, app: ASGIApp) -> None:
        self._config = uvicorn.Config(
            app,
            http=_ImpatientProtocol,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            limit_concurrency=MOST_CONNECTIONS,
        )
        self._server = uvicorn.Server(self._config)

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen on a host and port, 0 for any free one; return the port."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._config.load()
        self._config.ssl = tls
        self._server.lifespan = self._config.lifespan_class(self._config)
        await self._server.startup(sockets=[listening])
        self._ticks = asyncio.create_task(self._server.main_loop())  # it also sets the header Date
        return int(listening.getsockname()[1])

    async def close(self) -> None:
        """Stop accepting; let requests end, and cut off those that do not."""
        self._ticks.cancel()
        for server in self._server.servers:
            server.close()
        state = self._server.server_state
        for connection in list(state.connections):
            connection.shutdown()
        if state.tasks:
            _, late = await asyncio.wait(list(state.tasks), timeout=GRACE_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=GRACE_S)
        for connection in list(state.connections):
            if (transport := getattr(connection, "transport", None)) is not None:
                transport.abort()

"""Turns for connections that sent much: their bytes are handled in slices of time, and other work goes on in between.

A small amount is handled when it is read, so it waits for one slice at most, however much other connections send.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.amqp.connection import Connection

LITTLE: Final = 16_384  # bytes, up to which what was read is handled at once
SLICE_S: Final = 0.001
LOOK_BYTES: Final = 4_096  # bytes handled between two looks at the clock


class Turns:
    """The connections that wait for their next slice, in the order in which they get it."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Connection, None] = OrderedDict()

    def add(self, connection: Connection) -> None:
        """Give a connection a slice after those that wait already."""
        if not self._waiting:
            self._call_soon()
        self._waiting[connection] = None

    def _take(self) -> None:
        connection, _ = self._waiting.popitem(last=False)
        if self._waiting:
            self._call_soon()
        if _may_go_on(connection):
            connection.handle(b"")
            read_on(connection)

    def _call_soon(self) -> None:
        # The event loop looks at its sockets before it takes the next slice.
        asyncio.get_running_loop().call_soon(self._take)


def read_on(connection: Connection) -> None:
    """Handle received bytes in slices, and read more when that is done."""
    if not _may_go_on(connection):
        return
    if connection.is_behind:
        connection.listener.turns.add(connection)
    else:
        connection.transport.resume_reading()


def wait(connection: Connection) -> None:
    """Stop handling and reading what the peer sends, until `go_on`."""
    connection.is_waiting = True
    connection.transport.pause_reading()


def go_on(connection: Connection) -> None:
    """Handle what the peer sent since `wait`, and read on."""
    connection.is_waiting = False
    connection.handle(b"")
    read_on(connection)


def _may_go_on(connection: Connection) -> bool:
    return not (connection.transport.is_closing() or connection.is_waiting or connection.is_blocked)

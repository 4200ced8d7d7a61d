"""What alarms do to clients: one that publishes during an alarm is told, and not read from until all alarms are cleared.

What it has sent so far is handled; the rest stays in its socket, so nothing is lost. Clients that only consume notice nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.amqp.connection import Connection
    from headgate.amqp.handshake import AmqpListener


def receive_during_alarm(connection: Connection, data: bytes) -> None:
    """Handle what a client sent, and stop reading if that was something to publish."""
    before = _published(connection)
    connection.receive(data)
    is_publishing = _published(connection) != before or any(
        channel.arriving is not None for channel in connection.channels.values()
    )
    if is_publishing and not connection.is_blocked and not connection.transport.is_closing():
        connection.is_blocked = True
        connection.transport.pause_reading()
        if connection.peer_can("connection.blocked"):
            connection.send(0, "connection.blocked", connection.broker.alarms.reason)
            connection.flush()


def alarms_changed(listener: AmqpListener) -> None:
    """Publishers are to be stopped from now on, or may go on."""
    listener.is_blocking = bool(listener.broker.alarms.active)
    if listener.is_blocking:
        return
    for connection in list(listener.connections):
        if connection.is_blocked:
            connection.is_blocked = False
            connection.handshake.heard()
            if connection.peer_can("connection.blocked"):
                connection.send(0, "connection.unblocked")
                connection.flush()
            connection.read_on()


def _published(connection: Connection) -> int:
    return sum(channel.published for channel in connection.channels.values())

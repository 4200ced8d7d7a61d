"""Stops reading from clients that publish during an alarm, or faster than the store writes, or leave answers unread.

What it has sent so far is handled; the rest stays in its socket, so nothing is lost. Clients that only consume notice nothing.
An alarm is told to the client. A store that is behind is not: that lasts as long as a commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.amqp.turns import go_on, read_on, wait

if TYPE_CHECKING:
    from headgate.amqp.connection import Connection
    from headgate.amqp.handshake import AmqpListener


# In bytes. Answers are small, except those to basic.get and returned messages.
MOST_ANSWERS: Final = 4 << 20


def receive_during_alarm(connection: Connection, data: bytes) -> None:
    """Handle what a client sent, and stop reading if it published."""
    before = _published(connection)
    connection.receive(data)
    is_publishing = _published(connection) != before or any(
        channel.arriving is not None for channel in connection.channels.values()
    )
    if is_publishing and not connection.is_blocked and not connection.transport.is_closing():
        connection.is_blocked = True
        connection.transport.pause_reading()
        _tell_alarm(connection)


def _tell_alarm(connection: Connection) -> None:
    alarms = connection.broker.alarms
    if alarms.active and not connection.is_told and connection.peer_can("connection.blocked"):
        connection.is_told = True
        connection.send(0, "connection.blocked", alarms.reason)
        connection.flush()


def alarms_changed(listener: AmqpListener) -> None:
    """Stop publishers, or let them go on, as the alarms say now."""
    alarms = listener.broker.alarms
    listener.is_blocking = alarms.stops_publishers
    for connection in [c for c in listener.connections if c.is_blocked]:
        if connection.is_told and not alarms.active:
            connection.is_told = False
            connection.send(0, "connection.unblocked")
            connection.flush()
        if listener.is_blocking:
            _tell_alarm(connection)
        else:
            connection.is_blocked = False
            connection.handshake.heard()
            read_on(connection)


def _published(connection: Connection) -> int:
    channels = connection.channels.values()
    return sum(channel.published + len(channel.transaction or ()) for channel in channels)


def limit_answers(connection: Connection) -> None:
    """Stop handling what a client sends while it has left too many answers unread."""
    connection.flush()
    if connection.transport.get_write_buffer_size() < MOST_ANSWERS:
        connection.answered = 0
    elif not connection.is_waiting and connection.handshake.is_open:
        wait(connection)


def go_on_if_read(connection: Connection) -> None:
    """Go on with a client that had left its answers unread, if it has read them."""
    if connection.answered:
        connection.answered = 0
        if connection.is_waiting and connection.handshake.is_open:
            go_on(connection)

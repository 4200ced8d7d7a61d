"""The beginning of a connection: greeting, login, limits, virtual host; and heartbeats from then on."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate import __version__
from headgate.amqp.blocking import alarms_changed
from headgate.amqp.content import FRAME_MAX
from headgate.amqp.login import CertificateName, Peer, log_in
from headgate.amqp.methods import HEARTBEAT, PREAMBLE
from headgate.amqp.permissions import Permissions
from headgate.amqp.reply_codes import ConnectionFailed
from headgate.amqp.timeouts import AckTimeouts
from headgate.amqp.turns import Turns, go_on, wait
from headgate.broker import Broker, Login, LoginRefused, NotAllowed, OpenConnection

if TYPE_CHECKING:
    from headgate.amqp.connection import Connection

log: Final = logging.getLogger(__name__)

# Clients choose their behaviour by product and version.
PRODUCT: Final = "RabbitMQ"
VERSION: Final = "4.0.5"
CHANNEL_MAX: Final = 2_047
FRAME_MIN: Final = 4_096
HEARTBEAT_S: Final = 60
READ_BYTES: Final = 1 << 16
LOGIN_S: Final = 10  # after this time, a peer that has not logged in is cut off
CAPABILITIES: Final = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


@dataclass(eq=False)
class AmqpListener:
    """The settings and state that all connections of a server share."""

    broker: Broker
    product: str
    version: str
    login_s: float = LOGIN_S
    certificate_name: CertificateName = "distinguished_name"  # what mechanism EXTERNAL calls a user
    connections: set[Connection] = field(default_factory=set)
    timeouts: AckTimeouts = field(init=False)
    turns: Turns = field(default_factory=Turns)
    # The buffer into which every connection is read, one at a time.
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))
    unwritten: int = 0  # bytes of deliveries since the last write
    is_blocking: bool = False  # while there is an alarm

    def __post_init__(self) -> None:
        self.timeouts = AckTimeouts(self)
        self.broker.alarms.on_change.append(lambda: alarms_changed(self))

    @property
    def server_properties(self) -> dict[str, Any]:
        return {
            "product": self.product,
            "version": self.version,
            "platform": "Python",
            "information": "Headgate, a message broker",
            "headgate": __version__,
            "cluster_name": "headgate",
            "capabilities": CAPABILITIES,
        }


class Handshake:
    """The state of a connection between the first byte and `connection.open`, and its heartbeats."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._expected = "preamble"
        self._heartbeat = 0
        self._mechanism = ""
        self.name = ""  # of the connection, when it is open
        self._heard_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(
            connection.listener.login_s, self._too_late
        )

    @property
    def is_first(self) -> bool:
        return self._expected == "preamble"

    @property
    def is_open(self) -> bool:
        return self._expected == "nothing"

    def heard(self) -> None:
        self._heard_at = time.monotonic()

    def end(self) -> None:
        """Stop waiting for anything."""
        for waiting in (self._timer, self._expiry, self._task):
            if waiting is not None:
                waiting.cancel()

    def greet(self, data: bytes) -> bytes:
        """Answer the first eight bytes; return those behind them."""
        connection = self._connection
        if not PREAMBLE.startswith(data[: len(PREAMBLE)]):
            connection.transport.write(PREAMBLE)
            connection.transport.close()
            return b""
        if len(data) < len(PREAMBLE):
            return data
        self._expected = "connection.start-ok"
        properties = connection.listener.server_properties
        mechanisms = " ".join(self._peer().mechanisms).encode()
        connection.send(0, "connection.start", 0, 9, properties, mechanisms, b"en_US")
        return data[len(PREAMBLE) :]

    def method(self, name: str, arguments: list[Any]) -> None:
        """A method of the class connection."""
        if name != self._expected:
            raise ConnectionFailed(503, f"expected {self._expected}, got {name}")
        match name:
            case "connection.start-ok":
                self._start_ok(*arguments)
            case "connection.tune-ok":
                self._tune_ok(*arguments)
            case _:
                self._open(*arguments)

    def _start_ok(
        self, properties: dict[str, Any], mechanism: str, response: bytes, locale: str
    ) -> None:
        connection = self._connection
        connection.client_properties = properties
        self._mechanism = mechanism
        self._task = asyncio.create_task(self._log_in(response))
        wait(connection)

    async def _log_in(self, response: bytes) -> None:
        """Verify the client, which may take a while, and continue the handshake."""
        connection = self._connection
        access, name_from = connection.broker.access, connection.listener.certificate_name
        try:
            login = await log_in(access, self._peer(), self._mechanism, response, name_from)
        except LoginRefused as refusal:
            log.warning("login refused", extra={"peer": self._peer().address, "why": str(refusal)})
            self._refuse_login()
            return
        except Exception as problem:
            connection.fail(problem)
            return
        self._take(login)
        self._expected = "connection.tune-ok"
        connection.send(0, "connection.tune", CHANNEL_MAX, FRAME_MAX, HEARTBEAT_S)
        go_on(connection)

    def _take(self, login: Login) -> None:
        """Give the connection to a user, until the login expires."""
        self._connection.login = login
        if self._expiry is not None:
            self._expiry.cancel()
        if login.expires is not None:
            left = max(0.0, login.expires - time.time())
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(left, self._connection.close, "credential expired")

    def _peer(self) -> Peer:
        transport = self._connection.transport
        name = transport.get_extra_info("peername")
        address = str(name[0]) if isinstance(name, tuple) else ""
        return Peer(address, transport.get_extra_info("peercert") or None)

    def _refuse_login(self) -> None:
        connection = self._connection
        if not connection.peer_can("authentication_failure_close"):
            connection.transport.close()
            return
        connection.forget_method()
        connection.fail(
            ConnectionFailed(
                403,
                f"Login was refused using authentication mechanism {self._mechanism}. For details see the broker "
                "logfile.",
            )
        )

    def update_secret(self, secret: bytes) -> None:
        """Replace the token of the login by a new one; a password needs no renewal."""
        if self._connection.login.grants is None:
            self._connection.send(0, "connection.update-secret-ok")
            return
        self._task = asyncio.create_task(self._renew(secret.decode(errors="replace")))
        wait(self._connection)

    async def _renew(self, token: str) -> None:
        connection = self._connection
        name = connection.login.name
        try:
            login = await connection.broker.access.authenticate(name, token, self._peer().address)
            if login.name != name or login.grants is None:
                raise LoginRefused(f"a token of '{login.name}' for a connection of '{name}'")
        except LoginRefused as refusal:
            log.warning("new secret refused", extra={"user": name, "why": str(refusal)})
            connection.fail(NotAllowed("New secret was refused by one of the backends"))
            return
        except Exception as problem:
            connection.fail(problem)
            return
        self._take(login)
        connection.permissions.renew(login)
        connection.forget_routes()
        connection.send(0, "connection.update-secret-ok")
        go_on(connection)

    def _tune_ok(self, channel_max: int, frame_max: int, heartbeat: int) -> None:
        if frame_max and not FRAME_MIN <= frame_max <= FRAME_MAX:
            raise ConnectionFailed(
                530, f"frame_max={frame_max} is not between {FRAME_MIN} and {FRAME_MAX}"
            )
        if channel_max > CHANNEL_MAX:
            raise ConnectionFailed(530, f"channel_max={channel_max} is more than {CHANNEL_MAX}")
        connection = self._connection
        connection.frame_max = frame_max or FRAME_MAX
        connection.channel_max = channel_max or CHANNEL_MAX
        self._heartbeat = heartbeat
        self._expected = "connection.open"

    def _open(self, name: str, *_: Any) -> None:
        connection = self._connection
        connection.broker.sessions.admit(connection, connection.login, name)
        connection.vhost = connection.broker.vhosts[name]
        connection.permissions = Permissions(connection.login, connection.vhost)
        self._expected = "nothing"
        if self._timer is not None:
            self._timer.cancel()
        self._register()
        connection.send(0, "connection.open-ok", "")
        if self._heartbeat:
            self._beat_later()

    def _register(self) -> None:
        """Register the connection with the broker."""
        connection = self._connection
        host, port = _address(connection.transport.get_extra_info("sockname"))
        peer_host, peer_port = _address(connection.transport.get_extra_info("peername"))
        opened = OpenConnection(
            client=connection,
            user=connection.login.name,
            vhost=connection.vhost.name,
            host=host,
            port=port,
            peer_host=peer_host,
            peer_port=peer_port,
            connected_at=connection.broker.now(),
            protocol="AMQP 0-9-1",
            mechanism=self._mechanism,
            heartbeat=self._heartbeat,
            channel_max=connection.channel_max,
            frame_max=connection.frame_max,
            tls=connection.transport.get_extra_info("ssl_object") is not None,
            properties=connection.client_properties,
        )
        self.name = opened.name
        connection.broker.connections[self.name] = opened

    def _beat_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._heartbeat / 2, self._beat)

    def _beat(self) -> None:
        connection = self._connection
        silence = time.monotonic() - self._heard_at
        if silence > 2 * self._heartbeat and not connection.is_blocked:  # then it is not heard
            connection.transport.abort()
            return
        connection.write(HEARTBEAT)
        connection.flush()
        self._beat_later()

    def _too_late(self) -> None:
        connection = self._connection
        if connection in connection.listener.connections:  # TLS has shaken hands
            connection.transport.abort()


def _address(name: object) -> tuple[str, int]:
    """Host and port of one end; a Unix socket has none."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else ("unix", 0)

"""One running broker: a directory, its lock, its store, and the sockets in front of it."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from headgate.amqp import AmqpCodec, AmqpServer
from headgate.broker import Broker, StreamHome
from headgate.errors import CannotListen, MissingExtra, SettingsError
from headgate.server.configuration import ServerOptions
from headgate.server.data_directory import STORE_FILE, STREAMS, DirectoryLock
from headgate.server.security import TlsContext, set_up_access
from headgate.shovels import DynamicShovels
from headgate.store import InMemoryStore, SqliteStore, Store

if TYPE_CHECKING:
    from headgate.web import HttpListener

log: Final = logging.getLogger("headgate.server")

# Threads that wait for Python's lock get it after this time: the store must not wait long for a busy broker.
SWITCH_S: Final = 0.001


class Server:
    """A broker and its sockets, in the event loop that starts it."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.amqp_port = options.amqp_port
        self.http_port: int | None = None  # None where HTTP is not served
        self.tls_port: int | None = None  # None where there is no certificate
        self._tls: TlsContext | None = None
        self._http: HttpListener | None = None
        self._lock: DirectoryLock | None = None

    async def start(self) -> None:
        """Open the store and listen."""
        loop = asyncio.get_running_loop()
        sys.setswitchinterval(SWITCH_S)
        self._store = self._open_store(loop)
        try:
            # Without a directory, paging out long queues would free no memory.
            bound = self.options.page_out_after if self.options.data else sys.maxsize
            data = self.options.data
            streams = StreamHome(data and data / STREAMS, loop.call_soon_threadsafe)
            self.broker = Broker(
                self._store, AmqpCodec(), loop.call_later, bound=bound, stream_home=streams
            )
        except BaseException:
            self._release()
            raise
        self.broker.counts_all_returns = _version(self.options.version) < (4, 3)
        self.broker.statistics.start()
        self.shovels = DynamicShovels(self.broker)
        self._amqp = AmqpServer(
            self.broker, product=self.options.product, version=self.options.version
        )
        try:
            self._apply()
            set_up_access(self.broker, self.options)
            self.broker.alarms.watch(self.options.data, loop.call_later)
            await self._listen_for_amqp()
            await self._listen_for_tls()
            await self._listen_for_http()
            self.shovels.start(_own_address(self.options.host, self.amqp_port))
        except BaseException:
            await self._amqp.close()
            self.broker.statistics.stop()
            self.broker.close()
            self._release()
            raise
        ports = {"AMQP": self.amqp_port, "AMQPS": self.tls_port, "HTTP": self.http_port}
        for protocol, port in ports.items():
            if port is not None:
                log.info(
                    "listening",
                    extra={"protocol": protocol, "host": self.options.host, "port": port},
                )

    async def _listen_for_amqp(self) -> None:
        host, port = self.options.host, self.options.amqp_port
        with _naming_option(host, port, "--amqp-port"):
            self.amqp_port = await self._amqp.listen(host, port)

    async def _listen_for_tls(self) -> None:
        """Serve AMQP over TLS, if there is a certificate."""
        options = self.options
        if options.tls_certificate is None:
            if options.http_tls:
                raise SettingsError("http.tls needs tls.certificate: a PEM file")
            return
        self._tls = TlsContext(options)
        host, port = options.host, options.tls_port
        with _naming_option(host, port, "--set tls.port=…"):
            self.tls_port = await self._amqp.listen(host, port, self._tls.context)

    async def _listen_for_http(self) -> None:
        """Serve the API and the pages, if their packages are installed."""
        options = self.options
        if options.http_port is None:
            return
        try:
            from headgate.insights import ListeningPort, NodeOptions
            from headgate.web import HttpListener, Site, make_app, make_pages
        except ImportError:
            log.info("no HTTP: %s", MissingExtra("server", "the HTTP API"))
            return
        node = NodeOptions(
            product=options.product,
            version=options.version,
            data=options.data,
            certificates=lambda: {} if self._tls is None else self._tls.expiries,
        )
        pages = make_pages(Site(options.data, options.database, self.broker, node))
        app = make_app(
            self.broker,
            node=node,
            pages=pages,
            list_shovels=self._list_shovels,
            database=options.database,
        )
        self._http = HttpListener(app)
        tls = self._tls.context if self._tls is not None and options.http_tls else None
        with _naming_option(options.host, options.http_port, "--http-port"):
            self.http_port = await self._http.listen(options.host, options.http_port, tls)
        node.listeners.append(ListeningPort("amqp", options.host, self.amqp_port))
        if self.tls_port is not None:
            node.listeners.append(ListeningPort("amqp/ssl", options.host, self.tls_port, tls=True))
        protocol = "https" if options.http_tls else "http"
        listener = ListeningPort(protocol, options.host, self.http_port, options.http_tls)
        node.listeners.append(listener)

    def _list_shovels(self) -> list[dict[str, Any]]:
        return [shovel.to_json() for shovel in self.shovels.states()]

    def reconfigure(self, options: ServerOptions) -> None:
        """Apply a changed configuration, as far as that is possible while the broker runs."""
        changes = self.options.changes(options)
        for name, is_live in changes.items():
            facts = {"before": getattr(self.options, name), "after": getattr(options, name)}
            what = "changed" if is_live else "changed in the file: start the broker again"
            log.info("setting %s", what, extra={"setting": name, **facts})
        if not changes:
            log.info("configuration read again: nothing changed")
        live = {name: getattr(options, name) for name, is_live in changes.items() if is_live}
        self.options = replace(self.options, **live)
        if "log_level" in live:
            logging.getLogger().setLevel(self.options.log_level.upper())
        self._apply()
        self._reload_tls()

    def _reload_tls(self) -> None:
        """Read certificates again, which are often renewed in place; keep the old ones if the new ones are invalid."""
        if self._tls is not None:
            try:
                self._tls.load(self.options)
            except SettingsError as problem:
                log.error("certificates stay as they were: %s", problem)

    def _apply(self) -> None:
        """Apply the settings that may change while the broker runs."""
        timeout_ms = self.options.consumer_timeout // timedelta(milliseconds=1)
        self._amqp.set_consumer_timeout(timeout_ms or None)
        self._amqp.set_login(
            self.options.handshake_timeout.total_seconds(),
            self.options.certificate_name,  # type: ignore[arg-type]  # checked by the options
        )
        most = self.options.max_connections
        self.broker.sessions.most = -1 if most is None else most
        self.broker.access.loopback_users = frozenset(self.options.loopback_users)
        self.broker.alarms.limit(self.options.alarms_memory, self.options.alarms_disk_free)

    async def stop(self) -> None:
        """Close connections, commit, and release the directory."""
        log.info("stopping: closing connections", extra={"connections": self._amqp.connections})
        await self.shovels.close()
        if self._http is not None:
            await self._http.close()
        await self._amqp.close()
        self.broker.alarms.stop()
        self.broker.statistics.stop()
        self.broker.close()
        self._release()
        log.info("stopped")

    def _open_store(self, loop: asyncio.AbstractEventLoop) -> Store:
        data = self.options.data
        if data is None:
            return InMemoryStore(loop.call_soon)
        if data.exists() and not data.is_dir():
            raise SettingsError(f"{data} is not a directory; name one for the data of the broker")
        data.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(data)
        try:
            return SqliteStore(
                data / STORE_FILE,
                loop.call_soon_threadsafe,
                synchronous=self.options.synchronous,  # type: ignore[arg-type]  # checked by the options
                on_trouble=lambda problem: self.broker.alarms.set("store", problem is not None),
            )
        except BaseException:
            self._lock.release()
            raise

    def _release(self) -> None:
        self._store.close()
        if self._lock is not None:
            self._lock.release()


@contextmanager
def _naming_option(host: str, port: int, option: str) -> Iterator[None]:
    """Turn a failure to listen into an error that names the option for another port."""
    try:
        yield
    except OSError as problem:
        advice = f"give another port with {option}; 0 takes a free one"
        raise CannotListen.because(problem, host, port, advice) from problem


def _own_address(host: str, port: int) -> str:
    """Where this process reaches its own listener."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The fastest event loop that is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()

"""A real broker inside a test, in a thread of its own, on a free port of this machine."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from headgate.errors import MissingExtra
from headgate.server import Server, ServerOptions, new_event_loop

_Result = TypeVar("_Result")


class RunningBroker:
    """A broker that runs from `with Broker() as broker:` to the end of the block; `broker.url` is its address.

    Without a directory everything is in memory and gone at the end. With one, another broker goes on where this one stopped.
    Settings are those of `headgate serve`: `Broker(consumer_timeout="2s")`.
    """

    def __init__(self, data: Path | None = None, **settings: Any) -> None:
        self._options = ServerOptions(
            **{"data": data, "amqp_port": 0, "http_port": 0, "tls_port": 0, **settings}
        )
        self._ready = threading.Event()
        self._problem: BaseException | None = None
        self.port = 0
        self.http_port: int | None = None
        self.tls_port: int | None = None

    def __enter__(self) -> RunningBroker:
        self._thread = threading.Thread(target=self._run, name="headgate-test-broker", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            self._thread.join()
            raise self._problem
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with warnings.catch_warnings():
            # Of a peer that has not ended its TLS handshake. Where it is an error, uvloop never ends closing the loop.
            warnings.simplefilter("ignore", ResourceWarning)
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    @property
    def url(self) -> str:
        """The address for AMQP clients."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def http_url(self) -> str:
        """The address of the HTTP API and the pages, without a path."""
        if self.http_port is None:
            raise MissingExtra("server", "the HTTP API")
        return f"http://127.0.0.1:{self.http_port}"

    def call(self, function: Callable[[], _Result]) -> _Result:
        """Call a function in the thread of the broker, as everything that looks at it must be; return its result."""

        async def run() -> _Result:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                self._loop = runner.get_loop()
                runner.run(self._serve())
        except BaseException as problem:
            self._problem = problem
            self._ready.set()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = Server(self._options)
        await server.start()
        self.server, self.broker = server, server.broker
        self.port, self.http_port = server.amqp_port, server.http_port
        self.tls_port, self.server = server.tls_port, server
        self._ready.set()
        await self._stop.wait()
        await server.stop()

"""Prometheus metrics over HTTP, for workers and pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from threading import Thread

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.registry import Collector

from headgate.errors import HeadgateError


def parse_address(text: str) -> tuple[str, int]:
    """`9464` or `0.0.0.0:9464`: the host, by default this machine alone, and the port."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise HeadgateError(f"an address of metrics is a port or host:port, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


@contextmanager
def serve_collector(collector: Collector, host: str, port: int) -> Iterator[int]:
    """Serve /metrics on that address (port 0: a free one) while the block runs; the port."""

    class _Handler(MetricsHandler):
        registry = CollectorRegistry()

        def do_GET(self) -> None:
            if self.path.partition("?")[0] == "/metrics":
                super().do_GET()
            else:
                self.send_error(404, "see /metrics")

    _Handler.registry.register(collector)
    try:
        server = ThreadingHTTPServer((host, port), _Handler)
    except OSError as problem:
        raise HeadgateError(
            f"metrics cannot be served on {host}:{port}: {problem}; give another address"
        ) from problem
    thread = Thread(target=server.serve_forever, name="headgate-metrics", daemon=True)
    with server:
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()

"""A pipeline's account for Prometheus: as text, as a file for a textfile collector, or served."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

from headgate.errors import HeadgateError
from headgate.pipelines import Account

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_COUNTERS: Final = {
    "read": "Messages that passed the source's filter.",
    "routed": "Messages that at least one queue got.",
    "unroutable": "Messages that no queue got.",
    "malformed": "Records of the source that are no messages.",
    "chunks_skipped": "Chunks of streams that were not opened.",
    "chunks_opened": "Chunks of streams that were opened.",
    "bytes_read": "Bytes of the chunks that were opened.",
    "bytes_total": "Bytes of all chunks that were come by.",
}


def to_metrics(account: Account) -> str:
    """The account in Prometheus' text format."""
    return "\n".join(_lines(account)) + "\n"


def write_metrics(account: Account, file: Path) -> None:
    """Put it where a textfile collector looks, whole or not at all."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.write_text(to_metrics(account))
    os.replace(new, file)


@contextmanager
def serving_metrics(account: Account, port: int) -> Iterator[int]:
    """Answer GET /metrics on that port of this machine (0: one that is free) while the block runs."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/metrics"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", _CONTENT_TYPE)
            self.end_headers()
            self.wfile.write((to_metrics(account) if found else "see /metrics\n").encode())

        def log_message(self, format: str, *arguments: object) -> None:
            pass  # scrapes are no news

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Answer)
    except OSError as problem:
        raise HeadgateError(f"port {port} cannot be served: {problem}; give another") from problem
    serving = Thread(target=server.serve_forever, daemon=True)
    with server:
        serving.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            serving.join()


def _lines(account: Account) -> Iterator[str]:
    own = f'pipeline="{_escaped(account.pipeline)}"'
    for name, text in _COUNTERS.items():
        metric = f"{name.removesuffix('_total')}_total"
        yield from _metric(metric, "counter", text, {own: getattr(account.counters, name)})
    queues = {f'{own},queue="{_escaped(q)}"': n for q, n in sorted(account.counters.queues.items())}
    yield from _metric("queue_messages_total", "counter", "Messages each queue got.", queues)
    yield from _metric("batches_total", "counter", "Batches committed.", {own: account.batches})
    if account.lag is not None:
        yield from _metric("lag_messages", "gauge", "Messages yet to be read.", {own: account.lag})
    if account.last is not None:
        seconds = {own: account.last.seconds}
        yield from _metric("batch_seconds", "gauge", "What the last batch took.", seconds)


def _metric(name: str, kind: str, text: str, values: Mapping[str, float]) -> Iterator[str]:
    full = f"headgate_pipeline_{name}"
    yield f"# HELP {full} {text}"
    yield f"# TYPE {full} {kind}"
    for labels, value in values.items():
        yield f"{full}{{{labels}}} {value}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

"""headgate serve: run the broker."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from typing import Literal as OneOf

import typer

from headgate.errors import MissingExtra
from headgate.server import AMQP_PORT, HTTP_PORT, Server, ServerOptions, new_event_loop

GREETING = """\
Headgate {version}
  AMQP 0-9-1   {host}:{port}   user guest, password guest, from this machine only
  HTTP API     {http}
  data         {data}
Try it:  python -c "import pika; c = pika.BlockingConnection(pika.URLParameters('{url}')); print(c.is_open)"
Ctrl-C or SIGTERM stops it."""


def serve(
    data: Annotated[
        Path, typer.Option(help="The directory of definitions and messages; made if it is missing.")
    ] = Path("headgate-data"),
    memory: Annotated[
        bool, typer.Option("--memory", help="Keep everything in memory: nothing survives.")
    ] = False,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    amqp_port: Annotated[
        int, typer.Option(help="The port for AMQP clients; 0 takes a free one.")
    ] = AMQP_PORT,
    http_port: Annotated[
        int, typer.Option(help="The port of the HTTP API and the pages; 0 takes a free one.")
    ] = HTTP_PORT,
    log_format: Annotated[
        OneOf["text", "json"], typer.Option(help="How log lines on stderr look.")
    ] = "text",
) -> None:
    """Run the broker: one process, one directory, AMQP 0-9-1 and HTTP.

    Clients of RabbitMQ connect as they are. What was confirmed survives a crash.

    Example: headgate serve --data /var/lib/headgate --amqp-port 5672
    """
    _log_to_stderr(log_format)
    options = ServerOptions(
        data=None if memory else data, host=host, amqp_port=amqp_port, http_port=http_port
    )
    loop = new_event_loop()
    try:
        loop.run_until_complete(_serve(options))
    finally:
        loop.close()


async def _serve(options: ServerOptions) -> None:
    import headgate

    server = Server(options)
    await server.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    url = f"amqp://guest:guest@{options.host}:{server.amqp_port}/"
    where = "in memory, nothing survives" if options.data is None else options.data.resolve()
    print(
        GREETING.format(
            version=headgate.__version__,
            host=options.host,
            port=server.amqp_port,
            http=_describe_http(options.host, server.http_port),
            data=where,
            url=url,
        ),
        flush=True,
    )
    await stop.wait()
    await server.stop()


def _describe_http(host: str, port: int | None) -> str:
    if port is None:
        return f"not served: {MissingExtra('server', 'the HTTP API')}"
    return f"http://{host}:{port}/api/"


class JsonLines(logging.Formatter):
    """One JSON object for each record."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False)


def _log_to_stderr(form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)

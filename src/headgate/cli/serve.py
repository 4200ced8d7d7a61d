"""headgate serve: run the broker."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated
from typing import Literal as OneOf

import typer

from headgate.cli.service_manager import tell_ready, tell_reloading, tell_stopping
from headgate.errors import HeadgateError, MissingExtra
from headgate.logs import LogSettings, log_as
from headgate.server import Server, ServerOptions, new_event_loop, parse_assignment

log = logging.getLogger("headgate.server")

NEW_OBJECTS = 20_000  # more of them than were freed let the garbage collector look for cycles

GREETING = """\
Headgate {version}
  AMQP 0-9-1   {host}:{port}   {login}
  pages, HTTP  {http}
  data         {data}
Try it:  python -c "import pika; c = pika.BlockingConnection(pika.URLParameters('{url}')); print(c.is_open)"
Filter:  channel.basic_consume("orders", callback, arguments={{"x-filter": "region = 'EU' AND amount > 100"}})
Ctrl-C or SIGTERM stops it."""


def serve(
    config: Annotated[
        Path | None,
        typer.Option(
            help="The file of settings; else $HEADGATE_CONFIG, else headgate.toml if it is there."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The directory of definitions and messages, headgate-data unless the file names one; made if it is missing."
        ),
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Keep everything in memory: nothing survives.")
    ] = False,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    amqp_port: Annotated[
        int | None, typer.Option(help="The port for AMQP clients; 0 takes a free one.")
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(help="The port of the HTTP API and the pages; 0 takes a free one."),
    ] = None,
    log_format: Annotated[
        OneOf["text", "keyvalue", "json"] | None,
        typer.Option(help="How log lines on stderr look."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Any setting of the file, as table.key=value.", metavar="TABLE.KEY=VALUE"
        ),
    ] = None,
) -> None:
    """Run the broker: one process, one directory, AMQP 0-9-1 and HTTP.

    Clients of RabbitMQ connect as they are. What was confirmed survives a crash. SIGHUP reads the file of settings again.

    Example: headgate serve --data /var/lib/headgate --amqp-port 5672 --set log.level=debug
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the file is about to be read
    given = dict(map(parse_assignment, setting or []))
    named = {
        "data": data,
        "host": host,
        "amqp_port": amqp_port,
        "http_port": http_port,
        "log_format": log_format,
    }
    given |= {name: value for name, value in named.items() if value is not None}
    if memory:
        given["data"] = None

    def load() -> ServerOptions:
        return ServerOptions.load(config, **given)

    options = load()
    logs = LogSettings(options.log_format, options.log_level)  # type: ignore[arg-type]  # checked by the options
    with log_as(logs), asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(options, load))


async def _serve(options: ServerOptions, load: Callable[[], ServerOptions]) -> None:
    import headgate

    server = Server(options)
    stop, reload = asyncio.Event(), asyncio.Event()
    # One that comes while the broker starts is obeyed when it has started.
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.set)
    await server.start()
    _spare_collector()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    is_new = "guest" in server.broker.access.users
    login = "user guest, password guest, from this machine only" if is_new else "users as defined"
    user = "guest:guest" if is_new else f"{options.admin_user}:PASSWORD"
    host = f"[{options.host}]" if ":" in options.host else options.host  # IPv6
    url = f"amqp://{user}@{host}:{server.amqp_port}/"
    where = "in memory, nothing survives" if options.data is None else options.data.resolve()
    print(
        GREETING.format(
            version=headgate.__version__,
            host=host,
            port=server.amqp_port
            if server.tls_port is None
            else f"{server.amqp_port}, TLS {server.tls_port}",
            login=login,
            http=_describe_http(host, server),
            data=where,
            url=url,
        ),
        flush=True,
    )
    tell_ready(f"serving {where}")
    reloading = asyncio.create_task(_reload_when_told(reload, server, load))
    await stop.wait()
    reloading.cancel()
    tell_stopping()
    await server.stop()


def _spare_collector() -> None:
    """Have the garbage collector pass over what was loaded, and run seldom: a queued message is no part of a cycle."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])


def _describe_http(host: str, server: Server) -> str:
    if server.http_port is None:
        return f"not served: {MissingExtra('server', 'the HTTP API')}"
    scheme = "https" if server.options.http_tls else "http"
    return f"{scheme}://{host}:{server.http_port}/   (the HTTP API below /api/)"


async def _reload_when_told(
    told: asyncio.Event, server: Server, load: Callable[[], ServerOptions]
) -> None:
    while True:
        await told.wait()
        told.clear()
        _reload(server, load)


def _reload(server: Server, load: Callable[[], ServerOptions]) -> None:
    """Read the configuration again; one that is refused changes nothing."""
    tell_reloading()
    try:
        server.reconfigure(load())
    except HeadgateError as problem:
        log.error("the configuration is not changed: %s", problem)
    tell_ready("serving")

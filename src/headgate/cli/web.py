"""headgate web: pages beside an embedded application."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.arguments import DatabaseUrl
from headgate.errors import CannotListen, HeadgateError, MissingExtra
from headgate.server import new_event_loop

PORT = 15_673


def web(
    data: Annotated[Path, typer.Option(help="The directory with streams, in it or below.")],
    db: DatabaseUrl = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; anybody who reaches it can look.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = PORT,
) -> None:
    """Serve pages to look at streams and queues of an application, beside it; nothing can be changed there.

    Streams with the chunks that a filter skips, messages in the filter language, queues on SQLite or PostgreSQL, and a playground for filters.

    Example: headgate web --data data --db sqlite:///queue.db
    """
    if not data.is_dir():
        raise HeadgateError(f"{data} is not a directory; name the one that has your streams")
    database = _find_database(db)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(data, database, host, port))


def _find_database(url: str | None) -> str | None:
    """The database that was named, here or in the settings; the default one only if it exists."""
    from headgate.settings import Settings, load_settings

    found = load_settings(database=url).database
    is_default = url is None and found == Settings().database
    return None if is_default and not Path(found.removeprefix("sqlite:///")).exists() else found


async def _serve(data: Path, database: str | None, host: str, port: int) -> None:
    try:
        from headgate.web import HttpListener, Site, make_embedded_app
    except ImportError as problem:
        raise MissingExtra("server", "headgate web") from problem
    listener = HttpListener(make_embedded_app(Site(data.resolve(), database), host))
    try:
        served = await listener.listen(host, port)
    except OSError as problem:
        advice = "give another --port; 0 takes a free one"
        raise CannotListen.because(problem, host, port, advice) from problem
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    typer.echo(f"Headgate shows {data} on http://{host}:{served}/  (Ctrl-C stops it)")
    await stop.wait()
    await listener.close()

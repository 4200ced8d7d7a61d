"""Completion of values in the shell: queues, subscriptions, paths of streams, headers. Nothing is written, no error shown."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from headgate.queues import Database


def complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    """The queues and subscriptions of the database that the command names, or else the settings."""
    with suppress(Exception), _open_to_look(ctx) as database:
        return [queue.name for queue in database.queues()]
    return []


def complete_subscription(ctx: typer.Context, incomplete: str) -> list[str]:
    """The durable subscriptions of the database."""
    with suppress(Exception), _open_to_look(ctx) as database:
        return [queue.name for queue in database.queues() if queue.kind == "subscription"]
    return []


def _open_to_look(ctx: typer.Context) -> AbstractContextManager[Database]:
    from headgate.cli.arguments import open_database

    return open_database(ctx.params.get("db"), "look")


def complete_stream(incomplete: str) -> list[str]:
    """The streams in the directory that was begun, and its directories, in which there may be streams."""
    from headgate.streams import OPTIONS_FILE

    typed, slash, _ = incomplete.rpartition("/")
    before = typed + slash
    with suppress(OSError):
        inside = [path for path in Path(before or ".").iterdir() if path.is_dir()]
        shown = [path for path in inside if not path.name.startswith((".", "__"))]
        return sorted(
            f"{before}{path.name}" + ("" if (path / OPTIONS_FILE).exists() else "/")
            for path in shown
        )
    return []


def complete_header(ctx: typer.Context, incomplete: str) -> list[str]:
    """The headers that messages of the stream or queue have which the command has named so far."""
    from headgate import insights

    with suppress(Exception):
        if "stream" in ctx.params:
            return insights.stream_fields(Path(_named(ctx, "stream"))).headers
        with _open_to_look(ctx) as database:
            return insights.queue_fields(database.find(_named(ctx, "queue"))).headers
    return []


def _named(ctx: typer.Context, parameter: str) -> str:
    """The value of a command's first argument; behind an option without its value it was not parsed."""
    return str(ctx.params[parameter] or ctx.args[0])


def complete_header_value(ctx: typer.Context, incomplete: str) -> list[str]:
    """The headers again, as the beginning of name=text."""
    return [f"{name}=" for name in complete_header(ctx, incomplete)]

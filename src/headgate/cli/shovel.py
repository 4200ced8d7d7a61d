"""headgate shovel: move messages from one broker to another."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer

from headgate.cli.arguments import AsJson
from headgate.cli.output import print_json, spinner
from headgate.shovels import PREFETCH, Shovel, ShovelOptions


def shovel(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            envvar="HEADGATE_SHOVEL_FROM",
            help="The broker to take from: amqp://user:password@host:port/vhost. In the variable, the password is not in `ps`.",
        ),
    ],
    destination: Annotated[
        str,
        typer.Option("--to", envvar="HEADGATE_SHOVEL_TO", help="The broker to publish to."),
    ],
    queue: Annotated[str | None, typer.Option(help="Move the messages of this queue.")] = None,
    exchange: Annotated[
        str | None, typer.Option(help="Copy what is published to this exchange from now on.")
    ] = None,
    routing_key: Annotated[
        str, typer.Option(help="The routing key of the binding to that exchange.")
    ] = "#",
    to_queue: Annotated[
        str | None, typer.Option(help="Publish to this queue, which must exist.")
    ] = None,
    to_exchange: Annotated[
        str | None, typer.Option(help="Publish to this exchange instead of the message's own.")
    ] = None,
    to_routing_key: Annotated[
        str | None, typer.Option(help="Publish with this routing key instead of the message's own.")
    ] = None,
    filter: Annotated[
        str | None,
        typer.Option(
            help="Only messages that match. Of a queue, the others stay in it, so that the source must be a Headgate."
        ),
    ] = None,
    prefetch: Annotated[int, typer.Option(min=1, max=65535, help="Messages under way.")] = PREFETCH,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="Stop after as many as were there at the start.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Move messages from a queue or exchange of one broker to another, RabbitMQ or Headgate.

    A message is acknowledged at the source when the destination has confirmed it: none is lost; after a crash some are moved
    twice. A connection that breaks is made again. SIGTERM or Ctrl-C stops it.

    Example: headgate shovel --from amqp://old/ --to amqp://new/ --queue orders --until-empty
    """
    options = ShovelOptions(
        source=source,
        destination=destination,
        queue=queue,
        exchange=exchange,
        routing_key=routing_key,
        to_queue=to_queue,
        to_exchange=to_exchange,
        to_routing_key=to_routing_key,
        filter=filter,
        prefetch=prefetch,
        until_empty=until_empty,
    )
    done = asyncio.run(_run(options))
    if as_json:
        print_json({"moved": done.moved, "skipped": done.skipped})
    else:
        left_out = f", {done.skipped:,} left out" if done.skipped else ""
        typer.echo(f"moved {done.moved:,} messages{left_out}")


async def _run(options: ShovelOptions) -> Shovel:
    shovel = Shovel(options)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, shovel.stop)
    with spinner("moving") as progress:
        task = progress.add_task("", total=None)

        async def show() -> None:
            while True:
                progress.update(task, description=f"{shovel.moved:,} moved, {shovel.state}")
                await asyncio.sleep(0.2)

        showing = asyncio.create_task(show())
        try:
            await shovel.run()
        finally:
            showing.cancel()
    return shovel

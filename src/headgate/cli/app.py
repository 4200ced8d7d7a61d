"""All nouns under one roof, and how errors leave it."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import click
import typer
from rich.console import Console

from headgate.cli import explain, filter
from headgate.errors import HeadgateError

app = typer.Typer(
    name="headgate",
    help="A message broker and data pipeline: say once what you want, and the filter is pushed as deep as it goes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(filter.app, name="filter", help="Work with filters: check them against every engine.")
app.command(name="explain")(explain.explain)


@app.callback()
def _common(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.")
    ] = False,
) -> None:
    if show_version:
        typer.echo(f"headgate {version('headgate')}")
        raise typer.Exit


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code: 0, 1 for a negative answer, 2 for an error."""
    try:
        code = app(arguments, standalone_mode=False)
    except HeadgateError as problem:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"error: {problem}", markup=False, style="red"
        )
        return 2
    except click.ClickException as problem:
        problem.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        return 0
    return code if isinstance(code, int) else 0

"""All nouns under one roof, and how errors leave it."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

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


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headgate {version('headgate')}")
        raise typer.Exit


@app.callback()
def _common(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and stop.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code: 0, 1 for a negative answer, 2 for an error."""
    try:
        app(arguments, prog_name="headgate")
    except SystemExit as finished:
        return finished.code if isinstance(finished.code, int) else 0
    except HeadgateError as problem:
        stderr = Console(stderr=True, highlight=False, soft_wrap=True)
        stderr.print(f"error: {problem}", markup=False, style="red")
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough
        return 0
    return 0

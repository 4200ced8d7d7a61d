"""All nouns under one roof, and how errors leave it."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Final

import typer
from rich.console import Console

from headgate.errors import HeadgateError

NOUNS: Final = {
    "filter": "Work with filters: check them against every engine.",
    "stream": "Work with streams: create, publish, tail, scan, seal, look after.",
    "queue": "Work with queues: create, publish, claim, look, tidy.",
    "sub": "Work with durable subscriptions.",
    "pipeline": "Run pipelines on Spark: check, show, run.",
}
MORE_VERBS: Final = {  # of a noun, in modules of their own
    "stream": ("stream_messages", "stream_care", "stream_jobs", "stream_compact"),
    "queue": ("queue_messages",),
}
VERBS: Final = ("explain", "route", "demo", "bench", "doctor")  # these need no noun


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code: 0, 1 for a negative answer, 2 for an error."""
    try:
        app_of(arguments)(arguments, prog_name="headgate")
    except SystemExit as finished:
        return finished.code if isinstance(finished.code, int) else 0
    except HeadgateError as problem:
        stderr = Console(stderr=True, highlight=False, soft_wrap=True)
        stderr.print(f"error: {problem}", markup=False, style="red")
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough
        return 0
    return 0


def app_of(arguments: list[str]) -> typer.Typer:
    """The command line, with only the noun that was asked for loaded: most of a start is imports."""
    app = typer.Typer(
        name="headgate",
        help="A message broker and data pipeline: say once what you want, and the filter is pushed as deep as it goes.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    every = (*NOUNS, *VERBS)
    for word in [word for word in arguments[:1] if word in every] or every:
        if word in NOUNS:
            app.add_typer(_noun(word), name=word, help=NOUNS[word])
        else:
            app.command(name=word)(getattr(import_module(f"headgate.cli.{word}"), word))
    return app


def _noun(word: str) -> typer.Typer:
    own: typer.Typer = import_module(f"headgate.cli.{word}").app
    if word not in MORE_VERBS:
        return own
    together = typer.Typer(no_args_is_help=True)
    together.add_typer(own)
    for module in MORE_VERBS[word]:
        together.add_typer(import_module(f"headgate.cli.{module}").app)
    return together


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headgate {version('headgate')}")
        raise typer.Exit


def _common(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and stop.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    pass

"""All nouns under one roof, and how errors leave it."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, Final

import typer
from rich.console import Console

from headgate.cli.failures import describe_failure

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
DEBUG: Final = "--debug"
INTERRUPTED: Final = 130  # what shells say of a command that Ctrl-C ended
VERBS: Final = ("explain", "route", "demo", "bench", "doctor")  # these need no noun


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code: 0, 1 for a negative answer, 2 for an error."""
    debug, arguments = _without_debug(arguments)
    _open_missing_streams()
    _print_any_character()
    try:
        try:
            app_of(arguments)(arguments, prog_name="headgate")
        finally:
            sys.stdout.flush()  # here, where a failure has a place to go
    except SystemExit as finished:
        if isinstance(finished.__context__, BrokenPipeError):  # Typer makes a failure of it
            _drop_output()
            return 0
        return finished.code if isinstance(finished.code, int) else 0
    except KeyboardInterrupt:  # while the command was still being loaded
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        _drop_output()
        return 0
    except Exception as problem:
        if debug:
            traceback.print_exception(problem)
        stderr = Console(stderr=True, highlight=False, soft_wrap=True)
        stderr.print(f"error: {describe_failure(problem)}", markup=False, style="red")
        _drop_output_that_fails()
        return 2
    return 0


def _without_debug(arguments: list[str]) -> tuple[bool, list[str]]:
    """Whether --debug was given, before or behind the command, and the arguments without it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own = [argument for argument in arguments[:end] if argument != DEBUG]
    return len(own) < end, [*own, *arguments[end:]]


def _open_missing_streams() -> None:
    """A command that was started with its input or output closed has nothing to read, and prints to nobody."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _print_any_character() -> None:
    """What the terminal's encoding lacks, or no encoding has, is printed as an escape and is no error."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output_that_fails() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # a full disk, most likely
        _drop_output()


def _drop_output() -> None:
    """Nobody reads it: Python must not try once more, and complain, when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Print the traceback of an error, with any command.")
    ] = False,
) -> None:
    pass

"""The root of the command line: finds the command, runs it, and turns errors into a line and an exit code."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from contextlib import suppress
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

import headgate
from headgate.cli.guessed_verbs import NounCommands, fail_with_command, fail_with_nouns
from headgate.errors import HeadgateError, MissingExtra

if TYPE_CHECKING:
    from typer._click import Command, Context

NOUNS: Final = {
    "filter": "Work with filters: check them against every engine.",
    "stream": "Work with streams: create, publish, tail, scan, seal, verify, compact, replay.",
    "queue": "Work with queues: create, publish, claim, ack, inspect, pause, purge.",
    "sub": "Work with durable subscriptions.",
    "schedule": "Work with schedules: messages published by a cron expression.",
    "pipeline": "Run pipelines on Spark: check, show, run.",
    "broker": "Look at a running broker, and work with its queues: overview, health, trace, queue.",
    "user": "Users of a running broker: ls, add, password, tags, limit, rm.",
    "permission": "What users of a running broker may do: ls, set, clear, set-topic, clear-topic.",
    "vhost": "Virtual hosts of a running broker: ls, add, limit, rm.",
    "policy": "Policies of a running broker: ls, set, rm.",
    "parameter": "Runtime parameters of a running broker: ls, set, rm, set-global, rm-global.",
    "exchange": "Exchanges of a running broker: ls, declare, publish, rm.",
    "binding": "Bindings of a running broker: ls, add, rm.",
    "connection": "Connections to a running broker: ls, close.",
    "channel": "Channels of connections to a running broker.",
    "consumer": "Consumers of a running broker: ls, set-filter.",
    "definitions": "Definitions of a running broker, in RabbitMQ's form: export, import.",
}
REMOTE: Final = {  # nouns that are commands against a running broker, by module of `remote`
    "access": ("user", "permission", "vhost"),
    "topology": ("exchange", "binding"),
    "traffic": ("connection", "channel", "consumer"),
    "operations": ("policy", "parameter", "definitions", "broker"),
}
MORE_VERBS: Final = {  # of a noun, in modules of their own
    "stream": ("stream_messages", "stream_upkeep", "stream_jobs"),
    "queue": ("queue_messages", "queue_receipts"),
}
VERBS: Final = {  # these need no noun; the text is the first line of the command's docstring
    "serve": "Run the broker: one process, one directory, AMQP 0-9-1 and HTTP.",
    "verify": "Read everything in a broker's directory and report damage. Exit code 1: some was found.",
    "backup": "Copy a broker's directory while it runs; what was confirmed before is in the copy.",
    "restore": "Verify a backup, and make a directory from it that a broker can serve.",
    "web": "Serve pages to look at streams and queues of an application, beside it; nothing can be changed there.",
    "shovel": "Move messages from a queue or exchange of one broker to another, RabbitMQ or Headgate.",
    "work": "Call a handler for each message of queues, until SIGTERM or Ctrl-C.",
    "explain": "Show how a filter is understood, and term by term which layer answers what.",
    "route": "Print who receives a message and, for every other binding, the first condition that failed.",
    "demo": "Publish orders, route them on Spark, notify, read, seal, compact and replay; then check every number.",
    "bench": "Measure filters, streams, routing, queues, the broker and Spark next to the programs one would use instead.",
    "doctor": "Check Python, Java, Spark, PostgreSQL, disk, limits and versions, and say what to do.",
}
VERB_MODULES: Final = dict.fromkeys(("verify", "backup", "restore"), "data_directory")
ALIASES: Final = {
    **{f"{noun}s": noun for noun in NOUNS},
    "policies": "policy",
    "definition": "definitions",
    "subscription": "sub",
    "subscriptions": "sub",
}
DEBUG: Final = "--debug"
INTERRUPTED: Final = 130  # the exit code of a command that Ctrl-C ended


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code: 0, 1 for a negative answer, 2 for an error."""
    debug, arguments = _without_debug(arguments)
    _open_missing_streams()
    _escape_unprintable_output()
    try:
        try:
            build_app()(arguments, prog_name="headgate")
        finally:
            sys.stdout.flush()  # here, where a failure can still be reported
    except SystemExit as finished:
        if isinstance(finished.__context__, BrokenPipeError):  # Typer makes a failure of it
            _discard_output()
            return 0
        return finished.code if isinstance(finished.code, int) else 0
    except KeyboardInterrupt:  # while the command was still being loaded
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output closed it, as `head` does
        _discard_output()
        return 0
    except Exception as problem:
        if debug:
            traceback.print_exception(problem)
        from headgate.cli.output import terminal

        terminal(stderr=True, soft_wrap=True).print(
            f"error: {describe_failure(problem)}", markup=False, style="red"
        )
        _discard_output_that_fails()
        return 2
    return 0


def _without_debug(arguments: list[str]) -> tuple[bool, list[str]]:
    """Whether --debug was given, before or after the command, and the arguments without it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own = [argument for argument in arguments[:end] if argument != DEBUG]
    return len(own) < end, [*own, *arguments[end:]]


# ---- the commands --------------------------------------------------------------------------------------


def build_app() -> typer.Typer:
    """Build the command line; a command's modules are loaded when it is called."""
    app = typer.Typer(
        cls=LazyCommands,
        name="headgate",
        help="A message broker whose consumers receive only what they ask for; queues on SQL, streams, and pipelines on Spark.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    return app


class LazyCommands(TyperGroup):
    """The root: lists commands by a line of help, and loads the one that is called. Imports are most of a start."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for word, text in {**NOUNS, **VERBS}.items():
            self.add_command(TyperCommand(word, help=text))

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        word = ALIASES.get(args[0], args[0])
        if word in self.commands:
            self.commands[word] = _load_command(word)
        else:
            fail_with_command(ctx, word)
            fail_with_nouns(ctx, word, {noun: _load_command(noun) for noun in NOUNS})
        return super().resolve_command(ctx, [word, *args[1:]])


@cache
def _load_command(word: str) -> Command:
    if word in NOUNS:
        return typer.main.get_group(_load_noun(word))
    alone = typer.Typer(add_completion=False)
    alone.command(name=word)(
        getattr(import_module(f"headgate.cli.{VERB_MODULES.get(word, word)}"), word)
    )
    return typer.main.get_command(alone)


def _load_noun(word: str) -> typer.Typer:
    together = typer.Typer(name=word, cls=NounCommands, help=NOUNS[word], no_args_is_help=True)
    for module, nouns in REMOTE.items():
        if word in nouns:
            together.add_typer(getattr(import_module(f"headgate.cli.remote.{module}"), word))
            return together
    for module in (word, *MORE_VERBS.get(word, ())):
        together.add_typer(import_module(f"headgate.cli.{module}").app)
    return together


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"headgate {headgate.__version__}")
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


# ---- standard input and output -------------------------------------------------------------------------


def _open_missing_streams() -> None:
    """Give a command that was started with closed standard streams empty ones."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _escape_unprintable_output() -> None:
    """Print characters that the terminal's encoding lacks as escapes, instead of failing."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _discard_output_that_fails() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # a full disk, most likely
        _discard_output()


def _discard_output() -> None:
    """Redirect standard output to nowhere, so that Python does not fail again when it flushes at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# ---- failures ------------------------------------------------------------------------------------------

_EXTRAS: Final = {
    "pyspark": ("spark", "this command"),
    "py4j": ("spark", "this command"),
    "grpc": ("spark", "Spark Connect"),
    "psycopg": ("postgres", "PostgreSQL"),
    "prometheus_client": ("server", "serving metrics"),
    "starlette": ("server", "the HTTP API"),
    "uvicorn": ("server", "the HTTP API"),
}
_REMEDIES: Final = {
    errno.ENOSPC: "free some space and try again; what was confirmed is safe",
    errno.EDQUOT: "free some space and try again; what was confirmed is safe",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EACCES: "let this user read and write there, or choose another place",
    errno.EPERM: "let this user read and write there, or choose another place",
    errno.EROFS: "choose a place that can be written",
    errno.EMFILE: "raise the limit of open files: ulimit -n 65536",
    errno.ENFILE: "too many files are open on this machine",
}
_SPARK: Final = ("pyspark", "py4j")
_JAVA: Final = re.compile(r"^: [\w.$]+(?:Exception|Error): (.{1,500})", re.MULTILINE)


def describe_failure(problem: BaseException) -> str:
    """Say in a line or a few what failed, where, and what to do; never a traceback."""
    if isinstance(problem, HeadgateError):
        return str(problem)
    if isinstance(problem, OSError) and problem.errno is not None:
        return _describe_os_error(problem)
    if isinstance(problem, ImportError) and (problem.name or "").split(".")[0] in _EXTRAS:
        return _describe_import(problem)
    if type(problem).__module__.startswith(_SPARK):
        return f"Spark failed: {_spark_reason(problem)}; --debug prints the traceback"
    kind = type(problem).__name__
    return (
        f"unexpected {kind}: {_first_line(problem)}; this should not happen: run the command again with --debug, "
        "which prints the traceback, and report it"
    )


def _describe_import(problem: ImportError) -> str:
    """A package is missing, or it is too old: it is there, and what was to be imported from it is not."""
    package = (problem.name or "").split(".")[0]
    extra, purpose = _EXTRAS[package]
    if isinstance(problem, ModuleNotFoundError):
        return str(MissingExtra(extra, purpose))
    return (
        f"{purpose} needs a newer {package}: pip install --upgrade 'headgate[{extra}]' "
        f"(in a clone: pip install --upgrade -e '.[{extra}]'); {_first_line(problem)}"
    )


def _describe_os_error(problem: OSError) -> str:
    where = f"{problem.filename}: " if problem.filename is not None else ""
    remedy = _REMEDIES.get(problem.errno or 0)
    return f"{where}{problem.strerror}" + (f"; {remedy}" if remedy else "")


def _spark_reason(problem: BaseException) -> str:
    """The message of the Java exception, which follows the name of the call that failed."""
    found = _JAVA.search(str(problem))
    return _first_line(problem) if found is None else found[1].rstrip(" .;:")


def _first_line(problem: BaseException) -> str:
    """The first line of a message that is not empty; Java's messages go on for pages."""
    lines = (line.strip() for line in str(problem).splitlines())
    return next((line for line in lines if line), "it has no message")[:500].rstrip(" .;:")

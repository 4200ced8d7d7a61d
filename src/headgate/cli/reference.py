"""The reference of the command line, written from the commands themselves: python -m headgate.cli.reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from headgate.cli.app import build_app

EXAMPLE = "Example: "  # begins the last paragraph of a command's docstring
HEAD = """\
# The command line

Written by `make docs` from the commands themselves; `headgate NOUN VERB --help` prints the same text. Exit codes: 0, 1 for a
negative answer, 2 for an error, which is printed on one line; with `--debug`, any command prints the traceback too.
Commands that only read (`ls`, `info`, `stats`, `peek`, `browse`, `tail` of a stream, `scan`, `dump`, `verify`, `check`, `show`)
write nothing, and need no right to write. `--json` prints one JSON object per line: a line for each thing that a command lists, one line about a single thing.
Nouns may be written in the plural (`headgate queues ls`). [Settings](settings.md) says where a value comes from that no option gives.
`headgate --install-completion` installs completion for your shell: of commands, options, queues, streams and headers.
"""


def reference() -> str:
    """Every command with its arguments and options, in Markdown."""
    root = typer.main.get_command(build_app())
    return "\n".join([HEAD, *_command(root, "headgate", 1)]).rstrip() + "\n"


def _command(command: Any, path: str, depth: int) -> Iterator[str]:
    if depth > 1:
        yield f"{'#' * min(depth, 4)} `{path}`\n"
        yield _paragraphs(command.help or "") + "\n"
    context = _context(command, path)
    subcommands = [command.resolve_command(context, [name])[1] for name in _names(command, context)]
    if not subcommands:
        yield "```text\n" + _usage(command, context) + "\n```\n"
        yield from _table(command, context)
    for found in subcommands:
        yield from _command(found, f"{path} {found.name}", depth + 1)


def _context(command: Any, path: str) -> Any:
    return command.make_context(path, [], resilient_parsing=True)


def _names(command: Any, context: Any) -> list[str]:
    return command.list_commands(context) if hasattr(command, "list_commands") else []


def _usage(command: Any, context: Any) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _table(command: Any, context: Any) -> Iterator[str]:
    shown = [parameter for parameter in command.get_params(context) if _is_shown(parameter)]
    if rows := [_row(parameter, context) for parameter in shown]:
        yield "\n".join(["| | |", "|---|---|", *rows]) + "\n"


def _is_shown(parameter: Any) -> bool:
    return parameter.name != "help" and not getattr(parameter, "hidden", False)


def _row(parameter: Any, context: Any) -> str:
    record = parameter.get_help_record(context)
    if record is None:
        name, text = parameter.make_metavar(context), getattr(parameter, "help", "") or ""
    else:
        name, text = record
    return f"| `{_cell(name)}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def _paragraphs(text: str) -> str:
    return "\n\n".join(map(_paragraph, text.strip().split("\n\n")))


def _paragraph(text: str) -> str:
    """One line of prose, or the example as code."""
    line = " ".join(part.strip() for part in text.splitlines())
    return f"{EXAMPLE}`{line.removeprefix(EXAMPLE)}`" if line.startswith(EXAMPLE) else line


if __name__ == "__main__":
    print(reference(), end="")

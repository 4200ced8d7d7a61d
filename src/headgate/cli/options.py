"""Arguments and options that several commands share, so that they are spelled and explained the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

StreamPath: TypeAlias = Annotated[
    Path, typer.Argument(help="The stream's directory.", metavar="STREAM")
]
QueueName: TypeAlias = Annotated[str, typer.Argument(help="The queue's name.", metavar="QUEUE")]
FilterText: TypeAlias = Annotated[
    str,
    typer.Option("--filter", "-f", help="Only messages that match this filter.", metavar="FILTER"),
]
From: TypeAlias = Annotated[
    str,
    typer.Option(
        "--from",
        help="Where to begin: first, last, next, an offset, a moment (2026-01-31T12:00:00Z) or how long ago (10m).",
        metavar="START",
    ),
]
OnLost: TypeAlias = Annotated[
    str,
    typer.Option(
        help="When the stream does not have the offset to begin at (any more): error, first or next.",
        metavar="WHAT",
    ),
]
SkipCorrupt: TypeAlias = Annotated[
    bool,
    typer.Option("--skip-corrupt", help="Go on past what cannot be read, and say what it was."),
]
Headers: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--header",
        "-H",
        help="A header: name=text, or name:=json for numbers and booleans; may be repeated.",
    ),
]
Priority: TypeAlias = Annotated[int, typer.Option(help="0 to 255, higher is more urgent.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
AsJsonLines: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, a line each.")]
HeadersOnly: TypeAlias = Annotated[
    bool, typer.Option("--headers-only", help="Leave the payloads out.")
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def ask(question: str, yes: bool) -> None:
    """Go on only if the answer is yes, or was given beforehand; else exit code 1."""
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)

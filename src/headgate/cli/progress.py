"""Something that moves on the terminal while a command works, and nothing where there is no terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn


def progress(*columns: str | ProgressColumn) -> Progress:
    """These columns and the time, on stderr, gone when it is done."""
    return Progress(
        *columns,
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def spinner(what: str) -> Progress:
    """For work whose end is not known."""
    return progress(SpinnerColumn(), TextColumn(f"{what}: {{task.description}}"))

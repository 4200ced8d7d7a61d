"""What the system refuses while a stream is written, as an error that says what to do: a full disk, a failed sync."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.errors import StreamWriteError


def write_error(directory: Path, problem: OSError) -> StreamWriteError:
    return StreamWriteError(
        f"{problem.filename or directory}: {problem.strerror or problem}; "
        "nothing that was confirmed is lost; publish the rest again when that is mended"
    )


@contextmanager
def raising_write_errors(directory: Path) -> Iterator[None]:
    """Raise a StreamWriteError in the place of every OSError."""
    try:
        yield
    except OSError as problem:
        raise write_error(directory, problem) from problem

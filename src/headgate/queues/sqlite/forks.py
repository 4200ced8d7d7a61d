"""SQLite and fork(): a connection must not be used, nor even closed, on both sides of it.

The library remembers which locks the process holds on a file. A child inherits what is remembered, and not the locks. So
connections that are idle are closed before a fork; a file that another thread uses at that moment cannot be used in
the child at all: its writes could be lost, and the file damaged.
"""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from headgate.errors import DatabaseUnavailable
from headgate.forks import keep_for_ever

_in_use_at_fork: set[str] = set()


def note_inherited(path: Path) -> None:
    """In a forked child: remember the file if there is a connection to it that could not be closed before."""
    real = os.path.realpath(path)
    for connection in apsw.connections():
        if os.path.realpath(connection.filename) == real:
            keep_for_ever(connection)
            _in_use_at_fork.add(real)


def refuse_inherited(path: Path) -> None:
    """Refuse a file that was in use when this process was forked."""
    if os.path.realpath(path) in _in_use_at_fork:
        raise DatabaseUnavailable(
            f"{path} was being used by another thread when this process was forked, and SQLite's locks do not survive "
            "that; fork before other threads use the database, or start this process with spawn"
        )

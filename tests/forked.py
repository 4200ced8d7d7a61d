"""Run a function in a forked child process."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_child(act: Callable[[], object]) -> str:
    """Run `act` in a forked child that then ends at once; return its result or exception as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = repr(act())
        except BaseException as problem:
            text = f"{type(problem).__name__}: {problem}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    assert os.waitpid(pid, 0)[1] == 0
    return text

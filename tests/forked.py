"""Running something in a forked child, and what came of it."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_child(act: Callable[[], object]) -> str:
    """What `act` gives, or raises, in a forked child that then ends at once."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = repr(act())
        except BaseException as problem:
            said = f"{type(problem).__name__}: {problem}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    assert os.waitpid(pid, 0)[1] == 0
    return said

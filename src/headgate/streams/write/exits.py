"""Writers that are open when the process ends are closed then: what was accepted is written.

That is so however the interpreter ends: at the end of the script, by an exception, by `sys.exit`, and in a child of
multiprocessing. It is not when the process is killed, by SIGTERM too unless somebody handles it, or ends by `os._exit`.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from weakref import WeakSet

from headgate.streams.write.writer import Writer

_log = logging.getLogger(__name__)

_open: WeakSet[Writer] = WeakSet()
_hooked: set[int] = set()  # the multiprocessing children, by process id, that call us at their end


def close_at_exit(writer: Writer) -> None:
    """Close the writer when the process ends, unless it was closed before."""
    _open.add(writer)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        _hook_into_multiprocessing()


def _hook_into_multiprocessing() -> None:
    """A child of multiprocessing ends without calling what is registered with atexit."""
    from multiprocessing.util import Finalize

    if os.getpid() not in _hooked:
        _hooked.add(os.getpid())
        Finalize(None, close_writers, exitpriority=0)


def close_writers() -> None:
    """Close every writer that is still open, and log what could not be written."""
    for writer in list(_open):
        try:
            writer.close()
        except Exception as problem:  # the others have to be closed as well
            number = len(writer.pending)
            _log.error(
                "%s: %d sent messages are not stored, the process ends: %s",
                writer.directory,
                number,
                problem,
            )


# When this module is imported: whatever a program registers later runs before, and may still publish.
atexit.register(close_writers)

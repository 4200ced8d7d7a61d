"""A command that is started again when it fails: a parent with one child, which ends with it."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

import typer

from headgate.cli.stop_signals import StopSignals, watch_stop_signals

PAUSE_S: Final = (1.0, 60.0)  # the first pause and the longest
LASTING_S: Final = 60.0  # after a run of this length the pauses begin anew
_POLL_S: Final = 0.25
_PROGRAM: Final = "from headgate.cli import main; main()"
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


def supervise(arguments: Sequence[str]) -> int:
    """Run the command of these arguments until it succeeds or is told to stop; its exit code.

    Ctrl-C and SIGTERM are passed on once, and the command is not started again; the second one ends it at once.
    """
    pause = PAUSE_S[0]
    with watch_stop_signals() as signals:
        while True:
            started = time.monotonic()
            code = _run_child(arguments, signals)
            if code == 0 or signals.count:
                return code
            pause = PAUSE_S[0] if time.monotonic() - started >= LASTING_S else pause
            how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
            typer.echo(f"the command {how}; it is started again in {pause:g} s", err=True)
            if signals.wait(pause):
                return code
            pause = min(2 * pause, PAUSE_S[1])


def _run_child(arguments: Sequence[str], signals: StopSignals) -> int:
    """Run the child in a group of its own: a terminal sends Ctrl-C to the whole group of the parent."""
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    child = subprocess.Popen(command, process_group=0, preexec_fn=_end_with_parent)
    try:
        while child.poll() is None:
            if signals.wait(_POLL_S):
                child.send_signal(signal.SIGTERM)
        return child.returncode
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def _end_with_parent() -> None:
    """Let the kernel send SIGTERM to this process when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)

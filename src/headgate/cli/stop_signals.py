"""Ctrl-C, SIGTERM and the end of the terminal for commands that run until they are told to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Final

STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """The signals that have arrived."""

    def __init__(self) -> None:
        self.count = 0
        # Its `put` may interrupt its `get` in the same thread, which a lock or an event does not allow.
        self._arrived: SimpleQueue[int] = SimpleQueue()

    def note(self, number: int) -> None:
        self.count += 1
        self._arrived.put(number)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the next signal; False after the timeout."""
        try:
            self._arrived.get(timeout=timeout)
        except Empty:
            return False
        return True


def _stopping() -> tuple[signal.Signals, ...]:
    """A terminal that is closed stops a command, too, unless `nohup` has said otherwise."""
    closes = signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    return (*STOPPING, signal.SIGHUP) if closes else STOPPING


@contextmanager
def watch_stop_signals(most: int = 1) -> Iterator[StopSignals]:
    """Count Ctrl-C, SIGTERM and SIGHUP while the block runs; those after the first `most` end the command at once."""
    signals = StopSignals()

    def note(number: int, frame: object) -> None:
        signals.note(number)
        if signals.count > most:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in _stopping()}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

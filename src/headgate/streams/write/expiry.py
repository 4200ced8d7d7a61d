"""What follows a roll: a thread outlines the full segment and drops expired ones, so that no message waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from headgate.clock import now_us
from headgate.errors import StreamClosed, StreamError
from headgate.streams.listing import list_segments
from headgate.streams.upkeep.retention import SegmentSizes, delete_expired, outline_rolled
from headgate.streams.write.writer import Writer

_log = logging.getLogger(__name__)

_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # before each retry
_MANY: Final = 256  # segments; from here on there is not a pass after every roll
_PATIENCE: Final = 50  # times as long as a pass over many segments takes, until the next


class Expiry:
    """Outlines full segments and drops expired ones, in a background thread."""

    def __init__(self, writer: Writer, on_drop: Callable[[], None]) -> None:
        """`on_drop` is called after segments were dropped."""
        self._writer, self._on_drop = writer, on_drop
        self._sizes = SegmentSizes(writer.directory)
        self._rolled_at = writer.active_first_offset  # full segments before it have their outline
        self._changing = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._wanted = False

    @property
    def _limited(self) -> bool:
        options = self._writer.options
        return options.max_age is not None or options.max_bytes is not None

    def begin(self) -> None:
        """Outline full segments and drop expired ones, at once or after the pass that is under way."""
        if not self._limited and self._writer.active_first_offset == self._rolled_at:
            return
        with self._changing:
            self._wanted = True
            if self._thread is None and not self._closing.is_set():
                name = f"headgate retention {self._writer.directory.name}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Wait for the pass that is under way, then outline the segments that were filled since: no later writer does."""
        self._closing.set()
        thread = self._thread
        if thread is not None:
            thread.join()
        try:
            if self._writer.active_first_offset != self._rolled_at:
                self._rolled_at = outline_rolled(self._writer, self._rolled_at)
        except (StreamError, OSError) as problem:
            _log.debug("%s: full segments get no outline: %s", self._writer.directory, problem)

    def _run(self) -> None:
        failures = 0
        while self._take_up():
            try:
                self._rolled_at = outline_rolled(self._writer, self._rolled_at)
                began = time.monotonic()
                looked_at = self._drop()
                failures = 0
                if looked_at >= _MANY:
                    self._closing.wait(_PATIENCE * (time.monotonic() - began))
            except StreamClosed:
                self._closing.set()
            except Exception as problem:
                pause = _PAUSES_S[min(failures, len(_PAUSES_S) - 1)]
                failures += 1
                self._note_failure(problem, pause)
                self._wanted = True
                self._closing.wait(pause)

    def _take_up(self) -> bool:
        """Take the request for a pass; False when there is none, and the thread has to end."""
        with self._changing:
            go_on = self._wanted and not self._closing.is_set()
            self._wanted = False
            if not go_on:
                self._thread = None
            return go_on

    def _drop(self) -> int:
        """Drop expired segments; return how many segments there are."""
        options = self._writer.options
        if not self._limited:
            return 0
        dropped = delete_expired(
            self._writer,
            now_us=now_us(),
            max_age=options.max_age,
            max_bytes=options.max_bytes,
            sizes=self._sizes,
        )
        if dropped:
            self._on_drop()
        return len(list_segments(self._writer.directory))

    def _note_failure(self, problem: Exception, pause: float) -> None:
        expected = isinstance(problem, StreamError | OSError)
        _log.warning(
            "stream %s: cannot drop expired segments, retrying in %.2f s: %s",
            self._writer.directory,
            pause,
            problem,
            exc_info=None if expected else problem,
        )

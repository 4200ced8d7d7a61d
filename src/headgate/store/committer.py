"""One thread that writes group commits: changes made during one commit go into the next.

A commit that the disk refuses is tried again until it succeeds, so that nothing is lost and nothing is confirmed; the
broker is told, and can stop publishers until then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from headgate.store.changes import Changes

log: Final = logging.getLogger(__name__)

RETRY_S: Final = 1.0

Post = Callable[[Callable[[], None]], object]  # calls a function in the thread of the broker


class GroupCommitter:
    """Takes changes from the thread of the broker, and writes them with `write` in its own."""

    def __init__(
        self,
        write: Callable[[Changes], None],
        post: Post,
        on_trouble: Callable[[Exception | None], None] | None = None,
    ) -> None:
        self._write, self._post, self._on_trouble = write, post, on_trouble
        self._next: Changes | None = None
        self._busy = False
        self._closing = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="headgate-store", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether a commit is under way; only the thread of the broker starts one."""
        return self._busy

    def start(self, changes: Changes) -> None:
        """Begin a commit; there must be none under way."""
        with self._wake:
            self._next, self._busy = changes, True
            self._wake.notify()

    def close(self) -> None:
        """Wait for the commit that is under way, and end the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def finish(self) -> None:
        """Let the thread take the next commit; the thread of the broker calls this when it has handled the last one."""
        self._busy = False

    def _run(self) -> None:
        while True:
            with self._wake:
                while self._next is None and not self._closing:
                    self._wake.wait()
                changes, self._next = self._next, None
            if changes is None:
                return
            if not self._store(changes):
                return
            self._post(lambda changes=changes: self._done(changes))  # type: ignore[misc]

    def _done(self, changes: Changes) -> None:
        self.finish()
        for then in changes.then:
            try:
                then()
            except (
                Exception
            ):  # of one connection: the others are told, and the next commit is begun
                log.exception("a function called after a commit failed")

    def _store(self, changes: Changes) -> bool:
        """Write the changes, trying again until it succeeds; False when the store is closed before."""
        troubled = False
        while True:
            try:
                self._write(changes)
            except Exception as problem:
                log.error("the store cannot commit, next try in %g s: %s", RETRY_S, problem)
                if not troubled and self._on_trouble is not None:
                    troubled = True
                    self._post(lambda problem=problem: self._on_trouble(problem))  # type: ignore[misc]
                with self._wake:
                    if self._closing or self._wake.wait_for(lambda: self._closing, RETRY_S):
                        log.error("closed without the last changes, which were not confirmed")
                        return False
            else:
                if troubled and self._on_trouble is not None:
                    self._post(lambda: self._on_trouble(None))  # type: ignore[misc]
                return True

"""Deletes a queue that was not used for as long as its definition says."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.broker.queue import ClassicQueue


class UnusedWatch:
    """Deletes one queue after a time without use."""

    def __init__(self, queue: ClassicQueue) -> None:
        self._queue = queue
        self._broker = queue.vhost.broker
        self._watches = 0
        self.note_use()

    def note_use(self) -> None:
        self._last_used = self._broker.now()

    def begin(self, expires: int | None) -> None:
        """Begin to count the time without use, from now on; an earlier watch ends."""
        self._watches += 1
        if expires is not None:  # later in any case: the queue is not in its virtual host yet
            self.note_use()
            self._look_later(self._last_used + expires)

    def _look_later(self, due: int) -> None:
        self._broker.call_at(due, partial(self._look, self._watches))

    def _look(self, watch: int) -> None:
        expires = self._queue.definition.expires
        if self._queue.is_deleted or expires is None or watch != self._watches:
            return
        due = self._last_used + expires
        if self._queue.consumers:
            due = self._broker.now() + expires
        if due <= self._broker.now():
            self._queue.vhost.delete_queue(self._queue)
        else:
            self._look_later(due)

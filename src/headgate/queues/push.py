"""Push: callbacks for every message whose topic matches, from whatever connection or program it came.

Behind the callbacks of one Database stands one subscription, which lives as long as the process keeps it alive. So
a callback misses nothing that was published after it subscribed, however fast others consume it.
"""

from __future__ import annotations

import logging
import queue as queues
import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from headgate.errors import DatabaseClosed, QueueError, QueueNotFound
from headgate.filters.nodes import FALSE, Filter, Or, TopicMatch, joined
from headgate.filters.topics import check_pattern, matches
from headgate.message import Message
from headgate.queues.contract import Engine, Operation, Operations, QueueInfo, QueueOptions
from headgate.queues.waiting import Waiting

_log = logging.getLogger(__name__)

Callback = Callable[[Message], object]

LEASE_US: Final = 60_000_000  # of the subscription, renewed three times as often
BATCH: Final = 200
MOST_WAITING: Final = 1_000  # messages for one slow callback, before everyone waits for it
_OPTIONS: Final = QueueOptions(max_attempts=0)


class Key(NamedTuple):
    """A subscriber and one of its patterns."""

    pattern: str
    id: str


def listen(operations: Operations, name: str, keys: Iterable[Key]) -> Operation[QueueInfo]:
    """The subscription behind the callbacks, to what any of them wants; called again, it changes in place."""
    terms = [TopicMatch(pattern) for pattern in sorted({key.pattern for key in keys})]
    wanted: Filter = joined(Or, terms) if terms else FALSE
    return operations.subscribe(name, wanted, options=_OPTIONS, lease_us=LEASE_US)


class Pushes:
    """The callbacks of one Database."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._operations = engine, engine.operations
        self._name = f"push-{uuid.uuid4().hex}"
        self._mailboxes: dict[Key, _Mailbox] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._waiter: Waiting | None = None

    def subscribe(self, pattern: str, callback: Callback, id: str) -> bool:
        """Whether it is new. When this returns, everything published from now on will come."""
        check_pattern(pattern)
        key = Key(pattern, id)
        with self._lock:
            if key in self._mailboxes:
                return False
            if self._stopping.is_set():
                raise DatabaseClosed("this database was closed; connect again")
            mailbox = _Mailbox(id, callback)
            self._mailboxes[key] = mailbox
            try:
                self._start(self._listen())
            except BaseException:
                del self._mailboxes[key]
                mailbox.close()
                raise
            return True

    def unsubscribe(self, pattern: str, id: str) -> bool:
        """Whether there was one."""
        return bool(self._remove([Key(pattern, id)]))

    def unsubscribe_all(self, id: str) -> int:
        """How many there were."""
        with self._lock:
            return self._remove([key for key in self._mailboxes if key.id == id])

    def close(self) -> None:
        self._stopping.set()
        with self._lock:
            threads, self._threads = self._threads, []
        if self._waiter is not None:
            self._waiter.wake()
        for thread in threads:
            thread.join()
        for mailbox in self._mailboxes.values():
            mailbox.close()
        if threads:
            with suppress(QueueNotFound):  # others drop what was away for too long
                self._engine.run(self._operations.drop(self._name))

    # -- the subscription behind them --

    def _remove(self, keys: Iterable[Key]) -> int:
        with self._lock:
            found = [self._mailboxes.pop(key) for key in keys if key in self._mailboxes]
            if found:
                self._listen()
        for mailbox in found:
            mailbox.close()
        return len(found)

    def _listen(self) -> QueueInfo:
        info = self._engine.run(listen(self._operations, self._name, self._mailboxes))
        if self._waiter is not None:  # it may be a new one, if the old one was away for too long
            self._waiter.turn_to(info)
        return info

    def _start(self, info: QueueInfo) -> None:
        if self._threads:
            return
        waiter = self._waiter = Waiting(self._engine, info, notified=True, poll=None)
        for target in (lambda: self._deliver(waiter), self._keep_alive):
            thread = threading.Thread(target=target, name=f"headgate-{self._name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _keep_alive(self) -> None:
        while not self._stopping.wait(LEASE_US / 3e6):
            try:
                self.renew()
            except DatabaseClosed:
                return
            except QueueError as problem:
                _log.warning("cannot keep the subscribers alive: %s", problem)

    def renew(self) -> None:
        """The subscription lives on; if it is gone already, there is another from now on."""
        if self._engine.run(self._operations.keep_alive(self._name, LEASE_US)):
            return
        _log.warning("subscribers were away for too long: messages in between are lost")
        with self._lock:
            self._listen()

    def _deliver(self, waiter: Waiting) -> None:
        with waiter:
            while not self._stopping.is_set():
                waiter.prepare()
                try:
                    if not self._deliver_some(waiter.queue) and not self._stopping.is_set():
                        waiter.wait()
                except DatabaseClosed:
                    return
                except QueueError as problem:
                    _log.warning("subscribers: %s; trying again", problem)
                    waiter.nap(1.0)

    def _deliver_some(self, info: QueueInfo) -> int:
        claimed, _ = self._engine.run(self._operations.claim(info, BATCH, LEASE_US))
        for one in claimed:
            self._hand_over(one.message)
        if claimed:
            self._engine.run(self._operations.ack(info, [one.receipt for one in claimed]))
        return len(claimed)

    def _hand_over(self, message: Message) -> None:
        with self._lock:
            boxes = [b for key, b in self._mailboxes.items() if matches(key.pattern, message.topic)]
        for box in boxes:
            box.put(message, self._stopping)


class _Mailbox:
    """What one subscriber has still to be told; it is told in a thread of its own, so that it hurts nobody else."""

    def __init__(self, id: str, callback: Callback) -> None:
        self._id, self._callback = id, callback
        self._messages: queues.Queue[Message | None] = queues.Queue(MOST_WAITING)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._tell, name=f"headgate-push-{id}", daemon=True)
        self._thread.start()

    def put(self, message: Message, stopping: threading.Event) -> None:
        while not stopping.is_set() and not self._closed.is_set():
            try:
                self._messages.put(message, timeout=0.1)
                return
            except queues.Full:
                continue

    def close(self) -> None:
        """Nothing more is told; a callback at work is not waited for."""
        self._closed.set()
        try:
            self._messages.put_nowait(None)
        except queues.Full:
            return  # the thread looks at `closed` with each message

    def _tell(self) -> None:
        while (message := self._messages.get()) is not None and not self._closed.is_set():
            try:
                self._callback(message)
            except Exception:
                _log.exception(
                    "subscriber %r failed on a message of topic %r", self._id, message.topic
                )

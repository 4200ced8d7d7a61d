"""Push: callbacks for every message whose topic matches, from whatever connection or program it came.

Behind each callback stands a subscription of its own, which lives as long as the process keeps it alive. So a callback
misses nothing that was published after it subscribed, however fast others consume it, and however slow it is itself:
what it has not been told yet waits in the database, and one that hangs keeps nobody else waiting. A message is acked when
the callback has returned.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from headgate.errors import DatabaseClosed, QueueError, QueueNotFound
from headgate.filters import FALSE, Filter, TopicMatch, check_pattern
from headgate.message import Message
from headgate.queues.engine import Engine, Operation, Operations, QueueInfo, QueueOptions, Receipt
from headgate.queues.waiting import Waiting

_log = logging.getLogger(__name__)

Callback = Callable[[Message], object]

# A process that was stopped for less is told everything when it goes on; the messages for one that died are kept that long.
KEPT_US: Final = 3_600_000_000
RENEW_S: Final = 20.0
BATCH: Final = 200
# Nobody else claims what a callback is to be told: its lease need not end before the subscription does.
LEASE_US: Final = 10 * 365 * 86_400_000_000
STALLED_S: Final = 10.0  # how long closing waits for one call of a callback
RETRY_S: Final = 1.0
_OPTIONS: Final = QueueOptions(max_attempts=0)


class Key(NamedTuple):
    """A subscriber and one of its patterns."""

    pattern: str
    id: str


def new_name() -> str:
    """Of the subscription behind a callback."""
    return f"push-{uuid.uuid4().hex}"


def listen(operations: Operations, name: str, pattern: str) -> Operation[QueueInfo]:
    """The subscription behind a callback; made, if there is none."""
    return _subscribe(operations, name, TopicMatch(pattern))


def stop_listening(operations: Operations, name: str) -> Operation[QueueInfo]:
    """From now on it gets nothing more; it keeps what it has, also what came through the SQL door until now."""
    yield from operations.route()
    return (yield from _subscribe(operations, name, FALSE))


def _subscribe(operations: Operations, name: str, filter: Filter) -> Operation[QueueInfo]:
    return operations.subscribe(name, filter, options=_OPTIONS, lease_us=KEPT_US)


def warn_of_failure(key: Key, message: Message) -> None:
    """Of a callback, with its trace."""
    _log.warning(
        "subscriber %r failed on a message of topic %r", key.id, message.topic, exc_info=True
    )


def warn_of_absence(key: Key) -> None:
    _log.warning(
        "subscriber %r was away for too long: messages in between are lost to pattern %r",
        key.id,
        key.pattern,
    )


def warn_of_stall(key: Key) -> None:
    _log.warning(
        "subscriber %r has not returned for %.0f s: closing without telling it the rest",
        key.id,
        STALLED_S,
    )


class Pushes:
    """The callbacks of one Database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tellers: dict[Key, _Teller] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._keeper: threading.Thread | None = None

    def subscribe(self, pattern: str, callback: Callback, id: str) -> bool:
        """Whether it is new. When this returns, everything published from now on will come."""
        check_pattern(pattern)
        key = Key(pattern, id)
        with self._lock:
            if key in self._tellers:
                return False
            if self._stopping.is_set():
                raise DatabaseClosed("this database was closed; connect again")
            self._tellers[key] = _Teller(self._engine, key, callback)
            if self._keeper is None:
                self._keeper = threading.Thread(
                    target=self._keep_alive, name="headgate-push-keeper", daemon=True
                )
                self._keeper.start()
            return True

    def unsubscribe(self, pattern: str, id: str) -> bool:
        """Whether there was one. Nothing more is told; a callback at work is not waited for."""
        return bool(self._remove([Key(pattern, id)]))

    def unsubscribe_all(self, id: str) -> int:
        """How many there were."""
        with self._lock:
            return self._remove([key for key in self._tellers if key.id == id])

    def close(self) -> None:
        """Everything published so far is told first. A callback that hangs is given up after a while."""
        self._stopping.set()
        with self._lock:
            tellers = list(self._tellers.values())
            keeper, self._keeper = self._keeper, None
        for teller in tellers:
            teller.finish()
        for teller in tellers:
            teller.wait_until_told()
        self._tellers.clear()
        if keeper is not None and keeper is not threading.current_thread():
            keeper.join()

    def renew(self) -> None:
        """The subscriptions live on; where one is gone already, there is another from now on."""
        with self._lock:
            tellers = list(self._tellers.values())
        for teller in tellers:
            teller.renew()

    def _remove(self, keys: Iterable[Key]) -> int:
        with self._lock:
            found = [self._tellers.pop(key) for key in keys if key in self._tellers]
        for teller in found:
            teller.end()
        return len(found)

    def _keep_alive(self) -> None:
        while not self._stopping.wait(RENEW_S):
            try:
                self.renew()
            except DatabaseClosed:
                return
            except Exception as problem:  # this thread goes on
                _log.warning("cannot keep the subscribers alive: %s; trying again", problem)


class _Teller:
    """One callback, its subscription, and the thread that calls it."""

    def __init__(self, engine: Engine, key: Key, callback: Callback) -> None:
        self._engine, self._operations = engine, engine.operations
        self._key, self._callback, self._name = key, callback, new_name()
        self._told: list[Receipt] = []
        self._finishing, self._ended = threading.Event(), threading.Event()
        self._progress_at = time.monotonic()
        info = engine.run(listen(self._operations, self._name, key.pattern))
        try:
            self._waiter = Waiting(engine, info, notified=True, poll=None)
        except BaseException:
            self._drop()
            raise
        self._thread = threading.Thread(
            target=self._tell, name=f"headgate-push-{key.id}", daemon=True
        )
        self._thread.start()

    def renew(self) -> None:
        if self._engine.run(self._operations.keep_alive(self._name, KEPT_US)):
            return
        if not self._ended.is_set() and not self._finishing.is_set():
            warn_of_absence(self._key)
            self._waiter.turn_to(
                self._engine.run(listen(self._operations, self._name, self._key.pattern))
            )

    def end(self) -> None:
        """Nothing more is told."""
        self._ended.set()
        self._waiter.wake()
        self._drop()

    def finish(self) -> None:
        """What was published so far is told, and then nothing more."""
        try:
            self._engine.run(stop_listening(self._operations, self._name))
        except QueueError as problem:
            _log.warning("subscriber %r may be told less than all: %s", self._key.id, problem)
        self._progress_at = time.monotonic()
        self._finishing.set()
        self._waiter.wake()

    def wait_until_told(self) -> None:
        while self._thread.is_alive() and self._thread is not threading.current_thread():
            left = self._progress_at + STALLED_S - time.monotonic()
            if left <= 0:
                warn_of_stall(self._key)
                break
            self._thread.join(left)
        self._ended.set()
        self._drop()

    def _drop(self) -> None:
        try:
            self._engine.run(self._operations.delete(self._name))
        except QueueNotFound:  # others drop what was away for too long
            return
        except QueueError as problem:
            _log.warning("subscription %r stays for a while: %s", self._name, problem)

    def _tell(self) -> None:
        with self._waiter as waiter:
            while not self._ended.is_set():
                waiter.prepare()
                try:
                    if self._tell_some(waiter.queue) or self._ended.is_set():
                        continue
                    if self._finishing.is_set():
                        return
                    waiter.wait()
                except DatabaseClosed:
                    return
                except Exception as problem:  # nothing may end this thread but closing it
                    if self._ended.is_set():
                        return
                    _log.warning("subscriber %r: %s; trying again", self._key.id, problem)
                    self._ended.wait(RETRY_S)

    def _tell_some(self, info: QueueInfo) -> int:
        """The next messages; with the claim, those told before are acked."""
        claimed, _ = self._engine.run(
            self._operations.claim(info, BATCH, LEASE_US, acks=self._told)
        )
        self._told = []
        for one in claimed:
            if self._ended.is_set():
                break
            self._call(one.message)
            self._told.append(one.receipt)
        return len(claimed)

    def _call(self, message: Message) -> None:
        try:
            self._callback(message)
        except BaseException:  # sys.exit too: it would end this thread, and nobody would know
            warn_of_failure(self._key, message)
        self._progress_at = time.monotonic()

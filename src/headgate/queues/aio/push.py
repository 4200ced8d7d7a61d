"""Callbacks for every message whose topic matches a pattern, whichever connection or program published it.

Each callback has a subscription of its own, which exists as long as this process renews it. So a callback misses no
message that was published after it was added, however fast consumers ack and however slow the callback is: its messages
wait in the database, and a callback that hangs delays no other. A message is acked when the callback has returned or
raised.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from headgate.checks import check_function
from headgate.errors import DatabaseClosed, QueueError, QueueNotFound, QueueOptionsError
from headgate.filters import FALSE, Filter, TopicMatch, check_pattern
from headgate.message import Message
from headgate.queues import arguments
from headgate.queues.aio.tasks import AsyncEvent, AsyncWorker, Lock, call, ends_worker, join_all
from headgate.queues.aio.wakeup import AsyncWakeup
from headgate.queues.engine import AsyncEngine, Operation, QueueInfo, QueueOptions, Receipt

_log = logging.getLogger(__name__)

AsyncCallback: TypeAlias = Callable[[Message], object]

# How long the messages for a process that died are kept, and how long a process may be stopped and still miss nothing.
KEPT_US: Final = 3_600_000_000
RENEW_S: Final = 20.0
BATCH: Final = 200
# No other consumer claims from the subscription of a callback, so its leases need not end before the subscription.
LEASE_US: Final = 10 * 365 * 86_400_000_000
STALLED_S: Final = 10.0  # how long closing waits for one call of a callback
RETRY_S: Final = 1.0
_OPTIONS: Final = QueueOptions(max_attempts=0)


class AsyncCallbacks:
    """The callbacks of one database, each with a subscription and a task of its own."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._notifiers: dict[tuple[str, str], AsyncNotifier] = {}
        self._lock = Lock()
        self._stopping = AsyncEvent()
        self._renewer: AsyncWorker | None = None

    async def add(self, pattern: str, callback: AsyncCallback, id: str) -> bool:
        """Call the callback for every matching message published from now on; return False if the id has the pattern already."""
        check_pattern(pattern)
        check_function("callback", callback, QueueOptionsError, "print")
        arguments.storable_text("id", id)
        async with self._lock:
            if (pattern, id) in self._notifiers:
                return False
            if self._stopping.is_set():
                raise DatabaseClosed("this database was closed; connect again")
            notifier = AsyncNotifier(self._engine, pattern, id, callback)
            await notifier.start()
            self._notifiers[pattern, id] = notifier
            if self._renewer is None:
                self._renewer = AsyncWorker(self._renew_until_stopped, name="headgate-push-renewer")
                self._renewer.start()
            return True

    async def delete(self, pattern: str, id: str) -> bool:
        """Delete a callback, without waiting for a call that is running; return whether there was one."""
        async with self._lock:
            found = self._notifiers.pop((pattern, id), None)
        await self._end([] if found is None else [found])
        return found is not None

    async def delete_all(self, id: str) -> int:
        """Delete the callbacks of that id, whatever their pattern; return their number."""
        async with self._lock:
            found = [self._notifiers.pop(key) for key in list(self._notifiers) if key[1] == id]
        await self._end(found)
        return len(found)

    async def close(self) -> None:
        """Call the callbacks for everything published so far, then stop. A callback that hangs is abandoned after a while."""
        self._stopping.set()
        async with self._lock:
            notifiers = list(self._notifiers.values())
            renewer, self._renewer = self._renewer, None
        for notifier in notifiers:
            await notifier.finish()
        for notifier in notifiers:
            await notifier.wait_until_finished()
        self._notifiers.clear()
        if renewer is not None and not renewer.is_current():
            await join_all([renewer])

    async def renew(self) -> None:
        """Renew the subscriptions, and subscribe again where one has expired."""
        async with self._lock:
            notifiers = list(self._notifiers.values())
        for notifier in notifiers:
            await notifier.renew()

    async def _end(self, notifiers: Iterable[AsyncNotifier]) -> None:
        for notifier in notifiers:
            await notifier.end()

    async def _renew_until_stopped(self) -> None:
        while not await self._stopping.wait(RENEW_S):
            try:
                await self.renew()
            except DatabaseClosed:
                return
            except Exception as problem:  # the next round tries again
                _log.warning("cannot renew the subscriptions of callbacks: %s; retrying", problem)


class AsyncNotifier:
    """One callback, its subscription, and the task that calls it."""

    def __init__(self, engine: AsyncEngine, pattern: str, id: str, callback: AsyncCallback) -> None:
        self._engine, self._operations = engine, engine.operations
        self._pattern, self._id, self._callback = pattern, id, callback
        self._name = f"push-{uuid.uuid4().hex}"
        self._to_ack: list[Receipt] = []
        self._finishing, self._ended = AsyncEvent(), AsyncEvent()
        self._progress_at = time.monotonic()
        self._worker = AsyncWorker(self._notify_until_ended, name=f"headgate-push-{id}")

    async def start(self) -> None:
        try:
            info = await self._subscribe()
            self._wakeup = AsyncWakeup(self._engine, info, notified=True, poll=None)
        except BaseException:
            await self._delete_subscription()
            raise
        self._worker.start()

    async def renew(self) -> None:
        """Keep the subscription alive; when it has expired, subscribe again."""
        if await self._engine.run(self._operations.keep_alive(self._name, KEPT_US)):
            return
        if not self._ended.is_set() and not self._finishing.is_set():
            _log.warning(
                "callback %r misses messages of pattern %r: its subscription expired before it was renewed",
                self._id,
                self._pattern,
            )
            self._wakeup.turn_to(await self._subscribe())

    async def end(self) -> None:
        """Stop calling the callback, and delete its subscription."""
        self._ended.set()
        self._wakeup.wake()
        await self._delete_subscription()

    async def finish(self) -> None:
        """Receive nothing more, and let the task end when the callback was called for everything published so far."""
        try:
            await self._engine.run(self._stop_receiving())
        except QueueError as problem:
            _log.warning("callback %r may not be called with everything: %s", self._id, problem)
        self._progress_at = time.monotonic()
        self._finishing.set()
        self._wakeup.wake()

    async def wait_until_finished(self) -> None:
        """Wait until the callback was called for everything, or hangs; then delete its subscription."""
        while self._worker.is_alive() and not self._worker.is_current():
            left = self._progress_at + STALLED_S - time.monotonic()
            if left <= 0:
                _log.warning(
                    "callback %r has not returned for %.0f s: closing without its other messages",
                    self._id,
                    STALLED_S,
                )
                await self._worker.abandon()
                break
            await self._worker.join(left)
        self._ended.set()
        await self._delete_subscription()

    # -- its subscription --

    async def _subscribe(self) -> QueueInfo:
        return await self._engine.run(self._set_filter(TopicMatch(self._pattern)))

    def _set_filter(self, filter: Filter) -> Operation[QueueInfo]:
        return self._operations.subscribe(self._name, filter, options=_OPTIONS, lease_us=KEPT_US)

    def _stop_receiving(self) -> Operation[QueueInfo]:
        """Receive what was published until now, also with plain SQL, and nothing more."""
        yield from self._operations.route()
        return (yield from self._set_filter(FALSE))

    async def _delete_subscription(self) -> None:
        try:
            await self._engine.run(self._operations.delete(self._name))
        except QueueNotFound:  # it expired, and another process has deleted it
            return
        except QueueError as problem:
            _log.warning("cannot delete subscription %r, it will expire: %s", self._name, problem)

    # -- the loop of its task --

    async def _notify_until_ended(self) -> None:
        try:
            while not self._ended.is_set():
                self._wakeup.prepare()
                try:
                    if await self._notify_some(self._wakeup.queue) or self._ended.is_set():
                        continue
                    if self._finishing.is_set():
                        return
                    await self._wakeup.wait()
                except DatabaseClosed:
                    return
                except Exception as problem:  # only closing may end this task
                    if self._ended.is_set():
                        return
                    _log.warning("callback %r: %s; retrying", self._id, problem)
                    await self._ended.wait(RETRY_S)
        finally:
            self._wakeup.close()

    async def _notify_some(self, info: QueueInfo) -> int:
        """Ack the last messages and claim the next in one transaction, and call the callback for each; return their number."""
        operation = self._operations.claim(info, BATCH, LEASE_US, acks=self._to_ack)
        claimed, _ = await self._engine.run(operation)
        self._to_ack = []
        for one in claimed:
            if self._ended.is_set():
                break
            await self._notify(one.message)
            self._to_ack.append(one.receipt)
        return len(claimed)

    async def _notify(self, message: Message) -> None:
        try:
            await call(self._callback, message)
        except BaseException as problem:  # sys.exit too
            if ends_worker(problem):
                raise
            _log.warning(
                "callback %r failed on a message of topic %r",
                self._id,
                message.topic,
                exc_info=True,
            )
        self._progress_at = time.monotonic()

"""A worker in one process: consumers in threads, or, for an async handler, as tasks of one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from threading import Lock, Thread
from typing import Any, Protocol

from headgate.queues import ConsumerSet, HandlerReport, connect
from headgate.queues.aio import AsyncConsumerSet
from headgate.queues.aio import connect as connect_async
from headgate.worker.options import MessageHandler, WorkerOptions, is_async

_log = logging.getLogger(__name__)


class Stoppable(Protocol):
    """Work that can be ended: soon by `drain`, or at once by `stop`. Called from any thread."""

    def drain(self) -> None: ...

    def stop(self) -> None: ...


class Control:
    """Passes `drain` and `stop` on to the work that is attached to it, or keeps them until there is some."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._target: Stoppable | None = None
        self.is_draining = self.is_stopped = False

    def attach(self, target: Stoppable) -> None:
        with self._lock:
            self._target = target
        if self.is_stopped:
            target.stop()
        elif self.is_draining:
            target.drain()

    def drain(self) -> None:
        """Finish the messages in hand, and take no new ones."""
        with self._lock:
            self.is_draining = True
            target = self._target
        if target is not None:
            target.drain()

    def stop(self) -> None:
        """Give the messages in hand back to their queues."""
        with self._lock:
            self.is_draining = self.is_stopped = True
            target = self._target
        if target is not None:
            target.stop()


def drain_on(wait: Callable[[float | None], bool], control: Control, grace_s: float | None) -> None:
    """Start a thread that drains the first time `wait` returns, and stops the second time, or after `grace_s`."""

    def listen() -> None:
        wait(None)
        _log.info(
            "finishing the messages in hand and taking no new ones; a second signal gives them back"
        )
        control.drain()
        if wait(grace_s):
            _log.warning("giving back the messages in hand")
        else:
            _log.warning(
                "handlers have not returned within %g s: giving back their messages", grace_s
            )
        control.stop()

    Thread(target=listen, name="headgate-signals", daemon=True).start()


def run_here(
    options: WorkerOptions,
    handler: MessageHandler,
    observe: Callable[[HandlerReport], object],
    control: Control,
    on_ready: Callable[[], object] = lambda: None,
) -> None:
    """Call the handler for each message until told to end; if `once`, until nothing is ready."""
    observe = _log_first(observe) if _log.isEnabledFor(logging.DEBUG) else observe
    if not is_async(handler):
        _run_threads(options, handler, observe, control, on_ready)
        return
    runner = asyncio.Runner()
    runner.run(_run_tasks(options, handler, observe, control, on_ready))
    if not control.is_stopped:  # after a stop, tasks are not waited for
        runner.close()


def _log_first(observe: Callable[[HandlerReport], object]) -> Callable[[HandlerReport], object]:
    def observe_and_log(report: HandlerReport) -> None:
        facts = {"queue": report.queue, "id": report.id, "attempt": report.attempts}
        facts |= {"seconds": round(report.seconds, 6), "outcome": report.outcome}
        _log.debug("message %d of %r: %s", report.id, report.queue, report.outcome, extra=facts)
        observe(report)

    return observe_and_log


def _run_threads(
    options: WorkerOptions,
    handler: MessageHandler,
    observe: Callable[[HandlerReport], object],
    control: Control,
    on_ready: Callable[[], object],
) -> None:
    with connect(options.database, access="change") as database:
        shared = _consumer_options(options, observe)
        queues = [database.find(name) for name in options.queues]
        consumers = [queue.consumer(handler, threads=options.threads, **shared) for queue in queues]
        for consumer in consumers:
            consumer.replaces_hung = options.replaces_hung
        work = ConsumerSet(consumers, until_empty=options.once)
        control.attach(work)
        on_ready()
        with ExitStack() as stack:
            if options.schedules and not options.once:
                stack.enter_context(database.scheduler())
            work.run()


async def _run_tasks(
    options: WorkerOptions,
    handler: MessageHandler,
    observe: Callable[[HandlerReport], object],
    control: Control,
    on_ready: Callable[[], object],
) -> None:
    async with await connect_async(options.database, access="change") as database:
        shared = _consumer_options(options, observe)
        queues = [await database.find(name) for name in options.queues]
        consumers = [queue.consumer(handler, tasks=options.threads, **shared) for queue in queues]
        for consumer in consumers:
            consumer.replaces_hung = options.replaces_hung
        work = AsyncConsumerSet(consumers, until_empty=options.once)
        control.attach(work)
        on_ready()
        async with AsyncExitStack() as stack:
            if options.schedules and not options.once:
                await stack.enter_async_context(database.scheduler())
            await work.run()


def _consumer_options(
    options: WorkerOptions, observe: Callable[[HandlerReport], object]
) -> dict[str, Any]:
    return {
        "filter": options.filter,
        "batch": options.batch,
        "lease": options.lease,
        "timeout": options.timeout,
        "retry": options.retry,
        "name": options.name,
        "observer": observe,
    }

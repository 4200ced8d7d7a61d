"""Consumers of one or several queues that begin and end together, as a worker runs them."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.queues.aio.consumer import AsyncConsumer
from headgate.queues.aio.tasks import AsyncEvent, AsyncWorker, join_all, setter


class AsyncConsumerSet:
    """Runs consumers until `drain` or `stop` is called: from any thread, but not from a signal handler."""

    def __init__(self, consumers: Sequence[AsyncConsumer], *, until_empty: bool = False) -> None:
        self._consumers, self._until_empty = consumers, until_empty
        self._draining, self._ended = AsyncEvent(), AsyncEvent()
        self._begin_to_drain, self._end = setter(self._draining), setter(self._ended)
        self.is_stopped = False

    def drain(self) -> None:
        """Claim nothing more, and end when the running handlers have returned."""
        self._begin_to_drain()

    def stop(self) -> None:
        """End without waiting for running handlers: their messages are released."""
        self.is_stopped = True
        self._begin_to_drain()
        self._end()

    async def run(self) -> None:
        """Consume until `drain` or `stop` is called; if `until_empty`, until nothing is ready."""
        waiting = AsyncWorker(self._wait_until_idle, name="headgate-idle")
        closing = AsyncWorker(self._close_all, name="headgate-closing")
        try:
            for consumer in self._consumers:
                if self._until_empty:
                    await consumer.start_until_empty()
                else:
                    await consumer.start()
            waiting.start()
            await self._draining.wait()
            closing.start()
            await self._ended.wait()
        except BaseException:  # cancelled, or one of the consumers could not start
            self.is_stopped = True
            raise
        finally:
            if self.is_stopped:
                for consumer in self._consumers:
                    await consumer.stop()
        await join_all([waiting, closing])

    async def _wait_until_idle(self) -> None:
        for consumer in self._consumers:
            await consumer.wait_until_idle()
        self._draining.set()

    async def _close_all(self) -> None:
        for consumer in self._consumers:
            consumer.stop_claiming()
        for consumer in self._consumers:
            await consumer.close()
        self._ended.set()

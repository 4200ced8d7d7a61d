# Generated from headgate/queues/aio/consumer_set.py by tools/generate_sync.py: do not edit, run `make generate`.
"""Consumers of one or several queues that begin and end together, as a worker runs them."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.queues.consumer import Consumer
from headgate.queues.threads import Event, Worker, join_all, setter


class ConsumerSet:
    """Runs consumers until `drain` or `stop` is called: from any thread, but not from a signal handler."""

    def __init__(self, consumers: Sequence[Consumer], *, until_empty: bool = False) -> None:
        self._consumers, self._until_empty = consumers, until_empty
        self._draining, self._ended = Event(), Event()
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

    def run(self) -> None:
        """Consume until `drain` or `stop` is called; if `until_empty`, until nothing is ready."""
        waiting = Worker(self._wait_until_idle, name="headgate-idle")
        closing = Worker(self._close_all, name="headgate-closing")
        try:
            for consumer in self._consumers:
                if self._until_empty:
                    consumer.start_until_empty()
                else:
                    consumer.start()
            waiting.start()
            self._draining.wait()
            closing.start()
            self._ended.wait()
        except BaseException:  # cancelled, or one of the consumers could not start
            self.is_stopped = True
            raise
        finally:
            if self.is_stopped:
                for consumer in self._consumers:
                    consumer.stop()
        join_all([waiting, closing])

    def _wait_until_idle(self) -> None:
        for consumer in self._consumers:
            consumer.wait_until_idle()
        self._draining.set()

    def _close_all(self) -> None:
        for consumer in self._consumers:
            consumer.stop_claiming()
        for consumer in self._consumers:
            consumer.close()
        self._ended.set()

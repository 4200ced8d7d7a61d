"""What the asyncio form of streams waits for: calls in worker threads, and changes of files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from headgate.errors import StreamClosed
from headgate.streams.read.consumer import longest_sleep, watch_streams

Result = TypeVar("Result")


def call_in_thread(executor: Executor, call: Callable[[], Result]) -> asyncio.Future[Result]:
    """Start a call in a worker thread of a stream; StreamClosed when it has none any more."""
    loop = asyncio.get_running_loop()
    try:
        return loop.run_in_executor(executor, call)
    except RuntimeError:
        raise StreamClosed("the stream was closed") from None


class Lane:
    """Runs calls in worker threads, one at a time. A call goes on when its caller is cancelled."""

    def __init__(self, executor: Executor) -> None:
        self._executor, self._turn = executor, asyncio.Lock()
        self._running: asyncio.Future[Any] | None = None

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run the call once the one before has ended, and return its result."""
        async with self._turn:
            if self._running is not None and not self._running.done():  # its caller was cancelled
                await asyncio.wait([self._running])
            running = self._running = call_in_thread(self._executor, call)
            # An exception counts as seen even if the caller was cancelled.
            running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            return await asyncio.shield(running)


class FileChanges:
    """Changes of a stream's files, reported to the event loop."""

    def __init__(self, directory: Path) -> None:
        self._changed, self._loop = asyncio.Event(), asyncio.get_running_loop()
        self._watch = watch_streams(directory, on_change=self._call_loop)

    def _call_loop(self) -> None:
        with suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._changed.set)

    async def wait(self, seconds: float | None) -> None:
        """Wait for a change since the last wait, at most `seconds`, and never longer than `longest_sleep`."""
        longest = longest_sleep(self._watch)
        with suppress(TimeoutError):
            async with asyncio.timeout(longest if seconds is None else min(seconds, longest)):
                await self._changed.wait()
        self._changed.clear()

    def close(self) -> None:
        """Stop watching; a task that waits returns."""
        self._watch.close()
        self._changed.set()

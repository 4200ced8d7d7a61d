"""The asyncio API, called from a thread that blocks: so it passes the tests of the sync API."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache, partial
from typing import Any

from headgate import aio


class Loop:
    """An event loop in a thread of its own, until the process ends."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, awaitable: Any) -> Any:
        async def result() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(result(), self._loop).result(timeout=60)

    def collect(self, iterator: Any) -> list[Any]:
        async def everything() -> list[Any]:
            return [each async for each in iterator]

        return self.call(everything())

    def make(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call it inside the loop, and await what it returns if that is needed."""

        async def made() -> Any:
            answer = function(*args, **options)
            return await answer if inspect.isawaitable(answer) else answer

        return self.call(made())


class Blocking:
    """An object of the asyncio API; what its methods return is wrapped, too."""

    def __init__(self, loop: Loop, inner: Any) -> None:
        self._inner_loop, self._inner = loop, inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not inspect.ismethod(value):
            return wrapped(self._inner_loop, value)
        return lambda *args, **options: self._call(value, args, options)

    def _call(self, method: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        loop = self._inner_loop
        if "threads" in options:
            options["tasks"] = options.pop("threads")
        given = [unwrapped(loop, arg) for arg in args]
        named = {name: _argument(loop, name, value) for name, value in options.items()}
        return wrapped(loop, loop.make(method, *given, **named))


class BlockingContext(Blocking):
    def __enter__(self) -> Any:
        self._inner_loop.call(self._inner.__aenter__())
        return self

    def __exit__(self, *problem: object) -> None:
        self._inner_loop.call(self._inner.__aexit__(None, None, None))


@cache
def the_loop() -> Loop:
    """The event loop of all databases."""
    return Loop()


def connect(url: str, **options: Any) -> BlockingContext:
    loop = the_loop()
    return BlockingContext(loop, loop.call(aio.connect(url, **options)))


def wrapped(loop: Loop, value: Any) -> Any:
    if isinstance(value, list):
        return [wrapped(loop, each) for each in value]
    if isinstance(value, aio.AsyncConsumer | aio.AsyncRelay | aio.AsyncScheduler):
        return BlockingContext(loop, value)
    if hasattr(value, "__aiter__"):
        return iter(loop.collect(value))
    if isinstance(value, aio.AsyncQueue | aio.AsyncDelivery | aio.AsyncOutbox) or hasattr(
        value, "operations"
    ):
        return Blocking(loop, value)
    return value


def unwrapped(loop: Loop, value: Any) -> Any:
    """An argument for the asyncio API: its own objects, and callbacks that do not block the loop."""
    if isinstance(value, Blocking):
        return value._inner
    if isinstance(value, list | tuple):
        return [unwrapped(loop, each) for each in value]
    if hasattr(value, "handler"):
        return aio.Member(value.id, _in_thread(loop, value.handler), value.filter, value.predicate)
    return _in_thread(loop, value) if _is_callback(value) else value


def _argument(loop: Loop, name: str, value: Any) -> Any:
    return value if name in ("predicate", "observer") else unwrapped(loop, value)


def _is_callback(value: Any) -> bool:
    return inspect.isroutine(value)


def _in_thread(loop: Loop, callback: Callable[[Any], object]) -> Callable[[Any], Any]:
    """A coroutine function that runs a callback in a daemon thread: it may block forever."""

    async def called(argument: Any) -> Any:
        done: Future[tuple[BaseException | None, Any]] = Future()
        target = partial(_settle, done, callback, wrapped(loop, argument))
        threading.Thread(target=target, daemon=True).start()
        problem, answer = await asyncio.wrap_future(done)
        if problem is not None:
            raise problem
        return answer

    return called


def _settle(
    done: Future[tuple[BaseException | None, Any]],
    callback: Callable[[Any], object],
    argument: Any,
) -> None:
    # A future that runs cannot be cancelled any more, so that a late result is no error.
    if not done.set_running_or_notify_cancel():
        return
    try:
        answer = callback(argument)
    except BaseException as problem:  # raised again where it is awaited
        done.set_result((problem, None))
    else:
        done.set_result((None, answer))

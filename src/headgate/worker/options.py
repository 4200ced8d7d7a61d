"""The options of a worker: its handler and queues, how many messages at a time, time limits, retries."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import Any, TypeAlias

from headgate.errors import HeadgateError
from headgate.queues import Retry

# Called with a Delivery or, if it is async, with an AsyncDelivery.
MessageHandler: TypeAlias = Callable[[Any], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of one worker, in a form that can be sent to another process."""

    handler: str  # module:function
    database: str
    queues: tuple[str, ...]
    filter: str | None = None
    threads: int = 1  # of each process and queue; tasks, if the handler is async
    batch: int = 1
    lease: timedelta = timedelta(seconds=30)
    timeout: timedelta | None = None
    retry: Retry = field(default_factory=Retry)
    once: bool = False
    # Whether it publishes the due messages of schedules in the database; never with `once`.
    schedules: bool = True
    replaces_hung: bool = True  # whether another thread takes the place of one whose handler hangs
    name: str = "worker"


def load_handler(text: str) -> MessageHandler:
    """Import the function that `module:function` names. The working directory is put on the path, as `python -m` does."""
    module_name, colon, path = text.partition(":")
    if not colon or not module_name or not path:
        raise HeadgateError(
            f"a handler is written module:function, such as shop.orders:handle, not {text!r}"
        )
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Any = _load_module(module_name, text)
    for name in path.split("."):
        if not hasattr(found, name):
            raise HeadgateError(
                f"{text}: {getattr(found, '__name__', found)} has no {name!r}; check the spelling"
            )
        found = getattr(found, name)
    if not callable(found):
        raise HeadgateError(f"{text} is no function but {type(found).__name__}")
    _check_takes_delivery(found, text)
    handler: MessageHandler = found
    return handler


def _check_takes_delivery(handler: Callable[..., object], text: str) -> None:
    try:
        signature = inspect.signature(handler)
    except ValueError:  # some functions written in C have no signature
        return
    try:
        signature.bind(None)
    except TypeError:
        raise HeadgateError(
            f"{text}: a handler is called with one delivery, such as handle(delivery), not {signature}"
        ) from None


def _load_module(name: str, text: str) -> Any:
    if name.endswith(".py"):
        module = text.replace(".py:", ":", 1)
        raise HeadgateError(f"{text}: name the module, not its file: {module}")
    try:
        return import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and (
            name == problem.name or name.startswith(problem.name + ".")
        ):
            raise HeadgateError(
                f"{text}: there is no module {problem.name!r} in {os.getcwd()} or on the path; start the worker where it is, "
                "or set PYTHONPATH"
            ) from problem
        raise HeadgateError(f"{text}: importing {name} failed: {problem}; install it") from problem
    except Exception as problem:
        kind = type(problem).__name__
        raise HeadgateError(
            f"{text}: importing {name} failed: {kind}: {problem}; --debug prints the traceback"
        ) from problem


def is_async(handler: MessageHandler) -> bool:
    """Whether calling the handler makes a coroutine."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004
    )

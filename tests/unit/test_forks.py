"""A process that forks while its threads are at work: the child finds locks free, and what they guard complete."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest

from headgate.filters.nodes import Filter
from headgate.filters.parser import parse
from headgate.forks import call_before_fork
from headgate.matching.matcher import Matcher
from headgate.message import Message
from headgate.routing.topology import Topology

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
PATIENCE = 10  # seconds
A_ONE = Message(headers={"a": 1})


def true_in_child(holds: Callable[[], bool]) -> bool:
    """Whether it holds in a forked child; False when the child hangs."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(PATIENCE)
        os._exit(0 if holds() else 1)
    return os.waitpid(pid, 0)[1] == 0


class Pause:
    """Holds up one thread until this process is about to fork."""

    def __init__(self) -> None:
        self.begun, self.forking = Event(), Event()
        call_before_fork(self, lambda pause: pause.forking.set())

    def __call__(self) -> None:
        self.begun.set()
        assert self.forking.wait(PATIENCE)


class PausingArguments(dict[str, Any]):
    """The arguments of a binding that take until the fork to be read."""

    pause: Pause

    def items(self) -> Any:
        self.pause()
        return super().items()


@contextmanager
def running(work: Callable[[], object], pause: Pause) -> Iterator[None]:
    """The work has begun in another thread, and goes on when this process forks."""
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(work)
        assert pause.begun.wait(PATIENCE)
        yield
        busy.result()


def test_a_child_routes_by_what_a_thread_of_its_parent_was_binding():
    topology = Topology()
    topology.declare_queue("q")
    arguments = PausingArguments({"x-match": "all", "a": 1})
    arguments.pause = pause = Pause()

    def bind() -> None:
        topology.bind("amq.headers", queue="q", arguments=arguments)

    with running(bind, pause):
        assert true_in_child(lambda: "q" in topology.route("amq.headers", A_ONE).queues)
    assert "q" in topology.route("amq.headers", A_ONE).queues


def test_a_child_finds_the_filter_that_was_being_added_to_a_matcher():
    matcher: Matcher[str] = Matcher()
    pause = Pause()

    def entries() -> Iterator[tuple[str, Filter]]:
        yield "s", parse("a = 1")
        pause()

    with running(lambda: matcher.add_all(entries()), pause):
        assert true_in_child(lambda: matcher.match(A_ONE) == {"s"})
    assert matcher.match(A_ONE) == {"s"}


def test_a_process_that_forks_while_it_binds_goes_on_binding_in_both():
    matcher: Matcher[str] = Matcher()

    def entries() -> Iterator[tuple[str, Filter]]:
        yield "s", parse("a = 1")
        assert true_in_child(lambda: len(matcher) == 1)

    matcher.add_all(entries())
    assert matcher.match(A_ONE) == {"s"}
    with ThreadPoolExecutor(1) as pool:  # the lock is free for others again
        assert pool.submit(matcher.match, A_ONE).result(PATIENCE) == {"s"}

"""Interruptions (Ctrl-C) while the pool is used lose no place in it."""

from __future__ import annotations

import contextlib
import itertools
import sys
from types import FrameType

import pytest

from headgate.queues.postgres import pool as module
from headgate.queues.postgres.pool import Pool

MOST = 1_000  # calls in one use of the pool, and more than it has


class IdleConnection:
    """A connection that can be used, without a server."""

    def close(self) -> None:
        """Nothing is open."""


class Interruptions:
    """Raises KeyboardInterrupt at the begin of two of the calls in a `with` block, where a signal may raise it, too."""

    def __init__(self, first: int = sys.maxsize, later: int = sys.maxsize) -> None:
        self._first, self._second, self.calls = first, first + later, 0

    def __enter__(self) -> Interruptions:
        sys.setprofile(self._count)
        sys.settrace(self._interrupt)  # is removed as it raises
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename != __file__:
            self.calls += 1
            assert self.calls < MOST, "waits for a place that is never free again"
            if self.calls == self._second:
                raise KeyboardInterrupt

    def _interrupt(self, frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_filename != __file__ and self.calls + 1 == self._first:
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def without_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_alive", lambda connection: True)
    monkeypatch.setattr(module, "is_idle", lambda connection: True)
    monkeypatch.setattr(module, "_LOST_AFTER_S", 0.0)


def use(pool: Pool) -> None:
    with pool.connection():
        pass


def test_two_interruptions_at_any_moments_lose_no_place():
    with Interruptions() as whole:
        use(Pool(IdleConnection, 1))
    assert 10 < whole.calls < MOST / 2
    for first, later in itertools.product(range(1, whole.calls), range(1, 20)):
        pool = Pool(IdleConnection, 1)
        with contextlib.suppress(KeyboardInterrupt), Interruptions(first, later):
            use(pool)
        with Interruptions():
            use(pool)

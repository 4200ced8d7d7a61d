"""fork(): what a child must not share with its parent is closed before, or abandoned in the child.

A child inherits open files, locks that other threads hold, and connections that serve one process only. The owner of
such a thing registers here what is to be done about it; the registration ends with the owner.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_log = logging.getLogger(__name__)

_Registered: TypeAlias = WeakKeyDictionary[Any, Callable[[Any], None]]
_before: _Registered = WeakKeyDictionary()
_in_parent: _Registered = WeakKeyDictionary()
_in_child: _Registered = WeakKeyDictionary()
_locks: WeakKeyDictionary[Any, None] = WeakKeyDictionary()
_lasting: list[_LastingOwner] = []
_held: dict[int, list[Any]] = {}  # the locks held for a fork, by the thread that forks


def call_before_fork(owner: T, act: Callable[[T], None]) -> None:
    """Register `act(owner)` to be called before each fork of this process, as long as the owner exists."""
    _before[owner] = act


def call_in_parent(owner: T, act: Callable[[T], None]) -> None:
    """Register `act(owner)` to be called in this process after each fork."""
    _in_parent[owner] = act


def call_in_child(owner: T, act: Callable[[T], None]) -> None:
    """Register `act(owner)` to be called in every child that is forked while the owner exists."""
    _in_child[owner] = act


class _LastingOwner:
    """The owner of an act that is registered for ever."""


def call_in_every_child(act: Callable[[], None]) -> None:
    """Register `act()` to be called in every child that is forked, in the order in which acts were registered."""
    owner = _LastingOwner()
    _lasting.append(owner)
    call_in_child(owner, lambda _: act())


def keep_across_forks(lock: T) -> T:
    """Make a fork wait until no other thread holds the lock: in the child it is free, and its data is consistent.

    Of two locks that a thread holds together, the one it takes first must be registered first.
    """
    _locks[lock] = None
    return lock


def keep_for_ever(thing: Any) -> None:
    """Never finalize an inherited object: its finalizer would close what the parent still uses."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _call(registered: _Registered) -> None:
    for reference in registered.keyrefs():  # a copy: other threads keep registering
        try:
            if (owner := reference()) is not None:
                registered[owner](owner)
        except Exception:  # the others must be called as well
            _log.exception("fork: the handler of %r failed", reference)


def _hold_locks() -> None:
    held = _held[threading.get_ident()] = []
    for reference in _locks.keyrefs():
        lock = reference()
        if lock is not None and lock.acquire():
            held.append(lock)


def _release_locks() -> None:
    for lock in _held.pop(threading.get_ident(), ()):
        lock.release()


def _prepare() -> None:
    _call(_before)  # may wait for other threads, so it comes before their locks are held
    _hold_locks()


def _finish(registered: _Registered) -> None:
    _release_locks()
    _call(registered)


os.register_at_fork(
    before=_prepare,
    after_in_parent=lambda: _finish(_in_parent),
    after_in_child=lambda: _finish(_in_child),
)

"""fork(): what a child must not share with its parent is closed before, or given up in the child.

A child inherits open files, locks that other threads held, and connections whose other end knows one partner. Whoever
owns such a thing says here what is to be done about it; the registration ends with the owner.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_log = logging.getLogger(__name__)

_Registered: TypeAlias = WeakKeyDictionary[Any, Callable[[Any], None]]
_before: _Registered = WeakKeyDictionary()
_in_parent: _Registered = WeakKeyDictionary()
_in_child: _Registered = WeakKeyDictionary()


def call_before_fork(owner: T, act: Callable[[T], None]) -> None:
    """Have `act(owner)` called before each fork of this process, as long as the owner exists."""
    _before[owner] = act


def call_in_parent(owner: T, act: Callable[[T], None]) -> None:
    """Have `act(owner)` called in this process after each fork."""
    _in_parent[owner] = act


def call_in_child(owner: T, act: Callable[[T], None]) -> None:
    """Have `act(owner)` called in every child that is forked while the owner exists."""
    _in_child[owner] = act


def keep_for_ever(thing: Any) -> None:
    """Never finalize an inherited object: its finalizer would end what the parent still uses."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _call(registered: _Registered) -> None:
    for reference in registered.keyrefs():  # in one step: other threads go on registering
        try:
            if (owner := reference()) is not None:
                registered[owner](owner)
        except Exception:  # the others have to be called as well
            _log.exception("fork: %r failed", reference)


os.register_at_fork(
    before=lambda: _call(_before),
    after_in_parent=lambda: _call(_in_parent),
    after_in_child=lambda: _call(_in_child),
)

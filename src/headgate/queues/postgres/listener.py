"""LISTEN: one connection that receives the notifications for all consumers of an engine.

A notification sent while the connection is lost is lost. So whenever it is up again, all consumers are woken.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable, Hashable
from typing import Final

import psycopg

from headgate.errors import HeadgateError
from headgate.forks import call_in_child
from headgate.queues.database_url import PostgresTarget, hide_credentials
from headgate.queues.engine import CommitWatch, Wake
from headgate.queues.postgres.connection import open_connection, translate_errors
from headgate.queues.wakers import Waiter, Wakers

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0  # between attempts to reconnect
_LONGEST_ID: Final = 20  # digits
_SETTINGS: Final = {"application_name": "headgate listener"}


class Listener:
    """Wakes consumers from a thread of its own, which runs from the first watch until the listener is closed."""

    def __init__(self, target: PostgresTarget) -> None:
        self._target, self._shown = target, hide_credentials(target.url)
        self._start_over()
        call_in_child(self, Listener._start_over)

    def _start_over(self) -> None:
        """Begin without a thread and without consumers: when created, and in a forked child."""
        self._lock = threading.Lock()
        self._wakers = Wakers()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._stop_read = self._stop_write = -1  # a pipe, from the start of the thread on

    def add(self, wake: Wake) -> CommitWatch:
        """Call `wake` until the watch is closed; once as soon as the connection is up."""
        watch = self._wakers.add(wake)
        self._start_thread()
        return watch

    def join(
        self, line: Hashable, queue_id: Callable[[], int], wake: Callable[[], object]
    ) -> Waiter:
        """Join a line of consumers, of which a notification wakes one; return the waiter, whose watch ends when it is closed."""
        waiter = self._wakers.join(line, queue_id, wake)
        self._start_thread()
        return waiter

    def _start_thread(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                self._stop_read, self._stop_write = os.pipe()
                self._thread = threading.Thread(
                    target=self._run, name="headgate-listener", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        if self._stopping.is_set():
            return
        with self._lock:
            self._stopping.set()
        if self._thread is None:
            return
        os.write(self._stop_write, b"\0")
        if self._thread is not threading.current_thread():
            self._thread.join()
        os.close(self._stop_read)
        os.close(self._stop_write)

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            try:
                with open_connection(self._target, _SETTINGS) as connection:
                    pause = _FIRST_PAUSE_S
                    with translate_errors(connection):
                        self._listen(connection)
            except Exception as problem:  # only close() ends the listener
                # Operations raise by themselves; consumers that wait are woken when the connection is up again.
                known = isinstance(problem, HeadgateError)
                _log.warning(
                    "listener of %s: %s; trying again in %.2f s",
                    self._shown,
                    problem,
                    pause,
                    exc_info=not known,
                )
                self._stopping.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _listen(self, connection: psycopg.Connection) -> None:
        channel = psycopg.sql.Identifier(self._target.channel)
        connection.execute(psycopg.sql.SQL("LISTEN {}").format(channel), prepare=False)
        self._wakers.wake(None)
        readable = select.poll()
        readable.register(connection.fileno(), select.POLLIN)
        readable.register(self._stop_read, select.POLLIN)
        while not self._stopping.is_set():
            readable.poll()
            connection.pgconn.consume_input()
            self._wake_named(_payloads(connection))

    def _wake_named(self, payloads: list[bytes]) -> None:
        if payloads:
            self._wakers.wake(_parse_queue_ids(payloads))


def _parse_queue_ids(payloads: list[bytes]) -> frozenset[int] | None:
    """The ids of the queues; None, for all queues, when a payload is no id: any program may notify this channel."""
    if not all(payload.isdigit() and len(payload) < _LONGEST_ID for payload in payloads):
        return None
    return frozenset(map(int, payloads))


def _payloads(connection: psycopg.Connection) -> list[bytes]:
    """The payloads of the notifications that have arrived."""
    found = []
    while (notification := connection.pgconn.notifies()) is not None:
        found.append(notification.extra)
    return found

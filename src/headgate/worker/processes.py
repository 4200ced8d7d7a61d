"""A worker of several processes: a parent that starts them, replaces those that hang or die, and tells them to end.

The parent and each child talk through a pipe. The child says that it is ready, or why it cannot begin, and then reports once
a second what it has done; the parent says `drain` or `stop`. When the parent is killed, the pipe ends and the children drain.
Only the parent acts on signals: systemd and a terminal send them to every process, so a child would be told twice.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from threading import Event, Lock, Thread
from typing import Final

from headgate.errors import HeadgateError
from headgate.logs import LogSettings, log_as
from headgate.queues import HandlerReport
from headgate.worker.account import WorkAccount, WorkCounts
from headgate.worker.options import WorkerOptions, load_handler
from headgate.worker.work import Control, run_here

_log = logging.getLogger(__name__)

BEAT_S: Final = 1.0  # between two reports of a child
SILENCE_S: Final = 10.0  # beyond the timeout of handlers, after which a silent child is killed
STOP_S: Final = 10.0  # how long children may take to give back what they hold
RESTART_S: Final = (0.5, 30.0)  # first and longest pause before a child that died is replaced
REPLACE_ME: Final = 75  # the exit code of a child in which a handler hangs
_READY: Final = "ready"


def run_processes(
    options: WorkerOptions, count: int, logs: LogSettings, account: WorkAccount, control: Control
) -> None:
    """Run that many processes until told to end; if `once`, until nothing is ready. HeadgateError if they cannot begin."""
    Supervisor(options, count, logs, account, control).run()


# ---- the parent ----------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Child:
    """A child process, the parent's end of its pipe, and when it was last heard of."""

    number: int
    process: SpawnProcess
    pipe: Connection
    is_ready: bool = False
    heard_at: float = field(default_factory=time.monotonic)


class Supervisor:
    """Keeps the children running. `drain` and `stop` are called in another thread, and wake `run` through a pipe."""

    def __init__(
        self,
        options: WorkerOptions,
        count: int,
        logs: LogSettings,
        account: WorkAccount,
        control: Control,
    ) -> None:
        self._options = replace(options, replaces_hung=False)  # the process is replaced
        self._count, self._logs, self._account = count, logs, account
        self._control = control
        self._context = multiprocessing.get_context("spawn")
        self._woken, self._wake = self._context.Pipe(duplex=False)
        self._children: dict[int, Child] = {}
        self._due: dict[int, float] = {}  # when to start a child, by its number
        self._pauses: dict[int, float] = {}
        self._stopped_at: float | None = None
        self._has_begun = False  # whether a child was ever ready
        timeout = options.timeout
        self._silence_s = None if timeout is None else timeout.total_seconds() + SILENCE_S

    def drain(self) -> None:
        self._wake.send("drain")

    def stop(self) -> None:
        self._wake.send("stop")

    def run(self) -> None:
        self._due = dict.fromkeys(range(self._count), 0.0)
        self._control.attach(self)
        try:
            while self._due or self._children:
                self._start_due()
                self._listen()
                self._kill_silent()
        finally:
            for child in self._children.values():
                child.process.kill()
                child.process.join()
            self._account.processes = 0

    def _start_due(self) -> None:
        now = time.monotonic()
        for number in [number for number, at in self._due.items() if at <= now]:
            del self._due[number]
            ours, theirs = self._context.Pipe()
            name = f"{self._options.name}-{number}"
            process = self._context.Process(
                target=run_child, args=(self._options, self._logs, theirs), name=name
            )
            process.start()
            theirs.close()
            self._children[number] = Child(number, process, ours)
        self._account.processes = len(self._children)

    def _listen(self) -> None:
        """Wait for a message of a child, a command of another thread, or the end of a child; not for long."""
        by_source: dict[Connection | int, Child] = {}
        for child in self._children.values():
            by_source |= {child.pipe: child, child.process.sentinel: child}
        ready = wait([self._woken, *by_source], timeout=BEAT_S)
        if self._woken in ready:
            self._tell_children(self._woken.recv())
        for child in {by_source[source] for source in by_source.keys() & set(ready)}:
            ended = not child.process.is_alive()
            self._hear(child)
            if ended:
                self._bury(child)

    def _tell_children(self, command: str) -> None:
        self._due.clear()  # no more are started
        if command == "stop":
            self._stopped_at = time.monotonic()
        for child in self._children.values():
            try:
                child.pipe.send(command)
            except OSError:  # it has just ended
                continue

    def _hear(self, child: Child) -> None:
        try:
            while child.pipe.poll():
                said = child.pipe.recv()
                child.heard_at = time.monotonic()
                if isinstance(said, WorkCounts):
                    self._account.add(said)
                    self._pauses.pop(child.number, None)
                elif said == _READY:
                    child.is_ready = self._has_begun = True
                    _log.info(
                        "process %d is ready", child.process.pid, extra={"pid": child.process.pid}
                    )
                elif not self._has_begun:
                    raise HeadgateError(said)
                else:
                    _log.warning("process %d failed: %s", child.process.pid, said)
        except (EOFError, OSError):
            return

    def _bury(self, child: Child) -> None:
        """Note the end of a child, and start another in its place unless it has done its work."""
        child.process.join()
        child.pipe.close()
        del self._children[child.number]
        self._account.processes = len(self._children)
        code, facts = child.process.exitcode, {"pid": child.process.pid}
        if self._control.is_draining or (code == 0 and self._options.once):
            return
        self._account.replaced += 1
        if code == REPLACE_ME:
            _log.warning(
                "process %d has a handler that hangs: replaced", child.process.pid, extra=facts
            )
            self._due[child.number] = 0.0
            return
        self._account.died += 1
        pause = self._pauses.get(child.number, RESTART_S[0])
        self._pauses[child.number] = min(pause * 2, RESTART_S[1])
        self._due[child.number] = time.monotonic() + pause
        how = (
            f"was killed by signal {-code}"
            if code is not None and code < 0
            else f"ended with {code}"
        )
        _log.warning("process %d %s: replaced in %g s", child.process.pid, how, pause, extra=facts)

    def _kill_silent(self) -> None:
        """Kill children that have stopped reporting, or that do not end when they should."""
        now = time.monotonic()
        too_late = self._stopped_at is not None and now - self._stopped_at > STOP_S
        for child in self._children.values():
            silent = (
                self._silence_s is not None
                and child.is_ready
                and now - child.heard_at > self._silence_s
            )
            if too_late or silent:
                _log.warning("process %d does not answer: killed", child.process.pid)
                child.process.kill()


# ---- a child -------------------------------------------------------------------------------------------


def run_child(options: WorkerOptions, logs: LogSettings, pipe: Connection) -> None:
    """Work until the parent says `drain` or `stop`, and end the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not SIG_IGN, which programs that the handler starts would inherit.
        signal.signal(number, lambda number, frame: None)
    reporter = Reporter(pipe)
    with log_as(logs):
        code = _work_and_report(options, reporter, pipe)
        reporter.finish()
        logging.shutdown()
        os._exit(code)  # whatever threads are still running


def _work_and_report(options: WorkerOptions, reporter: Reporter, pipe: Connection) -> int:
    """Work, and return the exit code."""
    control = Control()

    def observe(report: HandlerReport) -> None:
        reporter.account.observe(report)
        if report.outcome == "timeout":  # a thread cannot be ended, a process can
            reporter.is_hanging = True
            control.drain()

    try:
        handler = load_handler(options.handler)
        Thread(target=_obey, args=(pipe, control), name="headgate-parent", daemon=True).start()
        run_here(options, handler, observe, control, reporter.start)
    except HeadgateError as problem:
        reporter.say(str(problem))
        return 2
    except BaseException as problem:
        _log.critical("the worker failed", exc_info=True)
        reporter.say(f"{type(problem).__name__}: {problem}")
        return 1
    return REPLACE_ME if reporter.is_hanging else 0


def _obey(pipe: Connection, control: Control) -> None:
    try:
        while True:
            if pipe.recv() == "stop":
                control.stop()
            else:
                control.drain()
    except (EOFError, OSError):
        _log.warning("the parent process has ended: finishing the messages in hand")
        control.drain()


class Reporter:
    """Reports to the parent once a second what was done, even if nothing was."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, Lock()
        self._ending = Event()
        self.account = WorkAccount()
        self.is_hanging = False  # whether a handler has not returned in time

    def start(self) -> None:
        self.say(_READY)
        Thread(target=self._report, name="headgate-reporter", daemon=True).start()

    def _report(self) -> None:
        while not self._ending.wait(BEAT_S):
            self.say(self.account.take())

    def finish(self) -> None:
        self._ending.set()
        self.say(self.account.take())

    def say(self, what: WorkCounts | str) -> None:
        try:
            with self._lock:
                self._pipe.send(what)
        except OSError:  # the parent is gone, see _obey
            return

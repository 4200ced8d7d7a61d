"""A process that has imported PySpark, Arrow and Headgate, and forks itself for each Python process that Spark wants.

Spark starts about eight Python processes for the first query of a session, and each would import a second of modules. The
session starts this server before its JVM, so that the imports happen while the JVM boots. `worker_launcher` stands in for
Python and asks here:

    launcher -> server   length, and the launcher's three standard files; a request as JSON
    server -> launcher   1 when it will be served, 0 when not; the child's process id; at its end, its wait status
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn, TypedDict

from headgate.files import require_executable
from headgate.spark import worker_launcher
from headgate.spark.worker_launcher import PYTHON_VARIABLE, SERVER_VARIABLE, without_archive

_MODULES: Final = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.connect.conversion",
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pandas",
    "headgate.spark.datasource",
    "headgate.spark.pipeline.stream_reader",
    "headgate.spark.sink.writer",
    "headgate.spark.sink.stream",
    "headgate.spark.sink.parquet",
    "headgate.streams.stream",
)
_NUMBER: Final = struct.Struct("<q")
_MOST_BYTES: Final = 1 << 24
_ACCEPTED, _REFUSED = _NUMBER.pack(1), _NUMBER.pack(0)
# What Spark gives to its workers, unless the user has set it.
_OF_WORKERS: Final = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
# What Python and libraries read once, when they are started or imported. Spark makes the variables PYTHON_… itself.
_READ_AT_START: Final = ("PYTHON", "ARROW_", "JE_ARROW_", "OMP_", "OPENBLAS_", "MKL_", "LD_", "LC_")


class Request(TypedDict):
    """What a launcher asks for: a module and its arguments, run with this environment in this folder."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str


# ---- the session's side ------------------------------------------------------------------------------


class ForkServer:
    """A fork server that runs as long as this object is open, and longer while one of its children runs."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="headgate-fork-"))
        try:
            self._start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _start(self) -> None:
        path = self._folder / "socket"
        self.python = write_launcher(self._folder)
        require_executable(self.python)
        # Bound here, so that a launcher can always connect; private, since only this user may enter its folder.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
            listener.listen(64)
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "headgate.spark.fork_server",
                    str(listener.fileno()),
                    str(self._folder),
                ],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                env={**_OF_WORKERS, **os.environ, "PYTHONUNBUFFERED": "YES"},
                start_new_session=True,  # Ctrl-C is for the program, which then stops its workers
            )
        # A fork of this process may outlive it, and the server must not.
        os.register_at_fork(after_in_child=self._release)
        self.variables = {
            "PYSPARK_PYTHON": str(self.python),
            SERVER_VARIABLE: str(path),
            PYTHON_VARIABLE: sys.executable,
        }  # what Spark's JVM must find in its environment

    def close(self) -> None:
        """Ask the server to end when its last child has ended. Does nothing in a fork of the process that started it."""
        if os.getpid() == self._owner:
            self._release()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _release(self) -> None:
        """Close this process's end of the pipe that keeps the server running."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self, timeout: float) -> int:
        """Wait for the end of the server's process."""
        return self._process.wait(timeout)


def write_launcher(folder: Path) -> Path:
    """Write an executable that Spark can call as it calls Python."""
    script = folder / "python"
    launcher = shlex.quote(str(Path(worker_launcher.__file__)))
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {launcher} "$@"\n')
    script.chmod(0o700)
    return script


# ---- the server --------------------------------------------------------------------------------------


def serve(listener: socket.socket) -> None:
    """Fork for each request until standard input ends and no child is left.

    When standard input ends, the output that the server shares with the process that started it is closed: a program that
    reads this output would wait for the server's end.
    """
    children: dict[int, socket.socket] = {}
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    selector = selectors.DefaultSelector()
    for waited_for in (listener, sys.stdin, wake):
        selector.register(waited_for, selectors.EVENT_READ)
    wanted = True
    while wanted or children:
        for key, _ in selector.select():
            if key.fileobj is listener:
                accept(listener, children, selector)
            elif key.fileobj is sys.stdin:
                wanted = bool(os.read(0, 4096))
                if not wanted:
                    selector.unregister(sys.stdin)
                    release_output()
            elif key.fileobj == wake:
                os.read(wake, 4096)
                report_ended(children, selector)
            else:  # the launcher was killed: its child goes with it
                selector.unregister(key.fileobj)
                kill_child_of(key.fileobj, children)


def accept(
    listener: socket.socket, children: dict[int, socket.socket], selector: selectors.BaseSelector
) -> None:
    """Fork a child for the next request; a request that cannot be served is refused, and its launcher starts Python itself."""
    connection, _ = listener.accept()
    connection.settimeout(10)
    files: list[int] = []
    try:
        request = receive(connection, files)
        if not fits(request["environment"]):
            raise ValueError("another environment")
        connection.sendall(_ACCEPTED)
        child = os.fork()
    except (OSError, ValueError, KeyError, TypeError):
        with suppress(OSError):
            connection.sendall(_REFUSED)
        connection.close()
    else:
        if child == 0:
            run(request, files)
        children[child] = connection
        selector.register(connection, selectors.EVENT_READ)
        with suppress(OSError):  # a launcher that is gone is found when its connection is read
            connection.sendall(_NUMBER.pack(child))
    for file in files:
        os.close(file)


def receive(connection: socket.socket, files: list[int]) -> Request:
    """Read a request; its three files are added to `files`."""
    head, received, _, _ = socket.recv_fds(connection, 4, 3)
    files += received
    length = int.from_bytes(head, "little")
    if len(head) != 4 or len(files) != 3 or length > _MOST_BYTES:
        raise ValueError("no request")
    with connection.makefile("rb") as stream:
        request: Request = json.loads(stream.read(length))
    return request


def fits(environment: dict[str, str]) -> bool:
    """Whether this environment has the settings that Python and its libraries read when this process was started."""
    asked = {**_OF_WORKERS, **environment}
    return all(
        asked.get(name) == os.environ.get(name)
        for name in asked.keys() | os.environ.keys()
        if name.startswith(_READ_AT_START)
        and not name.startswith("PYTHON_")
        and name != "PYTHONPATH"
    )


def run(request: Request, files: list[int]) -> NoReturn:
    """Run the module of a request, in the child."""
    status = 1
    try:
        arguments = request["arguments"]
        become(files, request["environment"], request["directory"])
        sys.argv[1:] = arguments[1:]
        sys.orig_argv[1:] = ["-m", *arguments]
        if arguments[0] == "pyspark.daemon":
            silence_closed_sockets()
        sys.modules.pop(arguments[0], None)  # else runpy warns that it is there already
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BrokenPipeError:
        pass  # The JVM closed the socket, as it does when a query is stopped: it wants no answer.
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(status & 0xFF)


def become(files: list[int], environment: dict[str, str], directory: str) -> None:
    """Take over the files, environment and folder of the process that asked."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for standard, file in enumerate(files):
        os.dup2(file, standard)
    os.closerange(3, 1024)  # the server's own, which has few
    server_path = sys.path[1:]
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    asked = without_archive(environment.get("PYTHONPATH", ""))
    sys.path[:] = [directory, *asked, *(entry for entry in server_path if entry not in asked)]


def silence_closed_sockets() -> None:
    """Keep Spark's daemon from printing that the JVM has closed the socket of an idle worker.

    The worker sends a last answer, which succeeds over TCP, even if no process reads it, and fails over a Unix socket.
    """
    print_exc = traceback.print_exc

    def print_others(*arguments: Any, **options: Any) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            print_exc(*arguments, **options)

    traceback.print_exc = print_others


def report_ended(children: dict[int, socket.socket], selector: selectors.BaseSelector) -> None:
    """Tell the launcher of each child that has ended its wait status."""
    while children:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if child == 0:
            return
        connection = children.pop(child, None)
        if connection is not None:
            with suppress(KeyError, ValueError):
                selector.unregister(connection)
            with suppress(OSError):
                connection.sendall(_NUMBER.pack(status))
            connection.close()


def kill_child_of(connection: object, children: dict[int, socket.socket]) -> None:
    """Kill the child whose launcher is gone."""
    for child, asked in children.items():
        if asked is connection:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def release_output() -> None:
    """Close standard output and error, by pointing both to /dev/null."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)


_generation = 0  # 0 the server, 1 its children such as Spark's daemon, 2 the daemon's workers


def reseed() -> None:
    """Give every worker random numbers of its own, as if it had imported NumPy itself."""
    global _generation
    _generation += 1
    if _generation <= 2 and (random := sys.modules.get("numpy.random")) is not None:
        random.seed()


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    for module in _MODULES:
        with suppress(Exception):  # a worker that needs it will report it
            import_module(module)
    os.register_at_fork(after_in_child=reseed)
    gc.collect()
    # What is imported stays shared memory. And Spark's workers collect garbage after every task: traversing all modules
    # would take them longer than the task of a small batch.
    gc.freeze()
    try:
        serve(listener)
    finally:
        if _generation == 0:
            shutil.rmtree(sys.argv[2], ignore_errors=True)


if __name__ == "__main__":
    main()

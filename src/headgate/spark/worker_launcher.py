"""The Python that Spark starts for its workers: asks the fork server for a process that has imported everything.

Spark is given a script as PYSPARK_PYTHON that runs this file, and calls it as `<script> -m pyspark.daemon ...`. The file uses the
standard library only and is started without `site`, so that it is there in milliseconds. Without a fork server (another machine,
an environment it was not started with, any failure), it becomes an ordinary Python.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # importing `typing` would take as long as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

SERVER_VARIABLE = "HEADGATE_FORK_SERVER"  # the path of the fork server's socket
ANSWER_TIMEOUT_S = 60.0  # the server may still be importing
FAILED = 1 << 8  # the wait status of a process that ended with exit code 1
PYTHON_VARIABLE = "HEADGATE_WORKER_PYTHON"  # the Python to become without a fork server


def main() -> NoReturn:
    arguments = sys.argv[1:]
    server = os.environ.pop(SERVER_VARIABLE, None)
    if server is not None and len(arguments) >= 2 and arguments[0] == "-m":
        try:
            status = run_in_fork(server, arguments[1:])
        except (OSError, ValueError, EOFError):
            pass
        else:
            exit_with(status)
    become_python(arguments)


def become_python(arguments: list[str]) -> NoReturn:
    """Replace this process by an ordinary Python that finds the compiled PySpark."""
    python = os.environ.pop(PYTHON_VARIABLE, sys.executable)
    path = without_archive(os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    os.execv(python, [python, *arguments])


def without_archive(python_path: str) -> list[str]:
    """Remove `pyspark.zip` from the entries of a PYTHONPATH: it holds the installed PySpark without compiled code."""
    entries = [entry for entry in python_path.split(os.pathsep) if entry]
    return [entry for entry in entries if os.path.basename(entry) != "pyspark.zip"]


def run_in_fork(server: str, arguments: list[str]) -> int:
    """Have the fork server run a module with this process's files and environment; returns its exit status when it has ended."""
    import json
    from socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
    from struct import pack

    request = json.dumps(
        {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
    ).encode()
    connection = socket(AF_UNIX, SOCK_STREAM)
    connection.connect(server)
    rights = [(SOL_SOCKET, SCM_RIGHTS, pack("3i", 0, 1, 2))]
    sent = connection.sendmsg([pack("<I", len(request))], rights)
    if sent != 4:
        raise ValueError("the request was cut")
    connection.sendall(request)
    connection.settimeout(ANSWER_TIMEOUT_S)
    if read_number(connection.recv) != 1:
        raise ValueError("refused")
    # From here on nothing may fall back to another Python: the module is running, or about to.
    connection.settimeout(None)
    try:
        child = read_number(connection.recv)
        if child == 0:
            return FAILED
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: kill(child, number))
        return read_number(connection.recv)
    except (OSError, EOFError):
        return FAILED


def read_number(receive: Callable[[int], bytes]) -> int:
    """Read eight bytes as a number; raises EOFError when the connection ends before."""
    raw = b""
    while len(raw) < 8:
        part = receive(8 - len(raw))
        if not part:
            raise EOFError
        raw += part
    return int.from_bytes(raw, "little", signed=True)


def kill(child: int, number: int) -> None:
    """Pass a signal on to the child, unless it has ended."""
    from contextlib import suppress

    with suppress(ProcessLookupError):
        os.kill(child, number)


def exit_with(status: int) -> NoReturn:
    """End this process with the exit code or the signal of a wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()

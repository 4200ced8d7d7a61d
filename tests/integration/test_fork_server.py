"""The processes that Spark starts for its Python workers are forks of one that has imported everything."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headgate.spark.fork_server import ForkServer
from headgate.spark.worker_launcher import SERVER_VARIABLE, without_archive
from tests.patience import wait_until

MODULES = {
    "whereabouts": """
import json, os, sys
print(json.dumps({
    "arguments": sys.argv[1:], "directory": os.getcwd(), "variable": os.environ.get("ASKED"),
    "forked": "pyspark.daemon" in sys.modules, "read": sys.stdin.read(),
    "server": os.environ.get("HEADGATE_FORK_SERVER"), "path": sys.path, "main": __name__,
}))
print("to standard error", file=sys.stderr)
""",
    "random": "import numpy; print(numpy.random.rand())",
    "collects": "import gc; gc.collect(); print(gc.get_freeze_count())",
    "prints": "import os; print('at once'); os._exit(0)",
    "ends": "import sys; sys.exit(int(sys.argv[1]))",
    "fails": "raise RuntimeError('no such luck')",
    "answers": "import socket; one, other = socket.socketpair(); other.close(); one.sendall(b'x')",
    "sleeps": "import os, signal; print(os.getpid(), flush=True); signal.pause()",
}


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()
    assert server.wait(timeout=30) == 0


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def start(
    server: ForkServer, modules: Path, *arguments: str, **variables: str
) -> subprocess.Popen[str]:
    """Start the launcher as Spark would."""
    environment: Mapping[str, str] = {
        **os.environ,
        **server.variables,
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
        "PYTHONUNBUFFERED": "YES",
        "PYTHONPATH": f"/opt/spark/python/lib/pyspark.zip{os.pathsep}{modules}",
        **variables,
    }
    return subprocess.Popen(
        [str(server.python), *arguments],
        env=environment,
        cwd=modules,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(
    server: ForkServer, modules: Path, *arguments: str, **variables: str
) -> tuple[int, str, str]:
    process = start(server, modules, *arguments, **variables)
    out, error = process.communicate("what was asked", timeout=60)
    return process.returncode, out, error


def test_a_module_runs_in_a_fork_with_the_launchers_files_folder_and_environment(
    server: ForkServer, modules: Path
) -> None:
    import json

    code, out, error = run(server, modules, "-m", "whereabouts", "one", "two", ASKED="yes")
    found = json.loads(out)
    assert code == 0
    assert error == "to standard error\n"
    assert found["arguments"] == ["one", "two"]
    assert found["directory"] == str(modules)
    assert found["variable"] == "yes"
    assert found["read"] == "what was asked"
    assert found["forked"] is True
    assert found["main"] == "__main__"
    assert found["server"] is None  # a worker's own children are none of the server's
    assert found["path"][:2] == [str(modules), str(modules)]
    assert not any(entry.endswith("pyspark.zip") for entry in found["path"])


def test_garbage_collection_in_a_worker_passes_over_what_the_server_imported(
    server: ForkServer, modules: Path
) -> None:
    code, out, _ = run(server, modules, "-m", "collects")
    assert code == 0
    assert int(out) > 10_000


def test_the_launcher_ends_with_the_exit_code_of_the_module(
    server: ForkServer, modules: Path
) -> None:
    assert run(server, modules, "-m", "ends", "7")[0] == 7
    code, _, error = run(server, modules, "-m", "fails")
    assert code == 1
    assert "RuntimeError: no such luck" in error


def test_a_module_whose_answer_is_wanted_no_more_fails_without_a_traceback(
    server: ForkServer, modules: Path
) -> None:
    assert run(server, modules, "-m", "answers") == (1, "", "")
    code, _, error = run(server, modules, "-m", "fails")
    assert (code, error.splitlines()[-1]) == (1, "RuntimeError: no such luck")


def test_a_signal_to_the_launcher_reaches_the_module(server: ForkServer, modules: Path) -> None:
    process = start(server, modules, "-m", "sleeps")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert child != process.pid
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    wait_until(lambda: not Path(f"/proc/{child}").exists())  # the server reaps it in its turn


def test_a_launcher_that_is_killed_takes_its_child_with_it(
    server: ForkServer, modules: Path
) -> None:
    process = start(server, modules, "-m", "sleeps")
    assert process.stdout is not None
    int(process.stdout.readline())
    process.kill()
    assert process.stdout.read() == ""  # ends when the child, which holds the other end, is gone
    process.communicate(timeout=30)


@pytest.mark.parametrize(
    "variables",
    [
        {SERVER_VARIABLE: "/nowhere/socket"},
        {"PYTHONHASHSEED": "12"},
        {"PYTHONOPTIMIZE": "1"},
        {"ARROW_DEFAULT_MEMORY_POOL": "system"},
    ],
    ids=["no server", "another hash seed", "another way to start Python", "another Arrow"],
)
def test_without_a_server_that_fits_the_launcher_becomes_an_ordinary_python(
    server: ForkServer, modules: Path, variables: dict[str, str]
) -> None:
    import json

    code, out, _ = run(server, modules, "-m", "whereabouts", "one", **variables)
    found = json.loads(out)
    assert code == 0
    assert found["arguments"] == ["one"]
    assert found["read"] == "what was asked"
    assert found["forked"] is False
    assert not any(entry.endswith("pyspark.zip") for entry in found["path"])


def test_what_is_no_module_is_for_the_ordinary_python(server: ForkServer, modules: Path) -> None:
    code, out, _ = run(server, modules, "-c", "import sys; print(sys.executable)")
    assert (code, out) == (0, f"{sys.executable}\n")


def test_a_server_ends_when_it_is_closed_and_its_last_child_has_ended(modules: Path) -> None:
    server = ForkServer()
    process = start(server, modules, "-m", "sleeps")
    assert process.stdout is not None
    process.stdout.readline()
    server.close()
    with pytest.raises(subprocess.TimeoutExpired):
        server.wait(timeout=0.2)
    process.terminate()
    process.communicate(timeout=30)
    assert server.wait(timeout=30) == 0
    assert not server.python.exists()


def test_two_forks_do_not_draw_the_same_random_numbers(server: ForkServer, modules: Path) -> None:
    drawn = {run(server, modules, "-m", "random")[1] for _ in range(3)}
    assert len(drawn) == 3


def test_what_is_printed_is_not_lost_with_the_process(server: ForkServer, modules: Path) -> None:
    assert run(server, modules, "-m", "prints")[1] == "at once\n"


def test_a_launcher_that_ends_before_it_has_asked_leaves_the_server_at_work(
    server: ForkServer, modules: Path
) -> None:
    for said in (b"", b"\xff", b"\xff\xff\xff\xff"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(server.variables[SERVER_VARIABLE])
            connection.sendall(said)
    assert run(server, modules, "-m", "ends", "7")[0] == 7


def test_a_server_that_was_killed_is_missed_by_nobody(modules: Path) -> None:
    server = ForkServer()
    process = start(server, modules, "-m", "sleeps")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    os.kill(parent_of(child), signal.SIGKILL)
    assert process.wait(timeout=30) == 1
    os.kill(child, signal.SIGKILL)
    process.communicate(timeout=30)
    assert run(server, modules, "-m", "ends", "7")[0] == 7
    server.close()


DRIVER = """
import os, signal, sys
from headgate.spark.fork_server import ForkServer
server = ForkServer()
if os.fork() == 0:  # a child that lives on
    signal.pause()
print(server.python.parent, flush=True)
signal.pause()
"""


def test_a_server_ends_with_the_process_that_started_it_though_a_fork_of_that_lives_on() -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert driver.stdout is not None
    folder = Path(driver.stdout.readline().strip())
    # A process that has just been started has no command line for a moment.
    wait_until(lambda: all(map(command_of, children_of(driver.pid))))
    servers = [pid for pid in children_of(driver.pid) if "-m\0headgate" in command_of(pid)]
    assert len(servers) == 1
    driver.kill()
    driver.wait()
    try:
        deadline = time.monotonic() + 60
        while command_of(servers[0]) or folder.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.stdout.close()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_server_that_cannot_be_started_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("deep" * 30)  # a socket's path must be short
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(OSError, match="too long"):
        ForkServer()
    assert list(deep.iterdir()) == []


def test_where_programs_cannot_be_run_there_is_no_server_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a directory for temporary files that is mounted with noexec."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError):
        ForkServer()
    assert list(tmp_path.iterdir()) == []


def test_only_the_archive_of_pyspark_is_left_out_of_the_path() -> None:
    assert without_archive("/a/pyspark.zip:/b/py4j-src.zip::/c") == ["/b/py4j-src.zip", "/c"]

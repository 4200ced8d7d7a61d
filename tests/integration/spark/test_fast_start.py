"""A session of Spark on this machine forks its Python workers from one process, and leaves none of them behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.spark.java import cache_directory
from tests.integration.spark.pipeline_process import command_line, descendants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def of_worker(_: Iterable[Any]) -> list[tuple[int, str, bool]]:
    """The worker's process, the command line it was started with, and whether PySpark was imported from a file."""
    import pyspark

    started = Path("/proc/self/cmdline").read_text()
    return [(os.getpid(), started, Path(pyspark.__file__).exists())]


def test_the_workers_of_a_session_are_forks_of_one_process(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize(range(2), 2).mapPartitions(of_worker).collect()
    assert all("headgate.spark.fork_server" in started for _, started, _ in found)
    assert all(compiled for _, _, compiled in found)
    assert {pid for pid, _, _ in found} <= set(descendants(os.getpid()))


def test_modules_that_are_shipped_with_a_job_are_found_in_forked_workers(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "shipped_module.py").write_text("ANSWER = 42\n")
    spark.sparkContext.addPyFile(str(tmp_path / "shipped_module.py"))

    def answer(_: int) -> int:
        import shipped_module  # type: ignore[import-not-found]

        answer: int = shipped_module.ANSWER
        return answer

    assert spark.sparkContext.parallelize([0], 1).map(answer).collect() == [42]


def test_a_forked_worker_that_dies_costs_one_task(spark: SparkSession, tmp_path: Path) -> None:
    died = tmp_path / "died"

    def die_once(number: int) -> int:
        if number == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    assert spark.sparkContext.parallelize(range(4), 2).map(die_once).collect() == [0, 1, 2, 3]
    assert died.exists()


# ---- sessions of their own ---------------------------------------------------------------------------

PROGRAM = """
import json, os, sys, time
from pathlib import Path
from headgate.spark import session

def started(_):
    import shipped
    return [(Path("/proc/self/cmdline").read_text(), shipped.ANSWER)]

spark = session(master="local[1]", config={"spark.submit.pyFiles": sys.argv[1]})
for _ in range(2):  # a second session in the same JVM, too
    [(command, answer)] = spark.sparkContext.parallelize([0], 1).mapPartitions(started).collect()
    archive = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    print(json.dumps({"command": command, "answer": answer, "java": list(archive)}), flush=True)
    if sys.argv[2] == "sleep":
        time.sleep(600)
    spark.stop()
    spark = session(master="local[1]", config={"spark.submit.pyFiles": sys.argv[1]})
"""


def begin(folder: Path, then: str = "end", **variables: str) -> subprocess.Popen[str]:
    (folder / "shipped.py").write_text("ANSWER = 42\n")
    environ = {name: text for name, text in os.environ.items() if name != "PYSPARK_PYTHON"}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder / "shipped.py"), then],
        env={**environ, "XDG_CACHE_HOME": str(folder / "cache"), **variables},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, **variables: str) -> list[dict[str, Any]]:
    process = begin(folder, **variables)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    found = [json.loads(line) for line in out.splitlines()]
    assert [each["answer"] for each in found] == [42, 42]
    return found


def is_forked(found: dict[str, Any]) -> bool:
    return "headgate.spark.fork_server" in found["command"]


def wait_for_end(pids: Iterable[int]) -> None:
    deadline = time.monotonic() + 120
    while any(command_line(pid) for pid in pids):
        assert time.monotonic() < deadline, [command_line(pid) for pid in pids]
        time.sleep(0.05)


def test_nothing_is_left_of_a_session_whose_driver_was_killed(tmp_path: Path) -> None:
    used = cache_directory(os.environ).parent  # writing another archive would take a while
    process = begin(tmp_path, "sleep", XDG_CACHE_HOME=str(used))
    assert process.stdout is not None
    assert is_forked(json.loads(process.stdout.readline()))
    started = descendants(process.pid)
    assert len(started) >= 4  # the server, the JVM, a daemon and its launcher
    process.kill()
    process.wait()
    process.stdout.close()
    wait_for_end(started)


def test_the_second_session_of_a_machine_starts_from_the_archive_of_the_first(
    full: bool, tmp_path: Path
) -> None:
    if not full:
        pytest.skip("sessions of their own take a while: HEADGATE_FULL=1")
    first, again = run(tmp_path)
    assert is_forked(first)
    assert is_forked(again)
    [written] = (option for option in first["java"] if "ArchiveClassesAtExit" in option)
    archive, _boot, jvm = written.partition("=")[2].rsplit(".", 2)
    wait_for_end([int(jvm)])  # it writes the archive after the end of the program
    second = run(tmp_path)[0]
    assert f"-XX:SharedArchiveFile={archive}" in second["java"]


@pytest.mark.parametrize(
    "variables",
    [
        {"PYSPARK_PYTHON": sys.executable},
        {"HEADGATE_SPARK_FAST_START": "false"},
        {"XDG_CACHE_HOME": os.devnull},
    ],
    ids=["another Python", "switched off", "no cache"],
)
def test_a_session_starts_without_what_makes_it_fast(
    full: bool, tmp_path: Path, variables: dict[str, str]
) -> None:
    if not full:
        pytest.skip("sessions of their own take a while: HEADGATE_FULL=1")
    found = run(tmp_path, **variables)
    assert [is_forked(each) for each in found] == ["XDG_CACHE_HOME" in variables] * 2
    archives = [option for option in found[0]["java"] if "Archive" in option]
    assert bool(archives) is ("PYSPARK_PYTHON" in variables)


# ---- what is left out --------------------------------------------------------------------------------

LEAN_PROGRAM = """
import json, sys
import numpy
from headgate import spark as ours
from pyspark.sql import functions

spark = getattr(ours, sys.argv[1])(master="local[1]", config={"spark.sql.shuffle.partitions": "3"})
catalyst = spark._jvm.org.apache.spark.sql.catalyst
name = catalyst.FunctionIdentifier("vector_to_array")
print(json.dumps({
    "pandas": "pandas" in sys.modules,
    "ml": getattr(catalyst.analysis, "FunctionRegistry$").__getattr__("MODULE$").internal().functionExists(name),
    "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
    "warehouse": spark.conf.get("spark.sql.warehouse.dir"),
    "application": spark.sparkContext.appName,
    "same": ours.session() is spark,
    "sum": spark.range(4).select(functions.sum(functions.col("id") + functions.lit(numpy.int64(2)))).first()[0],
}), flush=True)
ours.stop_session(spark)
again = ours.session(master="local[1]")
print(json.dumps({"count": again.range(5).count()}), flush=True)
ours.stop_session(again)
"""


@pytest.mark.parametrize(("start", "ml"), [("session", True), ("command_session", False)])
def test_a_session_starts_without_pandas_and_a_commands_session_without_ml(
    tmp_path: Path, start: str, ml: bool
) -> None:
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    environ = {name: text for name, text in os.environ.items() if name != "PYSPARK_PYTHON"}
    finished = subprocess.run(
        [sys.executable, "-c", LEAN_PROGRAM, start],
        env={**environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(sockets)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    found, again = map(json.loads, finished.stdout.splitlines())
    warehouse = found.pop("warehouse")
    assert "headgate-spark-" in warehouse
    assert found == {
        "pandas": False,
        "ml": ml,
        "partitions": "3",
        "application": "headgate",
        "same": True,
        "sum": 14,
    }
    assert again == {"count": 5}
    assert [left for left in sockets.iterdir() if left.is_socket()] == []

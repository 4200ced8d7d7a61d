"""What a task loads: an executor has Arrow and numpy, and needs no database, server or terminal."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import headgate.spark.jobs.trials, headgate.spark.jobs.stats, headgate.spark.jobs.replays
unwanted = {"apsw", "psycopg", "starlette", "typer", "rich"} & set(sys.modules)
assert not unwanted, unwanted
"""


def test_a_task_loads_no_database_no_server_and_no_terminal():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

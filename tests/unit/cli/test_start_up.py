"""Most of the time a command takes to start is imports: each loads only what it needs."""

import subprocess
import sys

import pytest

from headgate.streams import Stream

HEAVY = {"numpy", "pyarrow", "lark", "apsw", "pandas", "psycopg", "pyspark"}
RUN = """
import sys
from headgate.cli.app import run
code = run(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        (["--version"], HEAVY | {"rich", "pydantic", "headgate.streams", "headgate.queues"}),
        (["--help"], HEAVY | {"pydantic", "headgate.streams", "headgate.queues"}),
        (["stream", "--help"], HEAVY),
        (["queues", "--help"], HEAVY),
        (["sub", "--help"], HEAVY),
        (["pipeline", "--help"], HEAVY),
        (["explain", "--help"], HEAVY),
        (["route", "--help"], HEAVY),
        (["stream", "info", "s"], {"pandas", "psycopg", "pyspark"}),
        (["stream", "scan", "s"], {"pandas", "psycopg", "pyspark"}),
        (["explain", "a = 1"], {"pandas", "psycopg", "pyspark", "headgate.queues.queue"}),
        (["stream", "scan", "s", "--filter", "a = 1"], {"pyspark", "headgate.queues.queue"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_loads_nothing_it_does_not_need(tmp_path, command, unneeded):
    Stream.create(tmp_path / "s").close()
    done = subprocess.run(
        [sys.executable, "-c", RUN, *command],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert unneeded & set(done.stderr.split()) == set()

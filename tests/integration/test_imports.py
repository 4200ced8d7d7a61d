"""What a process loads: imports are most of a start, and an executor or a reader needs few of them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from headgate import Message, Stream

HEAVY = {"numpy", "pyarrow", "lark", "apsw", "pandas", "psycopg", "pyspark"}
COMMAND = """
import sys
from headgate.cli.app import run
code = run(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""
READER = """
import sys
from headgate import Stream
tail = Stream.open(sys.argv[1]).consume("n >= 0", follow=True)
known = {name.partition(".")[0] for name in sys.modules}
next(iter(tail))
print(sorted({name.partition(".")[0] for name in sys.modules} - known))
"""
FACTS = """
import sys; sys.modules["pyspark"] = None
from headgate.insights import list_queues, list_streams, explain_filter
explain_filter("region = 'EU'")
print("headgate.spark.sessions" in sys.modules)
"""


def run_program(
    program: str, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter; it must not fail."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done


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
    done = run_program(COMMAND, *command, cwd=tmp_path)
    assert unneeded & set(done.stderr.split()) == set()


@pytest.mark.parametrize(
    "modules",
    [
        "headgate.spark.datasource, headgate.spark.sink.writer, headgate.spark.sink.staging",
        "headgate.spark.pipeline.stream_reader, headgate.spark.pipeline.formats",
        "headgate.spark.jobs.trials, headgate.spark.jobs.stats, headgate.spark.jobs.replays",
    ],
)
def test_an_executor_loads_no_database_no_server_and_no_terminal(modules):
    loaded = run_program(f"import sys, {modules}; print(*sys.modules)").stdout.split()
    assert {"apsw", "psycopg", "starlette", "typer", "rich"}.isdisjoint(loaded)


def test_facts_about_streams_and_queues_need_no_spark():
    assert run_program(FACTS).stdout == "False\n"


def test_the_first_message_waits_for_no_package(tmp_path):
    with Stream.create(tmp_path / "s") as stream, stream.producer() as producer:
        producer.publish(Message(headers={"n": 1}))
    loaded = ast.literal_eval(run_program(READER, str(tmp_path / "s")).stdout)
    packages = {"pandas", "numpy", "dateutil", "apsw", "lark", "duckdb", "polars"}
    assert packages.isdisjoint(loaded)

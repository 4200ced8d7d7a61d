"""A command without its extra says which one to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.streams.stream import Stream

PIPELINE = """
[source]
stream = "events"
[exchange]
type = "fanout"
[[binding]]
queue = "q"
[[sink]]
queue = "q"
to = "stream:out"
[pipeline]
name = "p"
"""
RUN = """
import sys
for name in ("pyspark", "py4j", "psycopg", "adbc_driver_manager", "adbc_driver_postgresql"):
    sys.modules[name] = None
from headgate.cli.app import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("pipeline check pipeline.toml", "spark"),
        ("pipeline run pipeline.toml --once", "spark"),
        ("stream stats events", "spark"),
        ("stream advise events", "spark"),
        ("queue ls --db postgresql://127.0.0.1:1/x", "postgres"),
    ],
)
def test_a_command_says_which_extra_it_needs(tmp_path: Path, command: str, extra: str) -> None:
    Stream.create(tmp_path / "events").close()
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    done = subprocess.run(
        [sys.executable, "-c", RUN, *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert f"pip install 'headgate[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr

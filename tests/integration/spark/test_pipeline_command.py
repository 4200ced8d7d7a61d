"""`headgate pipeline run` as users start it: how it is stopped, and what it prints when it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.streams.stream import Stream

pytestmark = pytest.mark.spark

PIPELINE = """
[pipeline]
name = "orders"
checkpoint = "checkpoint"
[source]
stream = "in"
[exchange]
type = "topic"
[[binding]]
queue = "all"
key = "#"
[[sink]]
queue = "all"
to = "{place}"
"""
TIMEOUT_S = 300.0


def begin(folder: Path, place: str) -> subprocess.Popen[str]:
    with Stream.create(folder / "in") as stream, stream.producer() as producer:
        producer.publish(b"an order")
    (folder / "orders.toml").write_text(PIPELINE.format(place=place))
    command = ["pipeline", "run", "orders.toml", "--json", "--master", "local[1]"]
    return subprocess.Popen(
        [sys.executable, "-m", "headgate", *command],
        cwd=folder,
        env={name: text for name, text in os.environ.items() if name != "PYSPARK_PYTHON"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_ends_a_pipeline_without_an_error(tmp_path: Path) -> None:
    # A run that was stopped while it wrote its first offsets has left this behind.
    unfinished = tmp_path / "checkpoint" / "offsets" / ".0.e0e0ee33.tmp"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_text("v1")
    run = begin(tmp_path, "stream:out")
    assert run.stdout is not None
    assert json.loads(run.stdout.readline())["routed"] == 1
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=TIMEOUT_S)
    assert (run.returncode, out, err) == (0, "", "")


def test_a_pipeline_that_fails_prints_its_error_and_no_stack_of_java(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    run = begin(tmp_path, "queue:sqlite:///file/out.db")
    _, err = run.communicate(timeout=TIMEOUT_S)
    assert run.returncode == 2
    assert err.startswith("error: the pipeline failed: ")
    assert "\tat " not in err

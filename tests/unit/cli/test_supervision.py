"""A command that is started again: until it succeeds, until it is told to stop, and never without its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from headgate.cli import supervision
from headgate.cli.supervision import supervise
from tests.patience import wait_until

FAILS_TWICE = """
import os, sys
with open(sys.argv[1], "ab") as file:
    file.write(b"x")
runs = os.path.getsize(sys.argv[1])
if runs == 1:
    os.kill(os.getpid(), 9)
sys.exit(2 if runs == 2 else 0)
"""
PARENT = """
import sys
from headgate.cli import supervision
supervision._PROGRAM = sys.argv[1]
sys.exit(supervision.supervise([]))
"""
# Says that it runs, and who it is; ends in its own way when it is told to.
STAYS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print(os.getpid(), flush=True)
time.sleep(600)
"""


def test_it_is_started_again_after_a_failure_and_a_kill_until_it_succeeds(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(supervision, "_PROGRAM", FAILS_TWICE)
    monkeypatch.setattr(supervision, "PAUSE_S", (0.01, 0.02))
    assert supervise([str(tmp_path / "runs")]) == 0
    assert (tmp_path / "runs").read_bytes() == b"xxx"
    assert capsys.readouterr().err.splitlines() == [
        "the command was killed by signal 9; it is started again in 0.01 s",
        "the command ended with 2; it is started again in 0.02 s",
    ]


@pytest.fixture
def parent():
    command = [sys.executable, "-c", PARENT, STAYS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_a_signal_is_passed_on_and_the_command_is_not_started_again(parent):
    parent.stdout.readline()
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(30) == 7
    assert parent.stdout.read() == ""


def test_a_child_ends_with_a_parent_that_was_killed(parent):
    child = int(parent.stdout.readline())
    parent.kill()
    assert parent.stdout.read() == ""  # at the end of all that hold the pipe: the child, too
    wait_until(lambda: not is_alive(child))


def is_alive(process):
    try:
        os.kill(process, 0)
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False

"""The examples run unchanged."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.cli.app import run

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
IN_THIS_PROCESS = (
    "filters_everywhere.py",
)  # uses the PostgreSQL server and the Spark session of the tests
PROGRAMS = [path.name for path in sorted(EXAMPLES.glob("*.py")) if path.name not in IN_THIS_PROCESS]
ON_SPARK = ("json_routing.py",)


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.parametrize("script", IN_THIS_PROCESS)
def test_an_example_ends_with_exit_code_0(
    script, spark, postgres_url, monkeypatch, tmp_path, capsys
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    assert ended.value.code == 0


@pytest.mark.parametrize(
    "script",
    [pytest.param(name, marks=[pytest.mark.spark] * (name in ON_SPARK)) for name in PROGRAMS],
)
def test_a_program_does_what_it_says_and_ends_with_exit_code_0(script, tmp_path):
    command = [sys.executable, str(EXAMPLES / script)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert list(tmp_path.iterdir()) == []  # it works in a directory of its own, and deletes it


def test_the_example_topology_routes_as_its_comment_says(capsys):
    arguments = ["--exchange", "orders", "--topic", "orders.eu.created"]
    arguments += ["--header", "region=EU", "--header", "type=created", "--header", "amount:=1200"]
    assert run(["route", "--topology", str(EXAMPLES / "topology.toml"), *arguments]) == 0
    assert "eu-created" in capsys.readouterr().out


@pytest.mark.parametrize("file", ["pipeline.toml", "json_routing.toml"])
def test_the_example_pipelines_are_well_formed(file):
    from headgate.pipelines.file import read_pipeline

    assert read_pipeline(EXAMPLES / file).sinks

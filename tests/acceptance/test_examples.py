"""The examples run unchanged."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from headgate.cli.app import run

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_ends_with_exit_code_0(
    script, spark, postgres_url, monkeypatch, tmp_path, capsys
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0


def test_the_example_topology_routes_as_its_comment_says(capsys):
    arguments = ["--exchange", "orders", "--topic", "orders.eu.created"]
    arguments += ["--header", "region=EU", "--header", "type=created", "--header", "amount:=1200"]
    assert run(["route", "--topology", str(EXAMPLES / "topology.toml"), *arguments]) == 0
    assert "eu-created" in capsys.readouterr().out


def test_the_example_pipeline_is_well_formed():
    from headgate.pipelines.file import read_pipeline

    assert read_pipeline(EXAMPLES / "pipeline.toml").sinks

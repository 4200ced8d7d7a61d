"""headgate doctor: the exit code, the JSON and the table of a diagnosis."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from headgate.cli.app import run


def findings(capsys, *arguments):
    code = run(["doctor", "--json", *arguments])
    found = map(json.loads, capsys.readouterr().out.splitlines())
    return code, {part["part"]: part for part in found}


@pytest.fixture
def closed_port():
    """A port that is bound, and on which no server listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_doctor_checks_every_part_and_finds_none_missing_here(capsys, tmp_path):
    code, found = findings(capsys, str(tmp_path))
    assert code == 0
    assert {"Python", "SQLite", "Java", "Spark", "PostgreSQL", "Disk", "fsync"} <= found.keys()
    assert "missing" not in {part["state"] for part in found.values()}


def test_a_server_that_does_not_answer_is_reported_with_exit_code_1(capsys, closed_port):
    code, found = findings(capsys, "--db", f"postgresql://127.0.0.1:{closed_port}/x")
    assert code == 1
    assert found["PostgreSQL"]["state"] == "missing"
    assert "server running" in found["PostgreSQL"]["advice"]


def test_a_missing_java_is_reported_with_the_way_to_get_one(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HEADGATE_JAVA", "system")
    monkeypatch.setattr("headgate.spark.java.system_candidates", lambda environ: [])
    code, found = findings(capsys)
    assert code == 1
    assert found["Java"]["state"] == "missing"
    assert found["Java"]["advice"]


def test_the_table_ends_with_a_summary(capsys):
    assert run(["doctor", str(Path())]) == 0
    assert capsys.readouterr().out.rstrip().endswith(("fine.", "better."))


def test_a_database_that_is_no_postgresql_is_not_passed_over(capsys):
    assert run(["doctor", "--db", "sqlite:///orders.db"]) == 2
    assert "--db checks a PostgreSQL server" in capsys.readouterr().err

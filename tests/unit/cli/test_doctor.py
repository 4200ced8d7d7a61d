"""headgate doctor says what is there, and what to do about the rest."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from headgate.cli import diagnosis
from headgate.cli.app import run


def findings(capsys, *arguments):
    code = run(["doctor", "--json", *arguments])
    return code, {found["part"]: found for found in json.loads(capsys.readouterr().out)}


@pytest.fixture
def closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]  # bound, and nobody listens


def test_it_looks_at_every_part_and_is_content_here(capsys, tmp_path):
    code, found = findings(capsys, str(tmp_path))
    assert code == 0
    assert {"Python", "SQLite", "Java", "Spark", "PostgreSQL", "Disk", "fsync"} <= found.keys()
    assert "missing" not in {part["state"] for part in found.values()}


def test_a_place_that_is_not_there_yet_is_judged_by_the_one_above(tmp_path):
    assert diagnosis.disk(tmp_path / "not" / "yet").state == "fine"


def test_a_server_that_does_not_answer_is_said_and_ends_with_one(capsys, closed_port):
    code, found = findings(capsys, "--database", f"postgresql://127.0.0.1:{closed_port}/x")
    assert code == 1
    assert found["PostgreSQL"]["state"] == "missing"
    assert "server running" in found["PostgreSQL"]["advice"]


def test_no_java_is_said_with_the_way_to_get_one(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HEADGATE_JAVA", "system")
    monkeypatch.setattr("headgate.spark.java.system_candidates", lambda environ: [])
    code, found = findings(capsys)
    assert code == 1
    assert found["Java"]["state"] == "missing"
    assert found["Java"]["advice"]


def test_a_missing_extra_is_no_fault(monkeypatch):
    monkeypatch.setattr(diagnosis, "_version", lambda package: None)
    assert [found.state for found in diagnosis.spark(start=False)] == ["absent"]
    assert diagnosis.postgres(None).advice.startswith("pip install 'headgate[postgres]'")


def test_an_old_sqlite_would_read_numbers_wrongly(monkeypatch):
    monkeypatch.setattr("apsw.sqlite_lib_version", lambda: "3.45.0")
    assert diagnosis.sqlite().state == "missing"


def test_a_slow_disk_is_weak(monkeypatch, tmp_path):
    monkeypatch.setattr(diagnosis, "_sync_once", lambda file: 0.05)
    assert diagnosis.sync(tmp_path).state == "weak"


def test_the_table_ends_with_a_sentence(capsys):
    assert run(["doctor", str(Path())]) == 0
    assert capsys.readouterr().out.rstrip().endswith(("fine.", "better."))

"""Fixtures of the command line's tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from headgate.cli.app import run


@pytest.fixture
def database_url(tmp_path, monkeypatch) -> str:
    """The URL of a SQLite database that does not exist yet, set as the one that commands use."""
    url = f"sqlite:///{tmp_path}/queues.db"
    monkeypatch.setenv("HEADGATE_DATABASE", url)
    return url


@pytest.fixture
def run_json(capsys) -> Callable[..., list[Any]]:
    """Run a command with --json and return what it printed, line by line."""

    def run_and_parse(*command: str, code: int = 0) -> list[Any]:
        capsys.readouterr()
        assert run([*command, "--json"]) == code
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run_and_parse

"""Every Python block in the documents runs, and every JSON block of cases passes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headgate.check.cases import read_case
from headgate.check.engines import PythonEngine
from headgate.check.report import check_cases

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "FILTERS.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str):
    return [
        pytest.param(
            found[2], id=f"{path.name}:{found.string.count(chr(10), 0, found.start()) + 1}"
        )
        for path in DOCUMENTS
        for found in BLOCK.finditer(path.read_text())
        if found[1] == language
    ]


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "document", "exec"), {"__name__": "document"})


@pytest.mark.parametrize("text", blocks("json"))
def test_json_blocks_of_cases_pass(text):
    cases = [read_case(number, entry) for number, entry in enumerate(json.loads(text), 1)]
    assert check_cases(cases, PythonEngine()).disagreements == ()


@pytest.mark.parametrize("text", blocks("sql"))
def test_sql_blocks_are_filters(text):
    from headgate import as_filter

    assert all(as_filter(line) for line in text.splitlines())

"""Every block of a document runs, from top to bottom, in an empty directory with the examples.

python runs, all blocks of a document in one namespace; console lines that begin with `$` are commands and must
succeed (`# exit 1` behind one says otherwise); python, toml and json with a first line `# name` are files; a json table of
cases passes on the reference; sql lines are filters. text is output, and is not run.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from headgate import as_filter
from headgate.check.cases import check_cases, read_case
from headgate.check.engines import PythonCheck
from headgate.cli.app import run
from headgate.cli.reference import reference
from headgate.streams.read import ScanStats
from tests.acceptance.document_blocks import ROOT, Block, blocks, commands

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"""(?:\]\(|src="|srcset=")([^)"\s]+)[)"]""")
ROW = re.compile(r"\| `([a-z_/]+)` \|")
HEADING = re.compile(r"### `([a-z_/]+)`")
PATH = re.compile(r"`([a-z_]+(?:/[a-z_]+)*(?:\.\w+)?)`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_runs_from_top_to_bottom(document, tmp_path, monkeypatch, request):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    found = list(blocks(document))
    if any("spark" in block.text or "pipeline" in block.text for block in found):
        request.getfixturevalue("spark")
    if any("import polars" in block.text for block in found):
        pytest.importorskip("polars")
    names = {"__name__": "document"}
    for block in found:
        perform(block, document, names)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_leads_to_a_file(document):
    targets = [link.partition("#")[0] for link in LINK.findall(document.read_text())]
    local = [target for target in targets if target and "://" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []


def test_the_reference_of_the_command_line_is_as_make_docs_writes_it():
    assert (ROOT / "docs/reference/cli.md").read_text() == reference()


def load_tool(name):
    spec = spec_from_file_location(name, ROOT / f"tools/{name}.py")
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_the_reference_of_the_http_api_is_as_make_docs_writes_it():
    text = (ROOT / "docs/reference/http-api.md").read_text()
    assert load_tool("http_reference").write_reference(text) == text, "run `make docs`"


def test_the_reference_of_the_python_api_is_as_make_docs_writes_it():
    tool = load_tool("api_reference")
    outdated = [path.name for path, text in tool.api_pages().items() if path.read_text() != text]
    assert outdated == [], "run `make docs`"


def test_the_reference_describes_a_field_by_the_comment_behind_it_or_above_it():
    comments = load_tool("api_reference").field_comments(ScanStats)
    assert comments["chunks_rejected"] == "by an entry filter"
    assert comments["chunks_missed"].startswith("Chunks scanned whole in which no message matched")
    assert "rows_examined" not in comments


def test_every_path_that_the_architecture_names_exists():
    missing = [
        path for path in paths_in((ROOT / "ARCHITECTURE.md").read_text()) if not exists(path)
    ]
    assert missing == []


def paths_in(text: str) -> Iterator[str]:
    """Paths in backticks. In a row that begins with a package, and in a table below its heading, they are below it."""
    section = None
    for line in text.splitlines():
        if line.startswith("#"):
            heading = HEADING.match(line)
            section = heading and heading[1]
        row = ROW.match(line)
        package = row[1] if row else section if line.startswith("|") else None
        for path in PATH.findall(line[row.end() :] if row else line):
            if package:
                yield f"{package}/{path}"
            elif "/" in path:
                yield path


@pytest.mark.parametrize("package", ["broker", "amqp", "queues", "spark", "web"])
def test_the_architecture_names_every_module_of_a_package_that_has_a_table(package):
    named = set(paths_in((ROOT / "ARCHITECTURE.md").read_text()))
    modules = {path.stem for path in (ROOT / "src/headgate" / package).glob("*.py")} - {"__init__"}
    assert sorted(module for module in modules if f"{package}/{module}" not in named) == []


def exists(path: str) -> bool:
    places = (ROOT / path, ROOT / "src/headgate" / path)
    return any(place.exists() or place.with_suffix(".py").exists() for place in places)


def perform(block: Block, document: Path, names: dict[str, object]) -> None:
    where = f"{document.name}:{block.line}"
    match block.language:
        case "python" if block.file_name:
            block.write_file(Path())
        case "python":
            exec(compile("\n" * block.line + block.text, str(document), "exec"), names)
        case "console":
            run_commands(block, where)
        case "toml":
            block.write_file(Path())
        case "json":
            cases = [
                read_case(number, entry) for number, entry in enumerate(json.loads(block.text), 1)
            ]
            assert check_cases(cases, PythonCheck()).disagreements == (), where
        case "sql":
            assert all(as_filter(line) for line in block.text.splitlines()), where
        case "text" | "mermaid" | "":
            pass
        case other:
            pytest.fail(f"{where}: there is no way to run a block of {other!r}")


def run_commands(block: Block, where: str) -> None:
    for program, arguments, exit_code, line in commands(block):
        if program == "headgate":
            code = run(arguments)
            assert code == exit_code, f"{where}: {line} ended with {code}"
        else:
            assert program in ("make", "pip", "git", "cd"), f"{where}: {line} is not run"

"""The guides as a user follows them: each Python block, or each page, is a file of its own, each command a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.document_blocks import ROOT, Block, blocks, commands

GUIDES = (
    "README.md",
    "docs/tutorial.md",
    "docs/how-to/broker.md",
    "docs/how-to/outbox-and-worker.md",
    "docs/how-to/tail-and-resume.md",
    "docs/how-to/test-filters-in-ci.md",
    "docs/how-to/worker.md",
)
PAGES = (  # their blocks go on with the names of earlier blocks
    "docs/how-to/administer-a-broker.md",
    "docs/how-to/filter-at-the-broker.md",
    "docs/how-to/filter-a-queue.md",
    "docs/how-to/queues-beside-others.md",
    "docs/how-to/streams-in-asyncio.md",
    "docs/reference/queues.md",
)
PATIENCE_S = 180


@pytest.mark.spark  # the README reads a stream with Spark
@pytest.mark.parametrize("document", GUIDES)
def test_every_block_of_a_guide_runs_by_itself(document, tmp_path):
    for block in blocks(ROOT / document):
        match block.language:
            case "python" if not block.file_name:
                run_file(block, tmp_path)
            case "console":
                run_commands(block, tmp_path)
            case _:
                block.write_file(tmp_path)


@pytest.mark.parametrize("document", PAGES)
def test_a_page_runs_as_one_program(document, tmp_path):
    lines = ["import subprocess, sys"]
    for block in blocks(ROOT / document):
        if block.language == "python" and not block.file_name:
            lines.append(block.text)
        elif block.language == "console":
            for _, arguments, exit_code, _ in commands(block):
                call = f"subprocess.run([sys.executable, '-m', 'headgate', *{arguments}])"
                lines.append(f"assert {call}.returncode == {exit_code}")
        else:
            block.write_file(tmp_path)
    program = tmp_path / "program.py"
    program.write_text("\n".join(lines))
    done = run([str(program)], tmp_path)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize("document", PAGES)
def test_a_page_whose_blocks_go_on_with_each_other_says_so(document):
    programs = [
        block
        for block in blocks(ROOT / document)
        if block.language == "python" and not block.file_name
    ]
    if len(programs) > 1:
        text = (ROOT / document).read_text()
        assert "The Python blocks of this page are one program" in text.partition("```")[0]


def run_file(block: Block, directory: Path) -> None:
    file = directory / f"line_{block.line}.py"
    file.write_text(block.text)
    done = run([str(file)], directory)
    assert done.returncode == 0, f"the block in line {block.line}: {done.stderr}"


def run_commands(block: Block, directory: Path) -> None:
    for program, arguments, exit_code, line in commands(block):
        if program == "headgate":
            done = run(["-m", "headgate", *arguments], directory)
            assert done.returncode == exit_code, f"{line}: {done.stdout}{done.stderr}"


def run(arguments: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_the_tests_of_the_guide_to_testing_pass_in_a_project_of_their_own(tmp_path):
    found = [b for b in blocks(ROOT / "docs/how-to/test-your-code.md") if b.language == "python"]
    plugins = [block.text for block in found if "pytest_plugins" in block.text]
    program = "\n".join(block.text for block in found if "pytest_plugins" not in block.text)
    (tmp_path / "conftest.py").write_text("\n".join(plugins))
    (tmp_path / "test_shop.py").write_text(program)
    done = run(["-m", "pytest", "-q", "-p", "no:cacheprovider"], tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"{program.count('def test_')} passed" in done.stdout

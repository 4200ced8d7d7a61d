"""The guides as a user follows them: each Python block is a file of its own, each command a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.document_blocks import ROOT, Block, blocks, commands

GUIDES = (
    "README.md",
    "docs/tutorial.md",
    "docs/how-to/outbox-and-worker.md",
    "docs/how-to/tail-and-resume.md",
)
PATIENCE_S = 180


@pytest.mark.spark  # the README reads a stream with Spark
@pytest.mark.parametrize("document", GUIDES)
def test_every_block_of_a_guide_runs_by_itself(document, tmp_path):
    for block in blocks(ROOT / document):
        match block.language:
            case "python":
                run_file(block, tmp_path)
            case "console":
                run_commands(block, tmp_path)
            case _:
                block.write_file(tmp_path)


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

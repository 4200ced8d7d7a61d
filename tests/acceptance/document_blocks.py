"""The code blocks of a document, with the line each begins at."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"# ([\w./-]+\.\w+)\b")
_EXIT = re.compile(r"\s+# exit (\d)$")


class Block(NamedTuple):
    language: str
    text: str
    line: int

    @property
    def file_name(self) -> str | None:
        """The name in the first line of a block that is a file."""
        named = _FILE_NAME.match(self.text)
        return named[1] if named else None

    def write_file(self, directory: Path) -> None:
        """Write a block that is a file; other blocks are left alone."""
        if self.file_name:
            path = directory / self.file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text)


class Command(NamedTuple):
    program: str
    arguments: list[str]
    exit_code: int
    line: str


def blocks(document: Path) -> Iterator[Block]:
    text = document.read_text()
    for found in _BLOCK.finditer(text):
        yield Block(found[1], found[2], text.count("\n", 0, found.start()) + 1)


def commands(block: Block) -> Iterator[Command]:
    """The lines of a console block that begin with `$`; `# exit 1` behind one says how it ends."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            wanted = _EXIT.search(line)
            program, *arguments = shlex.split(line[2:], comments=True)
            yield Command(program, arguments, int(wanted[1]) if wanted else 0, line)

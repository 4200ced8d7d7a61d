"""What the tests of the tree ask of a module of the source, parsed once and not kept as a tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import headgate

SOURCE = Path(headgate.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """A module: its docstring, its public types, what it imports of headgate, its strings and comments by line."""

    docstring: str | None
    lines: int
    types: tuple[str, ...]
    imports: tuple[tuple[str, str], ...]
    texts: tuple[tuple[int, str], ...]


@cache
def read_source(file: Path) -> SourceFacts:
    source = file.read_text()
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    lines = source.splitlines()
    strings = [
        (node.lineno, node.value)
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    comments = [(number, line.partition("# ")[2]) for number, line in enumerate(lines, 1)]
    return SourceFacts(
        ast.get_docstring(tree),
        len(lines),
        (*_public_classes(nodes), *_type_aliases(tree)),
        tuple(_own_imports(nodes)),
        (*strings, *comments),
    )


def _public_classes(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def _type_aliases(tree: ast.Module) -> Iterator[str]:
    """Those of the module; not type variables."""
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.BinOp()):
                pass
            case _:
                continue
        if re.match("[A-Z]", name) and not name.isupper():
            yield name


def _own_imports(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "headgate"
        ):
            yield from ((node.module, alias.name) for alias in node.names)

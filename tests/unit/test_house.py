"""The house stays in order: one name for one thing, modules that can be read in one go, fixtures defined once."""

import ast
import re
from collections import defaultdict
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.sources import MODULES, SOURCE, read_source

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent

LONGEST = 500  # lines of a module
LONGER = {
    "errors.py",  # one tree of small classes
}
TYPES_THAT_EXIST_TWICE: set[str] = set()  # at most five
RIDDLES = re.compile(
    r"\b(nobody|whoever|somebody|someone|come by|came by|comes by|lies where|none of its own|of one's own|so many"
    r"|what is left|meanwhile together|again and again|on and on|SQL door|outsiders?)\b|; how many\.",
    re.IGNORECASE,
)


def name_of(file: Path) -> str:
    return str(file.relative_to(SOURCE))


def test_the_name_of_a_public_class_or_type_alias_exists_once():
    homes = defaultdict(list)
    for file in MODULES:
        for name in read_source(file).types:
            homes[name].append(name_of(file))
    twice = {name: files for name, files in homes.items() if len(files) > 1}
    assert {name: twice[name] for name in twice if name not in TYPES_THAT_EXIST_TWICE} == {}
    assert len(TYPES_THAT_EXIST_TWICE) <= 5


def test_every_module_says_in_a_docstring_what_it_is():
    assert [name_of(file) for file in MODULES if not read_source(file).docstring] == []


def test_every_module_can_be_read_in_one_go():
    lines = {name_of(file): read_source(file).lines for file in MODULES}
    too_long = {name for name in lines if lines[name] > LONGEST}
    assert too_long - LONGER == set(), "split it by nouns"


def test_texts_are_plain_technical_english():
    found = [
        f"{name_of(file)}:{line}: {match[0]}"
        for file in MODULES
        for line, text in read_source(file).texts
        for match in RIDDLES.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "file", [*ROOT.glob("benches/*.py"), *ROOT.glob("examples/*.py")], ids=lambda file: file.name
)
def test_benches_and_examples_import_names_that_exist(file):
    missing = [
        f"{module}.{name}"
        for module, name in read_source(file).imports
        if not hasattr(import_module(module), name)
    ]
    assert missing == []


@cache
def fixtures() -> list[tuple[Path, ast.FunctionDef]]:
    """Fixtures of modules; those of classes are left out, for a suite that runs on several engines replaces them."""
    return [
        (file, node)
        for file in sorted(TESTS.rglob("*.py"))
        if "fixture" in file.read_text()
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


def test_no_two_fixtures_have_equal_code():
    homes = defaultdict(list)
    for file, node in fixtures():
        body = node.body[1:] if ast.get_docstring(node) else node.body
        homes[ast.unparse(node.args) + "\n".join(map(ast.unparse, body))].append(
            f"{file.relative_to(TESTS)}: {node.name}"
        )
    assert [places for places in homes.values() if len(places) > 1] == []


def test_a_fixture_of_a_directory_is_not_replaced_in_it():
    shared = {(file.parent, node.name) for file, node in fixtures() if file.name == "conftest.py"}
    replaced = [
        f"{file.relative_to(TESTS)}: {node.name}"
        for file, node in fixtures()
        for parent in file.parents
        if (parent, node.name) in shared and file != parent / "conftest.py"
    ]
    assert replaced == []

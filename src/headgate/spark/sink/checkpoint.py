"""Whose work it is: the id of a streaming query, read from its checkpoint, and who owns the files it stages."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from headgate.errors import SparkError
from headgate.pipelines import local_path

METADATA: Final = "metadata"
_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Owner:
    """Who stages files: each owner has folders of its own, and only one batch at a time at work in them.

    `scratch` is a folder for what is staged for a place that has no folder itself.
    """

    name: str
    scratch: str


def owner_of(checkpoint: str) -> Owner:
    """The query with that checkpoint, in every run of it."""
    local = local_path(checkpoint)
    where = checkpoint if local is None else str(local)
    name = hashlib.sha256(where.encode()).hexdigest()[:_DIGITS]
    return Owner(name, str(local / "staged") if local is not None else _temporary())


def fresh_owner() -> Owner:
    """Somebody new, for a write that has no checkpoint."""
    return Owner(uuid4().hex[:_DIGITS], _temporary())


def _temporary() -> str:
    return str(Path(tempfile.gettempdir()) / "headgate-staged")


def query_id(checkpoint: str) -> str:
    """The id Spark gave the query when it first ran with that checkpoint; a new checkpoint is a new query."""
    try:
        return str(json.loads(_metadata(checkpoint))["id"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as problem:
        raise SparkError(
            f"the id of the query cannot be read from {checkpoint}/{METADATA}: {problem}; "
            "the sink needs it to tell a batch it has seen from a new one"
        ) from problem


def _metadata(checkpoint: str) -> bytes:
    local = local_path(checkpoint)
    if local is not None:
        return (local / METADATA).read_bytes()
    files, path = fs.FileSystem.from_uri(checkpoint)
    with files.open_input_stream(f"{path.rstrip('/')}/{METADATA}") as stream:
        return bytes(stream.read())

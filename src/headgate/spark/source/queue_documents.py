"""Rows of a database, headers and properties as JSON -> the columns of a stream: h.s.region, topic, …"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headgate.columns import shred_headers
from headgate.filters import Scope
from headgate.message import OPAQUE, HeaderValue
from headgate.pipelines import ARCHIVED, STATES

_DOCUMENTS: Final[dict[str, Scope]] = {"headers": "header", "properties": "property"}
_STATE_NAMES: Final = pa.array([*STATES, ARCHIVED])


class Wanted(NamedTuple):
    """What is read of each message: these columns, the id first, and of headers and properties these (None: all)."""

    names: tuple[str, ...]
    headers: Collection[str] | None
    properties: Collection[str] | None


def message_columns(batch: pa.RecordBatch, wanted: Wanted) -> pa.RecordBatch:
    """The batch with typed columns for its headers and properties."""
    arrays: dict[str, pa.Array] = {}
    for name, array in zip(wanted.names, batch.columns, strict=True):
        if name in _DOCUMENTS:
            only = wanted.headers if name == "headers" else wanted.properties
            arrays.update(shred_headers(parsed(array), _DOCUMENTS[name], only))
        else:
            arrays[name] = _STATE_NAMES.take(array) if name == "_state" else array
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def parsed(documents: pa.Array) -> list[dict[str, HeaderValue]]:
    """The objects, all read in one go. A null in them is what no filter can compare."""
    text = f"[{','.join(documents.to_pylist())}]"
    found: list[dict[str, Any]] = json.loads(text)
    return list(map(_marked, found)) if "null" in text else found


def _marked(document: dict[str, Any]) -> dict[str, Any]:
    return {name: OPAQUE if value is None else value for name, value in document.items()}

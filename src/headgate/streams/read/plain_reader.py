"""Readers for other engines: the batches of a scan under one schema (`columns.plain`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.columns import (
    PlainSchema,
    plain_columns,
    plain_schema,
    project_batch,
    stored_columns,
    typed_schema,
)
from headgate.errors import StreamCorrupt

if TYPE_CHECKING:
    from headgate.streams.read.catalog import SegmentCatalog
    from headgate.streams.read.scan import Scan


def plain_reader(scan: Scan, schema: PlainSchema | None) -> pa.RecordBatchReader:
    """Return a reader of all that the scan selects, from its start; without a schema, it gets `default_schema`."""
    chosen = plain_columns(default_schema(scan) if schema is None else schema)
    batches = (project_batch(batch, chosen) for batch in scan.again(stored_columns(chosen)))
    plain = pa.schema([(column.name, column.type) for column in chosen])
    return pa.RecordBatchReader.from_batches(plain, batches)


def default_schema(scan: Scan) -> pa.Schema:
    """Return a schema of the columns that the scan was asked for, or of everything that is stored."""
    if scan.columns is not None:
        return typed_schema(scan.columns)
    return plain_schema(scan.stored_names)


def stored_names(catalog: SegmentCatalog, low: int, high: int) -> frozenset[str]:
    """Return the names of all columns that segments with offsets in [low, high) have."""
    names: set[str] = set()
    while low < high:
        try:
            segment = catalog.covering(low)
        except StreamCorrupt as damage:
            if not damage.offsets:
                break
            low = damage.offsets[-1][1] + 1  # reading raises it, or skips it
            continue
        if segment is None:
            break
        names |= segment.column_names(low, high)
        low = segment.next_offset
    return frozenset(names)

"""A record batch of messages, read header by header."""

from __future__ import annotations

import pyarrow as pa

from headgate.columns.names import column_name
from headgate.columns.overflow_views import OVERFLOW, Overflow
from headgate.filters import SYS_KINDS, Field, View


class BatchColumns:
    """A record batch of shredded messages (see `columns.names`): the one way to read headers out of a batch."""

    __slots__ = ("_schema", "batch", "overflow")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch, self._schema = batch, batch.schema
        self.overflow = self._overflow()

    @property
    def num_rows(self) -> int:
        rows: int = self.batch.num_rows
        return rows

    def view(self, field: Field, view: View) -> pa.Array | None:
        if field.scope == "sys" and SYS_KINDS[field.name] != view:
            return None
        array = self.column(column_name(field, view))
        if self.overflow is None or field.scope != "header":
            return array
        return self.overflow.joined(array, field.name, view)

    def column(self, name: str) -> pa.Array | None:
        """The column of this name; None when the batch has none."""
        at = self._schema.get_field_index(name)
        return None if at < 0 else self.batch.column(at)

    def _overflow(self) -> Overflow | None:
        array = self.column(OVERFLOW)
        return None if array is None or array.null_count == len(array) else Overflow(array)

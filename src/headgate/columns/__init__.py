"""Messages as Arrow columns, and back."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.columns.batch import BatchColumns as BatchColumns
    from headgate.columns.decoder import Record as Record
    from headgate.columns.decoder import decode as decode
    from headgate.columns.decoder import decode_records as decode_records
    from headgate.columns.join import join_batches as join_batches
    from headgate.columns.names import MAX_HEADER_COLUMNS as MAX_HEADER_COLUMNS
    from headgate.columns.names import SYSTEM_COLUMNS as SYSTEM_COLUMNS
    from headgate.columns.names import field_and_view as field_and_view
    from headgate.columns.names import field_key as field_key
    from headgate.columns.overflow import OVERFLOW as OVERFLOW
    from headgate.columns.overflow import cap as cap
    from headgate.columns.overflow import joined as joined
    from headgate.columns.overflow import overflowing as overflowing
    from headgate.columns.rows import Arrays as Arrays
    from headgate.columns.rows import arrays_of as arrays_of
    from headgate.columns.rows import plain_arrays_of as plain_arrays_of
    from headgate.columns.rows import row_count as row_count
    from headgate.columns.shredder import shred as shred
    from headgate.columns.shredder import shred_headers as shred_headers
    from headgate.columns.shredder import shred_valid as shred_valid
    from headgate.columns.tables import batches_of as batches_of
    from headgate.columns.tables import columns_of as columns_of
    from headgate.columns.tables import cut as cut
    from headgate.columns.validate import validate_batch as validate_batch
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "batch": ["BatchColumns"],
            "decoder": ["Record", "decode", "decode_records"],
            "join": ["join_batches"],
            "names": ["MAX_HEADER_COLUMNS", "SYSTEM_COLUMNS", "field_and_view", "field_key"],
            "overflow": ["OVERFLOW", "cap", "joined", "overflowing"],
            "rows": ["Arrays", "arrays_of", "plain_arrays_of", "row_count"],
            "shredder": ["shred", "shred_headers", "shred_valid"],
            "tables": ["batches_of", "columns_of", "cut"],
            "validate": ["validate_batch"],
        },
    )

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
    from headgate.columns.names import column_name as column_name
    from headgate.columns.names import field_key as field_key
    from headgate.columns.names import header_of as header_of
    from headgate.columns.names import is_header_column as is_header_column
    from headgate.columns.names import is_typed_name as is_typed_name
    from headgate.columns.names import parse_column_name as parse_column_name
    from headgate.columns.names import parse_field_key as parse_field_key
    from headgate.columns.names import typed_name as typed_name
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
            "names": [
                "MAX_HEADER_COLUMNS",
                "SYSTEM_COLUMNS",
                "column_name",
                "field_key",
                "header_of",
                "is_header_column",
                "is_typed_name",
                "parse_column_name",
                "parse_field_key",
                "typed_name",
            ],
            "overflow": ["OVERFLOW", "cap", "joined", "overflowing"],
            "rows": ["Arrays", "arrays_of", "plain_arrays_of", "row_count"],
            "shredder": ["shred", "shred_headers", "shred_valid"],
            "tables": ["batches_of", "columns_of", "cut"],
            "validate": ["validate_batch"],
        },
    )

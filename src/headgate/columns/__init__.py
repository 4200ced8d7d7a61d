"""Messages as Arrow columns, and back."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.columns.arrays import OPTIONAL_FIELDS as OPTIONAL_FIELDS
    from headgate.columns.arrays import load_arrow as load_arrow
    from headgate.columns.decode import BatchColumns as BatchColumns
    from headgate.columns.decode import Record as Record
    from headgate.columns.decode import decode_messages as decode_messages
    from headgate.columns.decode import decode_records as decode_records
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
    from headgate.columns.overflow import cap_columns as cap_columns
    from headgate.columns.overflow import join_views as join_views
    from headgate.columns.overflow import move_to_overflow as move_to_overflow
    from headgate.columns.overflow import overflow_names as overflow_names
    from headgate.columns.overflow import overflow_view as overflow_view
    from headgate.columns.overflow import read_overflow as read_overflow
    from headgate.columns.plain import PlainColumn as PlainColumn
    from headgate.columns.plain import PlainSchema as PlainSchema
    from headgate.columns.plain import plain_columns as plain_columns
    from headgate.columns.plain import plain_schema as plain_schema
    from headgate.columns.plain import project_batch as project_batch
    from headgate.columns.plain import stored_columns as stored_columns
    from headgate.columns.plain import typed_schema as typed_schema
    from headgate.columns.shred import Arrays as Arrays
    from headgate.columns.shred import count_rows as count_rows
    from headgate.columns.shred import shred_chunk as shred_chunk
    from headgate.columns.shred import shred_headers as shred_headers
    from headgate.columns.shred import shred_messages as shred_messages
    from headgate.columns.shred import shred_valid as shred_valid
    from headgate.columns.tables import TableLike as TableLike
    from headgate.columns.tables import cut_rows as cut_rows
    from headgate.columns.tables import join_batches as join_batches
    from headgate.columns.tables import read_table as read_table
    from headgate.columns.tables import split_table as split_table
    from headgate.columns.validate import validate_batch as validate_batch
    from headgate.columns.validate import validate_transposed as validate_transposed
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "arrays": ["OPTIONAL_FIELDS", "load_arrow"],
            "decode": ["BatchColumns", "Record", "decode_messages", "decode_records"],
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
            "overflow": [
                "OVERFLOW",
                "cap_columns",
                "join_views",
                "move_to_overflow",
                "overflow_names",
                "overflow_view",
                "read_overflow",
            ],
            "plain": [
                "PlainColumn",
                "PlainSchema",
                "plain_columns",
                "plain_schema",
                "project_batch",
                "stored_columns",
                "typed_schema",
            ],
            "shred": [
                "Arrays",
                "count_rows",
                "shred_messages",
                "shred_chunk",
                "shred_headers",
                "shred_valid",
            ],
            "tables": ["TableLike", "cut_rows", "join_batches", "read_table", "split_table"],
            "validate": ["validate_batch", "validate_transposed"],
        },
    )

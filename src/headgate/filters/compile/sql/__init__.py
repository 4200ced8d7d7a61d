"""Filter -> SQL for PostgreSQL and SQLite."""

from headgate.filters.compile.sql.fragment import (
    ALWAYS,
    NEVER,
    Layout,
    Sql,
    all_of,
    headers_json,
    is_plain_name,
)
from headgate.filters.compile.sql.plan import (
    SqlDialect,
    SqlPlan,
    compile_sql,
    index_expression,
    index_statement,
)
from headgate.filters.compile.sql.writer import after_prefix

__all__ = [
    "ALWAYS",
    "NEVER",
    "Layout",
    "Sql",
    "SqlDialect",
    "SqlPlan",
    "after_prefix",
    "all_of",
    "compile_sql",
    "headers_json",
    "index_expression",
    "index_statement",
    "is_plain_name",
]

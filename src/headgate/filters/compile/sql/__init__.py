"""Filter -> SQL for PostgreSQL and SQLite."""

from headgate.filters.compile.sql.fragment import (
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

__all__ = [
    "NEVER",
    "Layout",
    "Sql",
    "SqlDialect",
    "SqlPlan",
    "all_of",
    "compile_sql",
    "headers_json",
    "index_expression",
    "index_statement",
    "is_plain_name",
]

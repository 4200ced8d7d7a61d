"""Filter -> SQL for PostgreSQL and SQLite."""

from headgate.filters.targets.sql.fragment import Sql
from headgate.filters.targets.sql.layout import Layout, headers_json
from headgate.filters.targets.sql.plan import (
    Dialect,
    SqlPlan,
    compile_sql,
    index_expression,
    index_statement,
)

__all__ = [
    "Dialect",
    "Layout",
    "Sql",
    "SqlPlan",
    "compile_sql",
    "headers_json",
    "index_expression",
    "index_statement",
]

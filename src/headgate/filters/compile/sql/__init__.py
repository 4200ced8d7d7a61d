"""Filter -> SQL for PostgreSQL and SQLite."""

from headgate.filters.compile.sql.fragment import NEVER as NEVER
from headgate.filters.compile.sql.fragment import Sql
from headgate.filters.compile.sql.fragment import all_of as all_of
from headgate.filters.compile.sql.layout import Layout, headers_json
from headgate.filters.compile.sql.layout import is_plain_name as is_plain_name
from headgate.filters.compile.sql.plan import (
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

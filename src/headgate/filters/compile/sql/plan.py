"""Filter -> WHERE condition with parameters, and what Python must still check on the rows it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from typing import Literal as OneOf

from headgate.errors import FilterTypeError
from headgate.filters.compile.sql import conditions
from headgate.filters.compile.sql.fragment import Sql, all_of
from headgate.filters.compile.sql.layout import Layout, is_plain_name
from headgate.filters.compile.sql.postgres import Postgres
from headgate.filters.compile.sql.sqlite import Sqlite
from headgate.filters.compile.sql.writer import Writer
from headgate.filters.cost import cheapest_first
from headgate.filters.nodes import And, Field, Filter, joined
from headgate.filters.normal import NormalFilter, conjuncts, normalize

Dialect: TypeAlias = OneOf["postgres", "sqlite"]

_WRITERS: Final[dict[Dialect, type[Writer[Any]]]] = {"postgres": Postgres, "sqlite": Sqlite}
_COLUMNS: Final = Layout()


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """`where` returns every matching row; `residual`, if any, must be checked on what it returns.

    There is one reason for each term of the residual, in their order.
    """

    where: Sql
    residual: Filter | None = None
    reasons: tuple[str, ...] = ()


def compile_sql(
    node: Filter | NormalFilter,
    dialect: Dialect,
    *,
    first_parameter: int = 1,
    layout: Layout = _COLUMNS,
    now_us: int | None = None,
) -> SqlPlan:
    """The plan for one engine; placeholders are `$n` from `first_parameter` on, or `?`.

    Without `now_us`, terms that ask for `UTC()` stay residual.
    """
    writer = _WRITERS[dialect](layout)
    normal = normalize(node)
    tree = normal.tree if now_us is None else normal.at(now_us).tree
    wheres: list[Sql] = []
    unsure: dict[Filter, str] = {}
    size = params = 0
    for term in cheapest_first(conjuncts(tree)):
        answer = conditions.answer(term, writer)
        answer = conditions.bounded(answer, size_before=size, params_before=params)
        size, params = size + len(answer.where.text), params + len(answer.where.params)
        wheres.append(answer.where)
        if answer.reasons:
            unsure[term] = "; ".join(answer.reasons)
    residual = joined(And, unsure) if unsure else None
    where = writer.finish(all_of(wheres), first_parameter)
    return SqlPlan(where, residual, tuple(unsure.values()))


def index_expression(dialect: Dialect, header: str, layout: Layout = _COLUMNS) -> str:
    """What to index, to serve the conditions on a header that holds text: `CREATE INDEX … ON t (<this>)`."""
    if not is_plain_name(header):
        raise FilterTypeError(
            f"the header {header!r} cannot be indexed: the name must begin with a letter or _, and have "
            "at most 63 letters, digits, _ and -"
        )
    return _WRITERS[dialect](layout).header_text(Field("header", header)).value.text


def index_statement(dialect: Dialect, header: str, table: str = "messages") -> str:
    """The statement that creates that index, or a comment that says why there is none."""
    try:
        return f'CREATE INDEX "{table}_{header}" ON {table} ({index_expression(dialect, header)})'
    except FilterTypeError as refusal:
        return f"-- {refusal}"

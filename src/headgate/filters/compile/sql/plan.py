"""Filter -> WHERE condition with parameters, and what Python must still check on the rows it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias, assert_never, cast
from typing import Literal as OneOf

from headgate.errors import FilterTypeError
from headgate.filters import logic
from headgate.filters.compile.sql.fragment import (
    ALWAYS,
    NEVER,
    Layout,
    Sql,
    all_of,
    bind,
    is_plain_name,
    write,
)
from headgate.filters.compile.sql.postgres import PostgresWriter
from headgate.filters.compile.sql.sqlite import SqliteWriter
from headgate.filters.compile.sql.writer import (
    Facets,
    SqlAnswer,
    SqlWriter,
    TextFacet,
    TruthFacet,
    Unanswerable,
    both,
    either,
)
from headgate.filters.cost import cheapest_first
from headgate.filters.like import pieces_of
from headgate.filters.nodes import (
    SYS_KINDS,
    And,
    Arith,
    Compare,
    CompareOp,
    Constant,
    Exists,
    Field,
    Filter,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Now,
    Operand,
    Or,
    TopicMatch,
    join_terms,
    walk,
)
from headgate.filters.normal import EXACT_AS_DOUBLE, NormalFilter, conjuncts, normalize
from headgate.message import Scalar

SqlDialect: TypeAlias = OneOf["postgres", "sqlite"]

_WRITERS: Final[dict[SqlDialect, type[SqlWriter[Any]]]] = {
    "postgres": PostgresWriter,
    "sqlite": SqliteWriter,
}
_COLUMNS: Final = Layout()
# In characters. Arithmetic on fields grows faster than its depth: every guard repeats its operand.
LONGEST_NUMBER: Final = 20_000
LONGEST_WHERE: Final = 250_000
MOST_PARAMETERS: Final = 10_000  # SQLite accepts 32,766 in all, PostgreSQL 65,535
TOO_LONG: Final = "the condition would be longer than a database accepts"
NO_MOMENT: Final = "UTC() is the moment of the query, which is not known when the filter is compiled without now_us"


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """A condition and the rest: `where` selects every matching row, `residual` must be checked on the selected ones.

    `reasons` has one entry for each term of the residual, in their order.
    """

    where: Sql
    residual: Filter | None = None
    reasons: tuple[str, ...] = ()


def compile_sql(
    node: Filter | NormalFilter,
    dialect: SqlDialect,
    *,
    first_parameter: int = 1,
    layout: Layout = _COLUMNS,
    now_us: int | None = None,
) -> SqlPlan:
    """Compile a filter for one database; placeholders are `$n` from `first_parameter` on, or `?`.

    Without `now_us`, terms that ask for `UTC()` stay residual.
    """
    writer = _WRITERS[dialect](layout)
    normal = normalize(node)
    tree = normal.tree if now_us is None else normal.at(now_us).tree
    wheres: list[Sql] = []
    uncertain: dict[Filter, str] = {}
    size = params = 0
    for term in cheapest_first(conjuncts(tree)):
        answer = answer_term(term, writer)
        answer = limit_size(answer, size_before=size, params_before=params)
        size, params = size + len(answer.where.text), params + len(answer.where.params)
        wheres.append(answer.where)
        if answer.reasons:
            uncertain[term] = "; ".join(answer.reasons)
    residual = join_terms(And, uncertain) if uncertain else None
    where = writer.finish(all_of(wheres), first_parameter)
    return SqlPlan(where, residual, tuple(uncertain.values()))


def index_expression(dialect: SqlDialect, header: str, layout: Layout = _COLUMNS) -> str:
    """Write the expression to index for conditions on a header that holds text: `CREATE INDEX … ON t (<this>)`."""
    if not is_plain_name(header):
        raise FilterTypeError(
            f"the header {header!r} cannot be indexed: the name must begin with a letter or _, and have "
            "at most 63 letters, digits, _ and -"
        )
    return _WRITERS[dialect](layout).header_text(Field("header", header)).value.text


def index_statement(dialect: SqlDialect, header: str, table: str = "messages") -> str:
    """Write the statement that creates this index, or a comment that says why there is none."""
    try:
        return f'CREATE INDEX "{table}_{header}" ON {table} ({index_expression(dialect, header)})'
    except FilterTypeError as refusal:
        return f"-- {refusal}"


# ---- conditions ---------------------------------------------------------------------------------------


def answer_term(node: Filter, writer: SqlWriter[Any]) -> SqlAnswer:
    """Write the condition of one term."""
    match node:
        case And(terms=terms):
            return limit_size(both([answer_term(term, writer) for term in cheapest_first(terms)]))
        case Or(terms=terms):
            return limit_size(either([answer_term(term, writer) for term in terms]))
        case _:
            try:
                return limit_size(_leaf(node, writer))
            except Unanswerable as problem:
                return SqlAnswer(_necessary_condition(node, writer), (str(problem),))


def limit_size(answer: SqlAnswer, *, size_before: int = 0, params_before: int = 0) -> SqlAnswer:
    """Return the answer, or ALWAYS where it would make the condition longer than a database accepts."""
    size = size_before + len(answer.where.text)
    params = params_before + len(answer.where.params)
    if size > LONGEST_WHERE or params > MOST_PARAMETERS:
        return SqlAnswer(ALWAYS, (TOO_LONG,))
    return answer


def _leaf(node: Filter, writer: SqlWriter[Any]) -> SqlAnswer:
    match node:
        case Constant(value=value):
            return SqlAnswer(ALWAYS if value else NEVER)
        case Compare(op=op, left=left, right=right):
            return writer.compare(op, _facets(left, writer), _facets(right, writer))
        case In():
            return _membership(node, writer)
        case Like():
            return _like(node, writer)
        case IsNull(field=field, negated=negated):
            return SqlAnswer(_null_test(_value(field, writer), is_null=not negated))
        case Exists(field=field, negated=negated):
            return SqlAnswer(_null_test(_presence(field, writer), is_null=negated))
        case TopicMatch(pattern=pattern, negated=negated):
            return _negate(writer.topic_match(pattern)) if negated else writer.topic_match(pattern)
        case And() | Or() | Not():
            raise AssertionError("AND, OR and NOT are not leaves of a normal form")
        case _:
            assert_never(node)


def _necessary_condition(leaf: Filter, writer: SqlWriter[Any]) -> Sql:
    """Write a condition that holds wherever the leaf does: arithmetic needs numbers."""
    operands = (leaf.left, leaf.right) if isinstance(leaf, Compare) else ()
    computed = [operand for operand in operands if isinstance(operand, Arith | Negate)]
    parts = {part for operand in computed for part in walk(operand)}
    fields = [part for part in parts if isinstance(part, Field) and part.scope != "sys"]
    return all_of(writer.is_number(field) for field in sorted(fields, key=repr))


def _negate(positive: SqlAnswer) -> SqlAnswer:
    """Negate an answer; one that lets too many rows through cannot be negated."""
    if positive.reasons:
        return SqlAnswer(ALWAYS, positive.reasons)
    return SqlAnswer(write("NOT ({0})", positive.where))


def _value(field: Field, writer: SqlWriter[Any]) -> Sql:
    return Sql(writer.layout.column(field)) if field.scope == "sys" else writer.scalar(field)


def _presence(field: Field, writer: SqlWriter[Any]) -> Sql:
    return Sql(writer.layout.column(field)) if field.scope == "sys" else writer.kind(field)


def _null_test(value: Sql, *, is_null: bool) -> Sql:
    return write("{0} IS NULL" if is_null else "{0} IS NOT NULL", value)


def _membership(node: In, writer: SqlWriter[Any]) -> SqlAnswer:
    """Write IN: constants of one class together, everything else one by one."""
    value = _facets(node.value, writer)
    texts = [i for i in node.items if isinstance(i, Literal) and i.kind == "string"]
    numbers = [i for i in node.items if isinstance(i, Literal) and _is_exact_as_double(i.value)]
    together = {*texts, *numbers}
    answers = []
    if texts:
        answers.append(_text_in(value, texts, writer, negated=node.negated))
    if numbers:
        answers.append(_number_in(value, numbers, writer, negated=node.negated))
    op: CompareOp = "<>" if node.negated else "="
    for item in node.items:
        if item not in together:
            answers.append(writer.compare(op, value, _facets(item, writer)))
    return both(answers) if node.negated else either(answers)


def _text_in(
    value: Facets[Any], items: list[Literal], writer: SqlWriter[Any], *, negated: bool
) -> SqlAnswer:
    if value.text is None:
        return SqlAnswer(NEVER)
    return SqlAnswer(writer.text_in(value.text, [str(i.value) for i in items], negated=negated))


def _number_in(
    value: Facets[Any], items: list[Literal], writer: SqlWriter[Any], *, negated: bool
) -> SqlAnswer:
    if value.number is None:
        return SqlAnswer(NEVER)
    numbers = [i.value for i in items if not isinstance(i.value, str)]
    return writer.number_in(value.number, numbers, negated=negated)


def _is_exact_as_double(value: Scalar) -> bool:
    return not isinstance(value, str | bool) and abs(value) < EXACT_AS_DOUBLE


def _like(node: Like, writer: SqlWriter[Any]) -> SqlAnswer:
    text = _facets(node.value, writer).text
    if text is None:
        return SqlAnswer(NEVER)
    pieces = pieces_of(node.pattern, node.escape)
    first = pieces[0]
    prefix = first[0] if first and first[0] is not None else ""
    if len(pieces) == 1 and first in ((), (prefix,)):
        constant = TextFacet(bind(prefix, writer.hole), constant=prefix)
        return SqlAnswer(writer.compare_text("<>" if node.negated else "=", text, constant))
    begins = writer.prefix_range(text.value, prefix)
    only_prefix = len(pieces) == 2 and first in ((), (prefix,)) and not pieces[1]
    try:
        shape = begins if only_prefix else [*begins, writer.pattern(text, pieces)]
    except Unanswerable as problem:
        return SqlAnswer(all_of([*([] if node.negated else begins), text.check]), (str(problem),))
    if not node.negated:
        return SqlAnswer(all_of([*shape, text.check]))
    return SqlAnswer(all_of([write("NOT ({0})", all_of(shape)), text.check]) if shape else NEVER)


# ---- operands ----------------------------------------------------------------------------------------


def _facets(operand: Operand, writer: SqlWriter[Any]) -> Facets[Any]:
    match operand:
        case Literal(value=str(text)):
            return Facets(text=TextFacet(bind(text, writer.hole), constant=text))
        case Literal(value=bool(truth)):
            return Facets(truth=TruthFacet(Sql(writer.truths[truth]), constant=truth))
        case Literal(value=value):
            return Facets(number=writer.constant(cast(float, value)))
        case Field(scope="sys", name=name) if SYS_KINDS[name] == "string":
            return Facets(text=writer.text_column(writer.layout.column(operand)))
        case Field(scope="sys"):
            return Facets(number=writer.int_column(writer.layout.column(operand)))
        case Field():
            return writer.facets(operand)
        case Now():
            raise Unanswerable(NO_MOMENT)
        case Negate(value=value):
            return _facets(Arith("-", Literal(0), value), writer)
        case Arith():
            return Facets(number=_arithmetic(operand, writer))
        case _:
            assert_never(operand)


def _arithmetic(operand: Arith, writer: SqlWriter[Any]) -> Any:
    left, right = _facets(operand.left, writer).number, _facets(operand.right, writer).number
    if left is None or right is None:
        return None
    if left.constant is not None and right.constant is not None:
        value = logic.arithmetic(operand.op, left.constant, right.constant)
        return None if value is None else writer.constant(value)
    number = writer.arithmetic(operand.op, left, right)
    if number is not None and number.size > LONGEST_NUMBER:
        raise Unanswerable(TOO_LONG)
    return number

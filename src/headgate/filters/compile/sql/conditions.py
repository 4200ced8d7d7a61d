"""Each node of a normal form -> a condition: shared by the dialects, which write its parts."""

from __future__ import annotations

from typing import Any, Final, assert_never, cast

from headgate.filters import logic
from headgate.filters.compile.sql.fragment import ALWAYS, NEVER, Sql, all_of, bind, write
from headgate.filters.compile.sql.writer import (
    Answer,
    Facets,
    Text,
    Truth,
    Unanswerable,
    Writer,
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
    walk,
)
from headgate.filters.normal import EXACT_AS_DOUBLE
from headgate.message import Scalar

# In characters. Arithmetic on fields grows faster than its depth: every guard repeats what it guards.
LONGEST_NUMBER: Final = 20_000
LONGEST_WHERE: Final = 250_000
MOST_PARAMETERS: Final = 10_000  # SQLite takes 32,766 in all, PostgreSQL 65,535
TOO_LONG: Final = "the condition would be longer than a database takes"
NO_MOMENT: Final = "UTC() is the moment of looking, and no moment was given to compile with"


def answer(node: Filter, writer: Writer[Any]) -> Answer:
    """The condition of one term."""
    match node:
        case And(terms=terms):
            return bounded(both([answer(term, writer) for term in cheapest_first(terms)]))
        case Or(terms=terms):
            return bounded(either([answer(term, writer) for term in terms]))
        case _:
            try:
                return bounded(_leaf(node, writer))
            except Unanswerable as problem:
                return Answer(_least(node, writer), (str(problem),))


def bounded(answer: Answer, *, size_before: int = 0, params_before: int = 0) -> Answer:
    """The answer, unless with what stands before it, it is more than a database takes."""
    size = size_before + len(answer.where.text)
    params = params_before + len(answer.where.params)
    if size > LONGEST_WHERE or params > MOST_PARAMETERS:
        return Answer(ALWAYS, (TOO_LONG,))
    return answer


def _leaf(node: Filter, writer: Writer[Any]) -> Answer:
    match node:
        case Constant(value=value):
            return Answer(ALWAYS if value else NEVER)
        case Compare(op=op, left=left, right=right):
            return writer.compare(op, _facets(left, writer), _facets(right, writer))
        case In():
            return _membership(node, writer)
        case Like():
            return _like(node, writer)
        case IsNull(field=field, negated=negated):
            return Answer(_null_test(_value(field, writer), is_null=not negated))
        case Exists(field=field, negated=negated):
            return Answer(_null_test(_presence(field, writer), is_null=negated))
        case TopicMatch(pattern=pattern, negated=negated):
            return _negated(writer.topic_match(pattern)) if negated else writer.topic_match(pattern)
        case And() | Or() | Not():
            raise AssertionError("a leaf of a normal form is no joint")
        case _:
            assert_never(node)


def _least(leaf: Filter, writer: Writer[Any]) -> Sql:
    """What holds wherever the leaf does: arithmetic is done on numbers only."""
    operands = (leaf.left, leaf.right) if isinstance(leaf, Compare) else ()
    computed = [operand for operand in operands if isinstance(operand, Arith | Negate)]
    parts = {part for operand in computed for part in walk(operand)}
    fields = [part for part in parts if isinstance(part, Field) and part.scope != "sys"]
    return all_of(writer.is_number(field) for field in sorted(fields, key=repr))


def _negated(positive: Answer) -> Answer:
    """NOT; what is only roughly known cannot be negated."""
    if positive.reasons:
        return Answer(ALWAYS, positive.reasons)
    return Answer(write("NOT ({0})", positive.where))


def _value(field: Field, writer: Writer[Any]) -> Sql:
    return Sql(writer.layout.column(field)) if field.scope == "sys" else writer.scalar(field)


def _presence(field: Field, writer: Writer[Any]) -> Sql:
    return Sql(writer.layout.column(field)) if field.scope == "sys" else writer.kind(field)


def _null_test(value: Sql, *, is_null: bool) -> Sql:
    return write("{0} IS NULL" if is_null else "{0} IS NOT NULL", value)


def _membership(node: In, writer: Writer[Any]) -> Answer:
    """Constants of one class are asked for together, everything else one by one."""
    value = _facets(node.value, writer)
    texts = [i for i in node.items if isinstance(i, Literal) and i.kind == "string"]
    numbers = [i for i in node.items if isinstance(i, Literal) and _is_small(i.value)]
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
    value: Facets[Any], items: list[Literal], writer: Writer[Any], *, negated: bool
) -> Answer:
    if value.text is None:
        return Answer(NEVER)
    return Answer(writer.text_in(value.text, [str(i.value) for i in items], negated=negated))


def _number_in(
    value: Facets[Any], items: list[Literal], writer: Writer[Any], *, negated: bool
) -> Answer:
    if value.number is None:
        return Answer(NEVER)
    wanted = [i.value for i in items if not isinstance(i.value, str)]
    return writer.number_in(value.number, wanted, negated=negated)


def _is_small(value: Scalar) -> bool:
    return not isinstance(value, str | bool) and abs(value) < EXACT_AS_DOUBLE


def _like(node: Like, writer: Writer[Any]) -> Answer:
    text = _facets(node.value, writer).text
    if text is None:
        return Answer(NEVER)
    pieces = pieces_of(node.pattern, node.escape)
    first = pieces[0]
    prefix = first[0] if first and first[0] is not None else ""
    if len(pieces) == 1 and first in ((), (prefix,)):
        constant = Text(bind(prefix, writer.hole), constant=prefix)
        return Answer(writer.compare_text("<>" if node.negated else "=", text, constant))
    begins = writer.prefix_range(text.value, prefix)
    only_prefix = len(pieces) == 2 and first in ((), (prefix,)) and not pieces[1]
    try:
        shape = begins if only_prefix else [*begins, writer.pattern(text, pieces)]
    except Unanswerable as problem:
        return Answer(all_of([*([] if node.negated else begins), text.check]), (str(problem),))
    if not node.negated:
        return Answer(all_of([*shape, text.check]))
    return Answer(all_of([write("NOT ({0})", all_of(shape)), text.check]) if shape else NEVER)


# ---- operands ----------------------------------------------------------------------------------------


def _facets(operand: Operand, writer: Writer[Any]) -> Facets[Any]:
    match operand:
        case Literal(value=str(text)):
            return Facets(text=Text(bind(text, writer.hole), constant=text))
        case Literal(value=bool(truth)):
            return Facets(truth=Truth(Sql(writer.truths[truth]), constant=truth))
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


def _arithmetic(operand: Arith, writer: Writer[Any]) -> Any:
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

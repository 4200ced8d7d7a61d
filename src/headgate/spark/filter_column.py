"""Filter -> Spark column, and the condition as text that can be read without a JVM.

Every field has up to four typed views of which at most one is not null, so a comparison is an OR over the pairs of kinds
that compare. An operation that would raise an error in Spark (an overflow, a division by zero) is null here, and null is
UNKNOWN.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar, assert_never

from headgate.errors import MissingExtra
from headgate.filters import (
    KINDS,
    SYS_KINDS,
    And,
    Arith,
    ArithOp,
    Compare,
    CompareOp,
    Constant,
    Exists,
    Field,
    Filter,
    In,
    IsNull,
    Kind,
    Like,
    Literal,
    Negate,
    Not,
    Now,
    Operand,
    Or,
    TopicMatch,
    View,
    normalize,
    pieces_of,
    regex,
)
from headgate.message import Scalar

if TYPE_CHECKING:
    from pyspark.sql import Column

E = TypeVar("E")
Resolve: TypeAlias = Callable[[Field, View], E | None]

# A header that exists but cannot be compared is an entry with four nulls.
HEADERS_TYPE: Final = "map<string, struct<s: string, i: bigint, f: double, b: boolean>>"
SCHEMA: Final = (
    "topic string, priority bigint, timestamp bigint, id string, filter_value string, key string, "
    f"headers {HEADERS_TYPE}, properties {HEADERS_TYPE}"
)


def to_column(
    node: Filter, resolve: Resolve[Column] | None = None, now_us: int | None = None
) -> Column:
    """Translate a filter to a boolean column that is never null: true for exactly the rows that match.

    `resolve` gives the column with a field's values of one kind (None: there are none), and for "opaque" a condition,
    never null, that is true where the field has a value that no filter can compare. `UTC()` is `now_us`, or else the
    moment at which Spark starts the query.
    """
    dialect = _ColumnDialect()
    condition = ConditionWriter(dialect, resolve or map_views()).condition(_prepare(node, now_us))
    return dialect.call("coalesce", condition, dialect.literal(False))


def to_expression_text(node: Filter, now_us: int | None = None) -> str:
    """Write a filter as Spark SQL over the default schema, for people to read."""
    dialect = _TextDialect()
    text = ConditionWriter(dialect, _MapViews(dialect, "headers", "properties")).condition(
        _prepare(node, now_us)
    )
    return text[1:-1] if text.startswith("(") else text  # without parentheses around the whole


def map_views(headers: str = "headers", properties: str = "properties") -> Resolve[Column]:
    """Resolve fields in the columns of the default schema (`SCHEMA`)."""
    return _MapViews(_ColumnDialect(), headers, properties)


def _prepare(node: Filter, now_us: int | None) -> Filter:
    normal = normalize(node)
    return normal.tree if now_us is None else normal.at(now_us).tree


class _MapViews(Generic[E]):
    def __init__(self, dialect: ExpressionDialect[E], headers: str, properties: str) -> None:
        self.dialect = dialect
        self.maps = {"header": headers, "property": properties}

    def __call__(self, field: Field, view: View) -> E | None:
        if field.scope == "sys":
            return self.dialect.path(field.name) if SYS_KINDS[field.name] == view else None
        if view == "opaque":
            return self.dialect.call(
                "isnotnull", self.dialect.path(self.maps[field.scope], field.name)
            )
        return self.dialect.path(self.maps[field.scope], field.name, view[0])


# ---- the two dialects --------------------------------------------------------------------------------


class _ColumnDialect:
    """Writes Spark columns; values are literals of their own type, never text."""

    def __init__(self) -> None:
        try:
            from pyspark.sql import functions
        except ImportError:
            raise MissingExtra("spark", "a filter on Spark") from None
        self.functions = functions
        self.paths: dict[tuple[str, str | None, str | None], Column] = {}

    def literal(self, value: Scalar | None) -> Column:
        column = self.functions.lit(value)
        return column.cast("bigint") if type(value) is int else column

    def path(self, column: str, key: str | None = None, part: str | None = None) -> Column:
        place = column, key, part
        if place not in self.paths:
            self.paths[place] = self.make_path(column, key, part)
        return self.paths[place]

    def make_path(self, column: str, key: str | None, part: str | None) -> Column:
        if key is None:
            return self.functions.col(_quoted_name(column))
        return self.path(column)[key] if part is None else self.path(column, key)[part]

    def call(self, function: str, *arguments: Column) -> Column:
        make: Callable[..., Column] = _COLUMN_METHODS.get(function) or getattr(
            self.functions, function
        )
        return make(*arguments)


def _balanced(join: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return a function that joins any number of terms as a balanced tree.

    Spark walks expressions recursively, and a long chain would overflow its stack.
    """

    def joined(*terms: Any) -> Any:
        if len(terms) == 1:
            return terms[0]
        middle = len(terms) // 2
        return join(joined(*terms[:middle]), joined(*terms[middle:]))

    return joined


# A method of a column costs one call into the JVM, a function costs several.
_COLUMN_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "and": _balanced(operator.and_),
    "or": _balanced(operator.or_),
    "not": operator.invert,
    "in": lambda value, *items: value.isin(*items),
    "isnull": lambda value: value.isNull(),
    "isnotnull": lambda value: value.isNotNull(),
    "double": lambda value: value.cast("double"),
}


class _TextDialect:
    """Writes Spark SQL."""

    _FORMS: Final = {
        "not": "NOT {}",
        "when": "CASE WHEN {} THEN {} END",
        "like": "{} LIKE {}",
        "rlike": "{} RLIKE {}",
        "isnull": "{} IS NULL",
        "isnotnull": "{} IS NOT NULL",
        "=": "{} = {}",
        "<>": "{} <> {}",
        "<": "{} < {}",
        "<=": "{} <= {}",
        ">": "{} > {}",
        ">=": "{} >= {}",
    }

    def literal(self, value: Scalar | None) -> str:
        if isinstance(value, str):
            return _quoted_text(value)
        if isinstance(value, float):
            return f"{value!r}D"
        return "NULL" if value is None else str(value).upper()

    def path(self, column: str, key: str | None = None, part: str | None = None) -> str:
        entry = "" if key is None else f"[{_quoted_text(key)}]"
        return _quoted_name(column) + entry + ("" if part is None else f".{part}")

    def call(self, function: str, *arguments: str) -> str:
        if function in ("and", "or"):
            return "(" + f" {function.upper()} ".join(arguments) + ")"
        if function == "in":
            return f"{arguments[0]} IN ({', '.join(arguments[1:])})"
        if function in self._FORMS:
            return self._FORMS[function].format(*arguments)
        return f"{function}({', '.join(arguments)})"


def _quoted_name(name: str) -> str:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
    return name if plain else "`" + name.replace("`", "``") + "`"


def _quoted_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# ---- the condition -----------------------------------------------------------------------------------

_TRY: Final[dict[ArithOp, str]] = {
    "+": "try_add",
    "-": "try_subtract",
    "*": "try_multiply",
    "/": "try_divide",
    "%": "try_mod",
}


class ExpressionDialect(Protocol[E]):
    """How a target writes constants, columns, and functions and operators by their name in SQL."""

    def literal(self, value: Scalar | None) -> E: ...

    def path(self, column: str, key: str | None = None, part: str | None = None) -> E:
        """A column, an entry of a map column, or a part of that entry."""
        ...

    def call(self, function: str, *arguments: E) -> E: ...


class ConditionWriter(Generic[E]):
    """Writes a normalized filter in a dialect: true for the rows that match, false or null for the others."""

    def __init__(self, dialect: ExpressionDialect[E], resolve: Resolve[E]) -> None:
        self.dialect, self.resolve = dialect, resolve
        self.parts: dict[tuple[Operand, Kind], E | None] = {}

    def condition(self, node: Filter) -> E:
        match node:
            case Constant(value=value):
                return self.dialect.literal(value)
            case Compare(op=op, left=left, right=right):
                return self.any_of(self.comparisons(op, left, right))
            case In():
                return self.membership(node)
            case Like(value=value, pattern=pattern, escape=escape, negated=negated):
                return self.like(value, like_pattern(pattern, escape), negated)
            case IsNull(field=field, negated=negated):
                return self.any_of(self.present(field)) if negated else self.absent(field)
            case Exists(field=field, negated=negated):
                exists = self.any_of([*self.present(field), *self.opaque(field)])
                return self.unless(negated, exists)
            case TopicMatch(pattern=pattern, negated=negated):
                return self.topic_match(f"\\A(?:{regex(pattern)})\\z", negated)
            case And(terms=terms):
                return self.all_of(map(self.condition, terms))
            case Or(terms=terms):
                return self.any_of(map(self.condition, terms))
            case Not():
                raise AssertionError("a normal form holds no NOT")
            case _:
                assert_never(node)

    # -- leaves

    def comparisons(self, op: CompareOp, left: Operand, right: Operand) -> list[E]:
        """One comparison for every pair of kinds that compare; at most one of them is not null."""
        kinds = KINDS if op in ("=", "<>") else ("string", "int", "float")
        pairs = [(self.view(left, kind), self.view(right, kind)) for kind in kinds]
        pairs.append((self.widened(left, right), self.view(right, "float")))
        pairs.append((self.view(left, "float"), self.widened(right, left)))
        return [self.dialect.call(op, a, b) for a, b in pairs if a is not None and b is not None]

    def membership(self, node: In) -> E:
        values = [item.value for item in node.items if isinstance(item, Literal)]
        if len(values) == len(node.items):
            return self.constant_membership(node.value, values, node.negated)
        op: CompareOp = "<>" if node.negated else "="
        tests = (self.any_of(self.comparisons(op, node.value, item)) for item in node.items)
        return self.all_of(tests) if node.negated else self.any_of(tests)

    def constant_membership(self, value: Operand, values: list[Scalar], negated: bool) -> E:
        by_kind = self.tests_by_kind(value, values)
        if not negated:
            return self.any_of(test for tests in by_kind for test in tests)
        if len({"number" if type(w) in (int, float) else type(w) for w in values}) > 1:
            return self.dialect.literal(False)  # with two kinds, one comparison is always UNKNOWN
        misses = ([self.dialect.call("not", test) for test in tests] for tests in by_kind)
        return self.any_of(self.all_of(tests) for tests in misses if tests)

    def tests_by_kind(self, value: Operand, values: list[Scalar]) -> list[list[E]]:
        """For each kind of value, the IN tests that apply to values of that kind."""
        strings = [w for w in values if isinstance(w, str)]
        bools = [w for w in values if isinstance(w, bool)]
        ints = [w for w in values if type(w) is int]
        floats = [w for w in values if type(w) is float]
        numbers = [float(w) for w in (*ints, *floats)]
        int_view = self.view(value, "int")
        widened = self.double(int_view) if floats else None
        return [
            [*self.one_of(self.view(value, "string"), strings)],
            [*self.one_of(self.view(value, "bool"), bools)],
            [*self.one_of(int_view, ints), *self.one_of(widened, floats)],
            [*self.one_of(self.view(value, "float"), numbers)],
        ]

    def one_of(self, value: E | None, values: Sequence[Scalar]) -> Iterable[E]:
        if value is not None and values:
            yield self.dialect.call("in", value, *map(self.dialect.literal, values))

    def like(self, value: Operand, pattern: str, negated: bool) -> E:
        text = self.view(value, "string")
        if text is None:
            return self.dialect.literal(False)
        return self.unless(negated, self.dialect.call("like", text, self.dialect.literal(pattern)))

    def topic_match(self, pattern: str, negated: bool) -> E:
        topic = self.view(Field("sys", "topic"), "string")
        if topic is None:
            return self.dialect.literal(False)
        found = self.dialect.call("rlike", topic, self.dialect.literal(pattern))
        return self.unless(negated, found)

    def present(self, field: Field) -> list[E]:
        views = (self.view(field, kind) for kind in KINDS)
        return [self.dialect.call("isnotnull", view) for view in views if view is not None]

    def absent(self, field: Field) -> E:
        views = (self.view(field, kind) for kind in KINDS)
        return self.all_of(self.dialect.call("isnull", view) for view in views if view is not None)

    def opaque(self, field: Field) -> list[E]:
        view = self.resolve(field, "opaque")
        return [] if view is None else [view]

    # -- operands

    def view(self, operand: Operand, kind: Kind) -> E | None:
        """The operand where it is of that kind, null elsewhere; None when it never is."""
        part = self.part(operand, kind)
        if part is None or kind != "float" or not isinstance(operand, Arith | Negate):
            return part
        return self.dialect.call("nanvl", part, self.dialect.literal(None))

    def part(self, operand: Operand, kind: Kind) -> E | None:
        """The operand as a value of that kind inside a computation, where NaN stands for UNKNOWN: any operation keeps NaN.

        Spark's search for common subexpressions takes twice as long with every nested conditional, so only `view` replaces NaN
        by null.
        """
        if (operand, kind) not in self.parts:
            self.parts[operand, kind] = self.written(operand, kind)
        return self.parts[operand, kind]

    def written(self, operand: Operand, kind: Kind) -> E | None:
        match operand:
            case Literal(value=value):
                return self.dialect.literal(value) if kind == operand.kind else None
            case Field():
                return self.resolve(operand, kind)
            case Now():
                now = self.dialect.call("current_timestamp")
                return self.dialect.call("unix_micros", now) if kind == "int" else None
            case Negate(value=value):
                return self.negative(value, kind)
            case Arith(op=op, left=left, right=right):
                if kind == "int" and op != "/":
                    return self.computed(op, self.integers(op, left), self.integers(op, right))
                return self.float_arithmetic(op, left, right) if kind == "float" else None
            case _:
                assert_never(operand)

    def integers(self, op: ArithOp, operand: Operand) -> E | None:
        part = self.part(operand, "int")
        if not isinstance(operand, Arith) or operand.op != op or op not in ("+", "*"):
            return part
        # Spark takes `a + b + c` and `a + (b + c)` for one expression, but only one of them may overflow.
        return self.computed("-", part, self.dialect.literal(0))

    def negative(self, value: Operand, kind: Kind) -> E | None:
        part = self.part(value, kind) if kind in ("int", "float") else None
        if part is None or kind == "float":
            return None if part is None else self.dialect.call("negative", part)
        return self.computed("-", self.dialect.literal(0), part)

    def float_arithmetic(self, op: ArithOp, left: Operand, right: Operand) -> E | None:
        if op == "/":
            return self.finite(self.computed(op, self.number(left), self.number(right)))
        a, b = self.part(left, "float"), self.part(right, "float")
        if a is not None and b is not None:
            result = self.finite(self.computed(op, self.number(left), self.number(right)))
            return self.unless_both_int(left, right, result)
        a = self.widened(left, right) if a is None else a
        b = self.widened(right, left) if b is None else b
        return self.finite(self.computed(op, a, b))

    def unless_both_int(self, left: Operand, right: Operand, result: E | None) -> E | None:
        # Two ints make an int or nothing: an overflow must not become a double.
        ints = [i for i in (self.part(left, "int"), self.part(right, "int")) if i is not None]
        if result is None or len(ints) < 2:
            return result
        some_float = self.any_of(self.dialect.call("isnull", i) for i in ints)
        return self.dialect.call("when", some_float, result)

    def computed(self, op: ArithOp, left: E | None, right: E | None) -> E | None:
        if left is None or right is None:
            return None
        return self.dialect.call(_TRY[op], left, right)

    def finite(self, value: E | None) -> E | None:
        # x % Infinity is x for every finite x and NaN for the rest, and names x only once.
        if value is None:
            return None
        infinity = self.dialect.call("double", self.dialect.literal("Infinity"))
        return self.dialect.call("try_mod", value, infinity)

    def number(self, operand: Operand) -> E | None:
        """The number as a double, from an int or a float."""
        found = [v for v in (self.part(operand, "float"), self.as_double(operand)) if v is not None]
        if len(found) < 2:
            return found[0] if found else None
        return self.dialect.call("coalesce", *found)

    def widened(self, operand: Operand, other: Operand) -> E | None:
        """The operand's ints as doubles, if the other has doubles to compare or compute with."""
        return None if self.part(other, "float") is None else self.as_double(operand)

    def as_double(self, operand: Operand) -> E | None:
        if isinstance(operand, Literal):
            return self.dialect.literal(float(operand.value)) if operand.kind == "int" else None
        return self.double(self.part(operand, "int"))

    def double(self, value: E | None) -> E | None:
        return None if value is None else self.dialect.call("double", value)

    # -- AND, OR, NOT

    def any_of(self, terms: Iterable[E]) -> E:
        return self.joined("or", list(terms), neutral=False)

    def all_of(self, terms: Iterable[E]) -> E:
        return self.joined("and", list(terms), neutral=True)

    def joined(self, joint: str, terms: list[E], *, neutral: bool) -> E:
        if len(terms) < 2:
            return terms[0] if terms else self.dialect.literal(neutral)
        return self.dialect.call(joint, *terms)

    def unless(self, negated: bool, condition: E) -> E:
        return self.dialect.call("not", condition) if negated else condition


def like_pattern(pattern: str, escape: str | None) -> str:
    """Write a LIKE pattern for Spark, where the escape character is always a backslash."""
    return "%".join(
        "".join("_" if part is None else re.sub(r"([%_\\])", r"\\\1", part) for part in piece)
        for piece in pieces_of(pattern, escape)
    )

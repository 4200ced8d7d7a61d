"""Filter -> Spark column, and the same condition as text that a human can read without a JVM."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic

from headgate.errors import MissingExtra
from headgate.filters import SYS_KINDS, Field, Filter, View, normalize
from headgate.message import Scalar
from headgate.spark.filter_expression import Dialect, E, Resolve, Writer

if TYPE_CHECKING:
    from pyspark.sql import Column

# A header that exists but cannot be compared is an entry with four nulls.
HEADERS_TYPE: Final = "map<string, struct<s: string, i: bigint, f: double, b: boolean>>"
SCHEMA: Final = (
    "topic string, priority bigint, timestamp bigint, id string, filter_value string, key string, "
    f"headers {HEADERS_TYPE}, properties {HEADERS_TYPE}"
)


def to_column(
    node: Filter, resolve: Resolve[Column] | None = None, now_us: int | None = None
) -> Column:
    """A boolean column, never null: true for exactly the rows that match.

    `resolve` names the column that holds a field's values of one kind (None: there are none), and for
    "opaque" a condition, never null, that is true where the field is there but holds nothing comparable and
    false where it is absent. `UTC()` is `now_us`, or else the moment at which Spark starts the query.
    """
    dialect = _Columns()
    condition = Writer(dialect, resolve or map_views()).condition(_prepared(node, now_us))
    return dialect.call("coalesce", condition, dialect.literal(False))


def to_expression_text(node: Filter, now_us: int | None = None) -> str:
    """The same condition over the default schema as Spark SQL, for reading only."""
    dialect = _Text()
    text = Writer(dialect, _MapViews(dialect, "headers", "properties")).condition(
        _prepared(node, now_us)
    )
    return text[1:-1] if text.startswith("(") else text  # a group around the whole says nothing


def map_views(headers: str = "headers", properties: str = "properties") -> Resolve[Column]:
    """Where the default schema (`SCHEMA`) keeps each kind of a field."""
    return _MapViews(_Columns(), headers, properties)


def _prepared(node: Filter, now_us: int | None) -> Filter:
    normal = normalize(node)
    return normal.tree if now_us is None else normal.at(now_us).tree


class _MapViews(Generic[E]):
    def __init__(self, dialect: Dialect[E], headers: str, properties: str) -> None:
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


class _Columns:
    """Expressions as Spark columns; values are literals of their own type, never text."""

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
            self.paths[place] = self.found(column, key, part)
        return self.paths[place]

    def found(self, column: str, key: str | None, part: str | None) -> Column:
        if key is None:
            return self.functions.col(_quoted_name(column))
        return self.path(column)[key] if part is None else self.path(column, key)[part]

    def call(self, function: str, *arguments: Column) -> Column:
        make: Callable[..., Column] = _COLUMN_METHODS.get(function) or getattr(
            self.functions, function
        )
        return make(*arguments)


def _balanced(join: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Spark walks expressions recursively: a thousand terms in a row would overflow its stack."""

    def joined(*terms: Any) -> Any:
        if len(terms) == 1:
            return terms[0]
        middle = len(terms) // 2
        return join(joined(*terms[:middle]), joined(*terms[middle:]))

    return joined


# A method of a column costs one call into the JVM, a function several.
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


class _Text:
    """Expressions as Spark SQL."""

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

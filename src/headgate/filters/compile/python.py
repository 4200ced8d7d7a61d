"""Filter -> a Python function over one message.

The function is generated: the source holds only our own words, and names like `k3` for the constants, which are bound
as objects. No text of the filter reaches Python's compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Final, TypeAlias, assert_never

from headgate.clock import now_us
from headgate.errors import FilterTypeError
from headgate.filters import logic
from headgate.filters.cost import cheapest_first
from headgate.filters.like import compile_like
from headgate.filters.nodes import (
    KIND_OF,
    TRUE,
    And,
    Arith,
    Compare,
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
)
from headgate.filters.normal import EXACT_AS_DOUBLE, NormalFilter, normalize
from headgate.filters.topics import compile_pattern
from headgate.message import Message, Scalar

Predicate: TypeAlias = Callable[[Message], bool]

_HEAD: Final = (  # a try costs nothing as long as nothing is raised
    "def matches(m):",
    "    try:",
    "        h = m.headers",
    "    except AttributeError as problem:",
    "        raise not_a_message(m) from problem",
)


@lru_cache(maxsize=4096)
def compile_predicate(node: Filter | NormalFilter, clock: Callable[[], int] = now_us) -> Predicate:
    """Compile a filter to a function that returns True for exactly the messages it matches."""
    normal = normalize(node)
    tree = normal.tree
    if tree == TRUE:
        return lambda message: True
    code = _Code(clock)
    body = code.condition(tree)
    lines = list(_HEAD)
    if normal.depends_on_time:
        lines.append("    now = clock()")
    lines.append(f"    return {body}")
    # A copy of the code: the interpreter specializes it for one filter, and filters of one shape differ.
    return FunctionType(_compile_source("\n".join(lines)).replace(), code.names)


def _not_a_message(given: object) -> FilterTypeError:
    name = type(given).__name__
    advice = "Message(headers={…})"
    return FilterTypeError(
        f"a filter is asked about a message, {advice}, not about a value of the type {name}"
    )


@lru_cache(maxsize=1024)
def _compile_source(source: str) -> CodeType:
    """Compile the source once for all filters of one shape: their constants are names in it."""
    scope: dict[str, Any] = {}
    exec(compile(source, "<filter>", "exec"), scope)
    code: CodeType = scope["matches"].__code__
    return code


class _Code:
    """Writes expressions, and keeps the objects that they name."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.names: dict[str, Any] = {
            "clock": clock,
            "compare": logic.compare,
            "arithmetic": logic.arithmetic,
            "negative": logic.negative,
            "not_a_message": _not_a_message,
            "NUMBERS": frozenset({int, float}),
            "SCALARS": frozenset(KIND_OF),
        }

    def name(self, value: object) -> str:
        """Name a constant."""
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def condition(self, node: Filter) -> str:
        """Write an expression that is true exactly when the condition is TRUE."""
        match node:
            case Constant(value=value):
                return repr(value)
            case Compare():
                return self.comparison(node)
            case In():
                return self.membership(node)
            case Like(value=value, pattern=pattern, escape=escape, negated=negated):
                like = self.name(compile_like(pattern, escape))
                return f"(type(v := {self.operand(value)}) is str and {_not(negated)}{like}(v))"
            case IsNull(field=field, negated=negated):
                return f"(type({self.operand(field)}) {'' if negated else 'not '}in SCALARS)"
            case Exists(field=field, negated=negated):
                return f"({self.operand(field)} is {'' if negated else 'not '}None)"
            case TopicMatch(pattern=pattern, negated=negated):
                return f"({_not(negated)}{self.name(compile_pattern(pattern))}(m.topic))"
            case And(terms=terms):
                return "(" + " and ".join(map(self.condition, cheapest_first(terms))) + ")"
            case Or(terms=terms):
                return "(" + " or ".join(map(self.condition, cheapest_first(terms))) + ")"
            case Not():
                raise AssertionError("a normal form holds no NOT")
            case _:
                assert_never(node)

    def comparison(self, node: Compare) -> str:
        """Write a comparison."""
        value = self.operand(node.left)
        if not isinstance(node.right, Literal):
            return f"(compare({node.op!r}, {value}, {self.operand(node.right)}) is True)"
        literal = node.right.value
        constant = self.name(literal)
        op = {"=": "==", "<>": "!="}.get(node.op, node.op)
        if isinstance(literal, bool):  # only = and <> are left in the normal form
            return f"({value} is {literal is (node.op == '=')})"
        if isinstance(literal, str):
            return (
                f"({value} == {constant})"
                if op == "=="
                else f"(type(v := {value}) is str and v {op} {constant})"
            )
        if not _compares_as_double(literal):
            return f"(compare({node.op!r}, {value}, {constant}) is True)"
        if op == "==" and literal not in (0, 1):  # only 0 and 1 equal a bool in Python
            return f"({value} == {constant})"
        return f"(type(v := {value}) in NUMBERS and v {op} {constant})"

    def membership(self, node: In) -> str:
        """Write IN: constants of one class as a set, anything else item by item."""
        listed = [item.value for item in node.items if isinstance(item, Literal)]
        text = all(isinstance(v, str) for v in listed)
        numbers = all(not isinstance(v, str | bool) and _compares_as_double(v) for v in listed)
        if len(listed) < len(node.items) or not (text or numbers):
            return self.item_by_item(node)
        value, constants = self.operand(node.value), self.name(frozenset(listed))
        if text and not node.negated:
            return f"({value} in {constants})"
        kind = "is str" if text else "in NUMBERS"
        return f"(type(v := {value}) {kind} and v {_not(node.negated)}in {constants})"

    def item_by_item(self, node: In) -> str:
        """Write IN as one comparison for each item."""
        value = self.operand(node.value)
        op, joint = ("<>", " and ") if node.negated else ("=", " or ")
        tests = (f"compare({op!r}, v, {self.operand(item)}) is True" for item in node.items)
        return f"((v := {value}) is not None and ({joint.join(tests)}))"

    def operand(self, operand: Operand) -> str:
        """Write the value of an operand."""
        match operand:
            case Literal(value=value):
                return self.name(value)
            case Field(scope="header", name=name):
                return f"h.get({self.name(name)})"
            case Field(scope="property", name=name):
                return f"m.properties.get({self.name(name)})"
            case Field(name=name):
                return f"m.{name}"  # one of SYS_KINDS: the node refuses other names
            case Now():
                return "now"
            case Negate(value=value):
                return f"negative({self.operand(value)})"
            case Arith(op=op, left=left, right=right):
                return f"arithmetic({op!r}, {self.operand(left)}, {self.operand(right)})"
            case _:
                assert_never(operand)


def _not(negated: bool) -> str:
    return "not " if negated else ""


def _compares_as_double(value: Scalar) -> bool:
    """Tell whether Python compares the value like the language: ints with floats exactly, not as doubles."""
    return not isinstance(value, str) and abs(value) < EXACT_AS_DOUBLE

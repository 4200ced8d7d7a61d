"""PostgreSQL's way of saying things."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from hashlib import md5
from typing import Final

from headgate.clock import Clock, now_us
from headgate.filters import EXACT_AS_DOUBLE
from headgate.filters.compile.sql import Sql, SqlDialect
from headgate.message import Scalar
from headgate.queues.engine import SqlValue
from headgate.queues.sql.dialect import Condition, Dialect
from headgate.queues.sql.planning import Branch, Probe

# Characters of a header's text that its index holds; probe_key in the schema says the same.
LONGEST_KEY: Final = 200
_PLACEHOLDER: Final = re.compile(r"\$(\d+)")
# Always true, and only the index in the queue's order says so too: a claim that looks something up leaves it
# out, and so cannot be answered by reading the whole queue.
_IN_ORDER: Final = Sql("d.rank <= 0")
_ARRAYS: Final = {str: "text[]", int: "bigint[]", float: "float8[]", bool: "boolean[]"}


class PostgresDialect(Dialect):
    """Statements look at the server's clock, unless a clock is given."""

    name: SqlDialect = "postgres"

    def __init__(self, clock: Clock | None = None, *, looks_only: bool = False) -> None:
        super().__init__(wall_us=now_us if clock is None else clock.wall_us)
        self._clock, self.looks_only = clock, looks_only

    def now_us(self) -> int | None:
        return None if self._clock is None else self._clock.elapsed_us()

    def timestamp_us(self) -> int | None:
        return None if self._clock is None else self._clock.wall_us()

    def index_name(self, header: str) -> str:
        return index_name(header)

    def placeholder(self, number: int) -> str:
        return f"${number}"

    def hint(self, probe: Probe, first_parameter: int) -> Sql | None:
        key = probe_key(probe.value)
        if key is None:
            return None
        return Sql(f"{key_expression(probe.header, 'd.')} = ${first_parameter}::text", (key,))

    def condition(self, branch: Branch, first_parameter: int) -> Condition:
        condition = super().condition(branch, first_parameter)
        if branch.probe is not None and probe_key(branch.probe.value) is not None:
            return condition
        return replace(condition, where=condition.where.and_also(_IN_ORDER))


def probe_key(value: Scalar) -> str | None:
    """What the index holds of headers that equal this; None when that is more than one thing."""
    if isinstance(value, bool):
        return f"b{str(value).lower()}"
    if isinstance(value, str):
        return "s" + value[:LONGEST_KEY]
    if abs(value) >= EXACT_AS_DOUBLE:  # as doubles, several integers are equal
        return None
    text = format(Decimal(repr(value)), "f")
    plain = text.rstrip("0").rstrip(".") if "." in text else text
    return "n" + ("0" if plain == "-0" else plain)


def key_expression(header: str, alias: str = "") -> str:
    """What is indexed of a declared header. Its name is plain, see `is_plain_name`."""
    return f"probe_key({alias}keys -> '{header}') COLLATE \"C\""


def index_name(header: str) -> str:
    """Names of indexes are cut at 63 bytes; this one is not, and tells headers apart."""
    return f"delivery_by_{md5(header.encode()).hexdigest()[:16]}"


def merged(
    dialect: Dialect, conditions: Sequence[Condition], free: str, first: int
) -> tuple[str, list[SqlValue]]:
    """One SELECT for all branches of the same shape, its parameters as arrays numbered from `first` on."""
    shapes: dict[str, list[tuple[Scalar, ...]]] = {}
    for condition in conditions:
        shapes.setdefault(condition.where.text, []).append(condition.where.params)
    params: list[SqlValue] = []
    texts = []
    for where, rows in shapes.items():
        columns = [list(column) for column in zip(*rows, strict=True)]
        texts.append(_branch(dialect, where, columns, free, first + len(params)))
        params += columns
    return " UNION ALL ".join(texts), params


def _branch(
    dialect: Dialect, where: str, columns: Sequence[list[Scalar]], free: str, first: int
) -> str:
    arrays = [f"${first + i}::{_ARRAYS[type(c[0])]}" for i, c in enumerate(columns)]
    names = [f"p{i}" for i in range(len(columns))]
    lowest = min((int(hit) for hit in _PLACEHOLDER.findall(where)), default=0)
    spelled = _PLACEHOLDER.sub(lambda hit: f"v.p{int(hit[1]) - lowest}", where)
    return dialect.text(
        "branch", arrays=", ".join(arrays), names=", ".join(names), where=spelled, free=free
    )

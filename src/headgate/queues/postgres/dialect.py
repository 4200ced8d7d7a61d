"""PostgreSQL's dialect: the settings of its sessions, conditions and indexes on filter headers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from hashlib import md5
from typing import Final

from headgate.clock import Clock, now_us
from headgate.filters import EXACT_AS_DOUBLE
from headgate.filters.compile.sql import Sql, SqlDialect, after_prefix
from headgate.message import Scalar
from headgate.queues.engine import SqlValue
from headgate.queues.sql.dialect import ClaimCondition, InRange, KeyRange, QueueDialect
from headgate.queues.sql.plan import Branch, Probe, key_prefix

# Claims must read the indexes in the order of the queue and stop early. The planner, whose statistics lag behind, would now
# and then rather sort or read everything: these settings forbid that on our connections, which run nothing else. A
# statement is planned once, for all values: planning a claim takes longer than the claim, and otherwise PostgreSQL plans
# each of them again once it has seen the queue nearly empty.
SESSION: Final = {
    "application_name": "headgate",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    # With another default level of the role, concurrent claims would fail instead of skipping locked rows.
    "default_transaction_isolation": "read committed",
    "plan_cache_mode": "force_generic_plan",
}
# The first characters of a text header that its index holds; as probe_key in the schema.
LONGEST_KEY: Final = 200
_AFTER_ALL: Final = "t"  # greater than every key: those begin with b, n or s
_PLACEHOLDER: Final = re.compile(r"\$(\d+)")
# Always true, and a condition of the partial index in the order of the queue. A claim that looks something up leaves it
# out, so that PostgreSQL cannot answer it by reading the whole queue.
_IN_ORDER: Final = Sql("d.rank <= 0")
_ARRAYS: Final = {str: "text[]", int: "bigint[]", float: "float8[]", bool: "boolean[]"}


class PostgresDialect(QueueDialect):
    """Statements use the server's clock; with `clock`, for tests, that clock."""

    name: SqlDialect = "postgres"

    def __init__(self, clock: Clock | None = None, *, is_read_only: bool = False) -> None:
        super().__init__(wall_us=now_us if clock is None else clock.wall_us)
        self._clock, self.is_read_only = clock, is_read_only

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

    def range_of(self, branch: Branch, where: Sql) -> InRange | None:
        found = key_prefix(branch)
        if found is None:
            return None
        header, prefix = found
        first = "s" + prefix[:LONGEST_KEY]
        keys = (first, after_prefix(first) or _AFTER_ALL) if prefix else ("", _AFTER_ALL)
        return InRange(header, where, KeyRange(key_expression(header, "d."), *keys))

    def condition(self, branch: Branch, first_parameter: int) -> ClaimCondition:
        condition = super().condition(branch, first_parameter)
        if branch.probe is not None and probe_key(branch.probe.value) is not None:
            return condition
        return replace(condition, where=condition.where.and_also(_IN_ORDER), in_order=True)


def probe_key(value: Scalar) -> str | None:
    """The key in the index of all headers that equal this value; None if they have several keys."""
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
    """The expression that is indexed for a declared header, whose name is plain, see `is_plain_name`."""
    return f"probe_key({alias}keys -> '{header}') COLLATE \"C\""


def index_name(header: str) -> str:
    """The name of the index on a declared header: shorter than 63 bytes, where PostgreSQL cuts names."""
    return f"delivery_by_{md5(header.encode()).hexdigest()[:16]}"


def merge_branches(
    dialect: QueueDialect, conditions: Sequence[ClaimCondition], group_is_free: str, first: int
) -> tuple[str, list[SqlValue]]:
    """One SELECT for all branches with the same text, its parameters as arrays numbered from `first` on."""
    by_text: dict[str, list[tuple[Scalar, ...]]] = {}
    for condition in conditions:
        by_text.setdefault(condition.where.text, []).append(condition.where.params)
    params: list[SqlValue] = []
    texts = []
    for where, rows in by_text.items():
        columns = [list(column) for column in zip(*rows, strict=True)]
        texts.append(_branch(dialect, where, columns, group_is_free, first + len(params)))
        params += columns
    return " UNION ALL ".join(texts), params


def _branch(
    dialect: QueueDialect,
    where: str,
    columns: Sequence[list[Scalar]],
    group_is_free: str,
    first: int,
) -> str:
    arrays = [f"${first + i}::{_ARRAYS[type(c[0])]}" for i, c in enumerate(columns)]
    names = [f"p{i}" for i in range(len(columns))]
    if not columns:
        arrays, names = ["ARRAY[0]"], ["p0"]
    lowest = min((int(hit) for hit in _PLACEHOLDER.findall(where)), default=0)
    with_names = _PLACEHOLDER.sub(lambda hit: f"v.p{int(hit[1]) - lowest}", where)
    return dialect.text(
        "branch",
        arrays=", ".join(arrays),
        names=", ".join(names),
        where=with_names,
        group_is_free=group_is_free,
    )

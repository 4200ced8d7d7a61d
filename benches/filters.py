"""What a filter costs: parsed, asked message by message, and as a mask over record batches.

    python benches/filters.py [--quick] [--seed N] [--json PATH]

Every figure is the median of several rounds on one core, and stands beside what a user would use instead,
measured on the same data in the same run: our own closure, pyarrow's kernels, DuckDB. Like stands beside like: a mask
for every batch (what a consumer needs) beside DuckDB's answer for every row of each batch; the number of matches in all
batches beside DuckDB's one count over all of them, which makes no mask and starts one query.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from figures import CPU_RATE, Figure, Recorder, at_least, at_most, timed
from reports import options, recorded

from headgate.columns.decode import BatchColumns
from headgate.columns.shred import shred_messages, shred_valid
from headgate.columns.validate import validate_batch
from headgate.filters.compile.arrow import compile_mask
from headgate.filters.compile.arrow.text import forget_dictionaries
from headgate.filters.compile.python import compile_predicate
from headgate.filters.nodes import Filter
from headgate.filters.parser import parse
from headgate.message import Message, validate

TYPICAL = "region = 'AMER' AND amount > 1000 AND type IN ('a','b','c') AND name LIKE 'ord%'"
SIZES = (4_096, 65_536)
REGIONS = {"AMER": 40, "EMEA": 30, "APAC": 15, "LATAM": 10, "ANZ": 5}

TARGETS = {
    "parse": 1e6 / 300,
    "closure": 3e6,
    "mask 4,096, new dictionaries": 35e6,
    "mask 4,096, shared dictionaries": 35e6,
    "mask 65,536, new dictionaries": 100e6,
    "mask 65,536, shared dictionaries": 100e6,
    "shred": 0.8e6,
}

SHAPES = {
    "equality": "region = 'AMER'",
    "number": "amount > 1000",
    "number as double": "amount > 1000.5",
    "boolean": "express",
    "IN": "type IN ('a','b','c')",
    "NOT IN": "type NOT IN ('a','b','c')",
    "IN, numbers": "amount IN (1, 20, 300, 4000, 4001)",
    "BETWEEN": "amount BETWEEN 1000 AND 2000",
    "LIKE, prefix": "name LIKE 'ord%'",
    "LIKE, any shape": "name LIKE '%d_1%'",
    "order of strings": "name >= 'ord-8'",
    "MATCHES": "sys.topic MATCHES 'orders.*.created'",
    "IS NULL": "note IS NULL",
    "OR": "region = 'ANZ' OR type = 'a' OR amount > 4900",
    "AND of ORs": "(region = 'ANZ' OR type = 'a') AND (amount < 100 OR name LIKE 'ord%')",
    "plain strings, =": "sys.id = '00000000000000000000000000000000'",
    "plain strings, LIKE": "sys.id LIKE 'ab%'",
    "plain strings, any": "sys.id LIKE '%a_c%'",
    "arithmetic": "amount * 2 + 1 > 5000",
    "arithmetic, %": "amount % 7 = 3",
    "arithmetic, double": "amount / 3 > weight * 100",
    "field against field": "region = origin",
    "numbers, two fields": "amount > limit",
    "the time": "sys.timestamp > UTC() * 1000 - 3600000000",
}


START_MS = time.time_ns() // 1_000_000


def clock() -> int:
    """The moment the run began: closure and mask must mean the same by UTC()."""
    return START_MS


# ---- data --------------------------------------------------------------------------------------------


def make_messages(rng: random.Random, count: int) -> list[Message]:
    names = [f"{'ord' if i % 4 == 0 else 'inv'}-{rng.getrandbits(32):08x}" for i in range(1000)]
    regions, weights = list(REGIONS), list(REGIONS.values())
    return [
        Message(
            topic=f"orders.{rng.choice(regions).lower()}.{rng.choice(('created', 'paid'))}",
            id=f"{rng.getrandbits(128):032x}",
            timestamp=START_MS * 1000 - rng.randrange(86_400_000_000),
            headers={
                "region": rng.choices(regions, weights)[0],
                "amount": rng.randrange(5000),
                "type": rng.choice("abcdefghijkl"),
                "origin": rng.choice(regions),
                "name": rng.choice(names),
                "limit": rng.randrange(5000),
                "weight": rng.random() * 10,
                "express": rng.random() < 0.1,
                "note": rng.choice((None, None, "gift")),
            },
        )
        for _ in range(count)
    ]


def record_batches(messages: Sequence[Message], size: int) -> list[pa.RecordBatch]:
    return [shred_messages(messages[at : at + size]) for at in range(0, len(messages), size)]


# ---- measuring ---------------------------------------------------------------------------------------


class Bench(Recorder):
    def __init__(self, rounds: int, at_least_s: float) -> None:
        super().__init__("filters")
        self.rounds, self.at_least_s = rounds, at_least_s

    def measure(self, name: str, work: Callable[[], object], units: int, note: str = "") -> Figure:
        """Units per second: the median of rounds that each last at least a while."""
        work()
        repeats = max(1, round(self.at_least_s / max(timed(work)[0], 1e-9)))
        rounds = [timed(work, repeats) for _ in range(self.rounds)]
        wall, cpu = (statistics.median(r[i] for r in rounds) / repeats for i in (0, 1))
        bound = at_least(TARGETS[name]) if name in TARGETS else None
        return self.add(name, units / cpu, CPU_RATE, bound, clock=units / wall, note=note)


# ---- the parts ---------------------------------------------------------------------------------------


def bench_parse(bench: Bench) -> None:
    bench.part(f"Parsing: {TYPICAL}")
    amounts = itertools.count(1000)  # a parsed text is remembered: each is another one
    texts = (TYPICAL.replace("1000", str(amount)) for amount in amounts)
    bench.measure("parse", lambda: [parse(next(texts)) for _ in range(100)], 100)
    bench.measure("parse, cached", lambda: [parse(TYPICAL) for _ in range(100)], 100)


def bench_closure(bench: Bench, messages: list[Message]) -> Figure:
    bench.part("The closure, message by message")
    ask = compile_predicate(parse(TYPICAL))
    return bench.measure("closure", lambda: list(map(ask, messages)), len(messages))


def bench_masks(bench: Bench, messages: list[Message], closure: Figure, size: int) -> None:
    tree = parse(TYPICAL)
    rows, matching = len(messages), sum(map(compile_predicate(tree, clock), messages))
    own = record_batches(messages, size)
    shared = _with_shared_dictionaries(own)
    bench.part(
        f"The Arrow mask, {size:,} rows a batch, {len(own)} batches, {matching:,} rows match"
    )
    _check(tree, own, matching)
    _check(tree, shared, matching)
    ours = (
        bench.measure(f"mask {size:,}, new dictionaries", lambda: _masks_of_new(tree, own), rows),
        bench.measure(f"mask {size:,}, shared dictionaries", lambda: _masks(tree, shared), rows),
    )
    counted = bench.measure(f"count {size:,}, new dictionaries", lambda: _count(tree, own), rows)
    others = [closure, bench_kernels(bench, own, matching, size)]
    if (duckdb := _import_duckdb()) is not None:
        others.append(bench_duckdb_masks(bench, duckdb, own, size))
        one_count = bench_duckdb_count(bench, duckdb, own, matching, size)
        bench.versus(counted, one_count.name.removesuffix(f", {size:,}"), one_count.value)
    for mask in ours:
        for other in others:
            bench.versus(mask, other.name.removesuffix(f", {size:,}"), other.value)


def _masks_of_new(tree: Filter, batches: list[pa.RecordBatch]) -> None:
    """As in hot chunks: every batch has its own dictionaries, and none was seen before."""
    forget_dictionaries()
    _masks(tree, batches)


def _count(tree: Filter, batches: list[pa.RecordBatch]) -> int:
    forget_dictionaries()
    mask = compile_mask(tree, clock)
    return sum(int(np.count_nonzero(mask(BatchColumns(batch)))) for batch in batches)


def _masks(tree: Filter, batches: list[pa.RecordBatch]) -> None:
    mask = compile_mask(tree, clock)
    for batch in batches:
        mask(BatchColumns(batch))


def _check(tree: Filter, batches: list[pa.RecordBatch], matching: int) -> None:
    found = _count(tree, batches)
    if found != matching:
        sys.exit(f"the mask found {found} rows, the closure {matching}")


def _with_shared_dictionaries(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """As in a sealed segment: one dictionary per column, the same in every batch."""
    return pa.Table.from_batches(_same_schema(batches)).unify_dictionaries().to_batches()


def _same_schema(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    def widened(type_: pa.DataType) -> pa.DataType:
        return pa.dictionary(pa.int32(), pa.string()) if pa.types.is_dictionary(type_) else type_

    schema = pa.schema([(f.name, widened(f.type)) for f in batches[0].schema])
    return [batch.cast(schema) for batch in batches]


def bench_kernels(bench: Bench, batches: list[pa.RecordBatch], matching: int, size: int) -> Figure:
    """The four kernels one would write by hand, on strings that are not even encoded."""
    plain = [_decoded(batch) for batch in batches]
    types = pa.array(["a", "b", "c"])

    def ask(batch: pa.RecordBatch) -> pa.BooleanArray:
        terms = (
            pc.equal(batch.column("h.s.region"), "AMER"),
            pc.greater(batch.column("h.i.amount"), 1000),
            pc.is_in(batch.column("h.s.type"), types),
            pc.starts_with(batch.column("h.s.name"), "ord"),
        )
        return pc.and_kleene(pc.and_kleene(*terms[:2]), pc.and_kleene(*terms[2:]))

    if sum(ask(batch).true_count for batch in plain) != matching:
        sys.exit("the kernels disagree with the closure")
    rows = sum(batch.num_rows for batch in plain)
    return bench.measure(
        f"pyarrow kernels, {size:,}", lambda: [ask(batch) for batch in plain], rows
    )


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def _import_duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        print(f"  {'DuckDB':<58} not installed: pip install 'headgate[bench]'")
        return None
    return duckdb


def _connect(duckdb: Any) -> Any:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    return connection


def _columns_asked(batches: list[pa.RecordBatch]) -> pa.Table:
    columns = ("h.s.region", "h.i.amount", "h.s.type", "h.s.name")
    table = pa.Table.from_batches(_same_schema(batches)).select(columns)
    return table.rename_columns([name.rpartition(".")[2] for name in columns])


def bench_duckdb_masks(
    bench: Bench, duckdb: Any, batches: list[pa.RecordBatch], size: int
) -> Figure:
    """A query for each batch, which answers for every row; of the first batches, as each takes milliseconds."""
    some = batches[:16]
    with _connect(duckdb) as connection:
        for at, batch in enumerate(some):
            connection.register(f"batch{at}", _columns_asked([batch]))
        queries = [f"SELECT {TYPICAL} AS matches FROM batch{at}" for at in range(len(some))]

        def ask() -> list[pa.Table]:
            return [connection.sql(query).to_arrow_table() for query in queries]

        matching = [int(pc.sum(table["matches"]).as_py() or 0) for table in ask()]
        if sum(matching) != _count(parse(TYPICAL), some):
            sys.exit(f"DuckDB's masks found {sum(matching)} rows")
        rows = sum(batch.num_rows for batch in some)
        return bench.measure(f"DuckDB, a mask for each batch, {size:,}", ask, rows)


def bench_duckdb_count(
    bench: Bench, duckdb: Any, batches: list[pa.RecordBatch], matching: int, size: int
) -> Figure:
    """One query over all batches, which counts."""
    table = _columns_asked(batches)
    query = f"SELECT count(*) FROM messages WHERE {TYPICAL}"
    with _connect(duckdb) as connection:
        connection.register("messages", table)
        (found,) = connection.execute(query).fetchone() or (None,)
        if found != matching:
            sys.exit(f"DuckDB found {found} rows, the closure {matching}")
        ask = connection.execute
        return bench.measure(
            f"DuckDB, one count over all batches, {size:,}",
            lambda: ask(query).fetchall(),
            table.num_rows,
        )


# ---- many patterns over one long header --------------------------------------------------------------

LIKES = 400  # patterns in one filter
LIKE_SHAPES = {
    "%a_x%, literals and _": "%a_x{}%",
    "%abx%, a substring": "%ab{}%",
    "%a%b_x%, two pieces": "%a%b_{}%",
}
LENGTHS = (100, 1_000, 10_000)  # characters of the header


def bench_likes(bench: Bench, rng: random.Random) -> None:
    """No pattern matches, so that all are asked of every message; every message has another text."""
    bench.part(f"{LIKES} LIKEs in one filter, message by message")
    for shape, pattern in LIKE_SHAPES.items():
        terms = (f"note LIKE '{pattern.format(number)}'" for number in range(LIKES))
        ask = compile_predicate(parse(" OR ".join(terms)))
        for length in LENGTHS:
            texts = ("".join(rng.choices("ab", k=length)) for _ in range(5 * bench.rounds))
            messages = [Message(headers={"note": text}) for text in texts]
            asked = [timed(partial(ask, message))[1] for message in messages]
            each = statistics.median(asked) * 1000
            bench.add(f"{shape}, {length:,} characters", each, "ms CPU", at_most(30))


def bench_shapes(bench: Bench, messages: list[Message]) -> None:
    size = SIZES[-1]
    batches = record_batches(messages, size)
    bench.part(f"One operator each, {size:,} rows a batch")
    for what, text in SHAPES.items():
        tree = parse(text)
        _check(tree, batches, sum(map(compile_predicate(tree, clock), messages)))
        bench.measure(f"mask, {what}", lambda tree=tree: _masks(tree, batches), len(messages), text)


def bench_shredding(bench: Bench, messages: list[Message]) -> None:
    bench.part("From messages to columns: three headers of mixed kinds, 4,096 messages a batch")
    few = [
        Message(
            b"",
            m.topic,
            {k: m.headers[k] for k in ("region", "amount", "weight")},
            0,
            m.timestamp,
            m.id,
        )
        for m in messages
    ]
    parts = [few[at : at + 4096] for at in range(0, len(few), 4096)]
    bench.measure("validate, one by one", lambda: [validate(m) for m in few], len(few))
    bench.measure("validate_batch", lambda: [validate_batch(p) for p in parts], len(few))
    bench.measure("shred", lambda: [shred_messages(p) for p in parts], len(few))
    bench.measure("shred_valid", lambda: [shred_valid(p) for p in parts], len(few))


# ---- the run -----------------------------------------------------------------------------------------


def main() -> None:
    given = options(__doc__, seed=2).parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    count = 131_072 if given.quick else 524_288
    bench = Bench(rounds=3 if given.quick else 7, at_least_s=0.05 if given.quick else 0.2)
    with recorded(bench, given):
        print(f"{count:,} messages, {bench.rounds} rounds, one core")
        messages = make_messages(random.Random(given.seed), count)
        bench_parse(bench)
        closure = bench_closure(bench, messages)
        for size in SIZES:
            bench_masks(bench, messages, closure, size)
        bench_shapes(bench, messages)
        bench_likes(bench, random.Random(given.seed))
        bench_shredding(bench, messages)


if __name__ == "__main__":
    main()

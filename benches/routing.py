"""What routing costs, by the number of bindings, beside a scan over all of them.

    python benches/routing.py [--quick] [--seed N] [--json PATH] [--only PART]

Bindings ask for 2 to 4 of 8 headers, values are skewed, every binding has a queue of its own. Messages carry
all 8 headers and are new in every round, except where repeated ones are measured. The scan is what RabbitMQ
does: every binding compared with every message; its own figures for 4.0.5 were 5,900 messages per second at
100 bindings, 476 at 1,000 and 33 at 10,000. One core. Messages are made 50 at a time and routed while they
are fresh, as they are off a wire. Each rate is the median of the rounds per second of CPU, and that is what targets
are held against; beside it stands the median by the clock.
"""

from __future__ import annotations

import gc
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from figures import CPU_RATE, Figure, Recorder, at_least, at_most, timed
from reports import options, recorded

from headgate.columns.shred import shred_messages
from headgate.filters.compile.python import compile_predicate
from headgate.filters.nodes import And, Compare, Exists, Field, Filter, In, Like, Literal, Not
from headgate.filters.topics import compile_pattern
from headgate.matching import TopicTrie
from headgate.message import Message
from headgate.routing import Topology

CARDINALITIES = {
    "channel": 10,
    "region": 20,
    "currency": 50,
    "type": 100,
    "plan": 500,
    "product": 2_000,
    "tenant": 10_000,
    "customer": 50_000,
}
KEYS = list(CARDINALITIES)
VALUES = {name: [f"{name}-{n}" for n in range(count)] for name, count in CARDINALITIES.items()}
CHUNK = 50  # messages made at a time: as many as stay in a cache until they are routed
WORDS = (20, 50, 500, 5_000)  # of a topic, by position
LONGEST_MS = 5.0  # a single question, while bindings are added

TARGETS = {
    "headers, 1,000 bindings": 250e3,
    "headers, 10,000 bindings": 125e3,
    "headers, 100,000 bindings": 50e3,
    "headers, 1,000,000 bindings": 15e3,
    "headers, repeated combinations": 1e6,
    "filter, 10,000 expressions": 100e3,
    "filter, 100,000 expressions": 10e3,
    "topic trie, 1,000,000 patterns, cached": 5e6,
    "topic, 1,000,000 patterns, uncached": 25e3,
    "batch, 100,000 bindings": 3e6,
    "filter, IN of 16 values": 100e3,
    "filter, IN of 64 values": 100e3,
    "filter, IN of 65 values": 100e3,
    "filter, IN of 256 values": 50e3,
    "filter, IN of 1,024 values": 10e3,
    "build, headers, 1,000,000": 80e3,
    "unbind, headers, 1,000,000": 1e4,
}


class Bench(Recorder):
    def __init__(self, rounds: int) -> None:
        super().__init__("routing")
        self.rounds = rounds

    def measure(
        self, name: str, rounds: Iterable[Callable[[], object]], units: int, note: str = ""
    ) -> Figure:
        """Units per second: the median of the rounds."""
        times = [timed(work) for work in rounds]
        wall, cpu = (units / statistics.median(t[i] for t in times) for i in (0, 1))
        bound = at_least(TARGETS[name]) if name in TARGETS else None
        return self.add(name, cpu, CPU_RATE, bound, clock=wall, note=note)


# ---- data ----------------------------------------------------------------------------------------------


def value(rng: random.Random, name: str) -> str:
    """Draw a value, skewed: a quarter of the values make up half of all draws."""
    return VALUES[name][int(CARDINALITIES[name] * rng.random() ** 2)]


def header_bindings(rng: random.Random, count: int) -> list[dict[str, Any]]:
    return [{k: value(rng, k) for k in rng.sample(KEYS, rng.randint(2, 4))} for _ in range(count)]


def messages(rng: random.Random, count: int, extra: int = 0) -> list[Message]:
    """Make messages whose header values are new objects, as they are when they come off a wire."""
    more = {f"extra-{n}": f"value {n}" for n in range(extra)}
    return [
        Message(
            b"",
            topic(rng),
            {**{k: "".join(value(rng, k)) for k in KEYS}, **more, "amount": rng.randrange(5_000)},
        )
        for _ in range(count)
    ]


def topic(rng: random.Random) -> str:
    return ".".join(f"w{int(count * rng.random() ** 2)}" for count in WORDS)


def topic_pattern(rng: random.Random) -> str:
    """Mostly four words, some of them `*`; one in twelve has a `#`."""
    words, shape = topic(rng).split("."), rng.random()
    if shape < 0.07:
        return ".".join([*words[:3], "#"])
    if shape < 0.08:
        return f"#.{words[-1]}"
    return ".".join([*("*" if rng.random() < 0.2 else word for word in words[:3]), words[-1]])


def expression(rng: random.Random) -> Filter:
    """Draw 2 to 4 equalities, half of the time with a condition on top that no index answers."""
    terms: list[Filter] = [
        Compare("=", Field("header", k), Literal(value(rng, k)))
        for k in rng.sample(KEYS, rng.randint(2, 4))
    ]
    rest = rng.random()
    if rest < 0.3:
        terms.append(Compare(">", Field("header", "amount"), Literal(rng.randrange(5_000))))
    elif rest < 0.5:
        terms.append(Like(Field("header", "product"), f"%{rng.randrange(10)}"))
    return And(tuple(terms))


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- the scans -----------------------------------------------------------------------------------------


def scan_headers(bound: Sequence[tuple[dict[str, Any], str]], message: Message) -> list[str]:
    get = message.headers.get
    return [queue for pairs, queue in bound if all(get(k) == v for k, v in pairs.items())]


def scan_tests(bound: Sequence[tuple[Callable[[Any], bool], str]], asked: object) -> list[str]:
    return [queue for test, queue in bound if test(asked)]


# ---- the parts -----------------------------------------------------------------------------------------


def declared(kind: str, queues: int) -> Topology:
    topology = Topology()
    topology.declare_exchange("x", kind)  # type: ignore[arg-type]
    for n in range(queues):
        topology.declare_queue(f"q{n}")
    return topology


def build(bench: Bench, kind: str, bindings: list[dict[str, Any]], purpose: str = "") -> Topology:
    count = len(bindings)
    topology = declared(kind, count)
    before = resident_bytes()

    work = [{"source": "x", "queue": f"q{n}", **given} for n, given in enumerate(bindings)]
    bench.measure(f"build, {kind}, {count:,}{purpose}", [lambda: topology.bind_all(work)], count)
    work.clear()
    used = (resident_bytes() - before) / count
    bench.add(f"memory, {kind}, {count:,}{purpose}", used, "B", note="per binding")
    return topology


def routing(
    topology: Topology, make: Callable[[], list[Message]], rounds: int
) -> Iterator[Callable[[], object]]:
    """Rounds of new messages."""

    def work(drawn: list[Message]) -> None:
        route = topology.route
        for message in drawn:
            route("x", message)

    for _ in range(rounds):
        yield partial(work, make())


def naming(
    topology: Topology, make: Callable[[], list[Message]], rounds: int
) -> Iterator[Callable[[], object]]:
    """Rounds of new messages, whose answers are copied into one set of queues each."""

    def work(drawn: list[Message]) -> None:
        route = topology.route
        for message in drawn:
            frozenset(route("x", message).queues)

    for _ in range(rounds):
        yield partial(work, make())


def scanning(
    scan: Callable[[Any, Any], list[str]], bound: Sequence[Any], asked: Sequence[Any]
) -> list[Callable[[], object]]:
    """Three rounds of a scan over all that is bound."""
    return [partial(scan_all, scan, bound, asked)] * 3


def scan_all(
    scan: Callable[[Any, Any], list[str]], bound: Sequence[Any], asked: Sequence[Any]
) -> list[frozenset[str]]:
    return [frozenset(scan(bound, one)) for one in asked]


def bench_headers(bench: Bench, rng: random.Random, sizes: Sequence[int]) -> None:
    def fresh() -> list[Message]:
        return messages(rng, CHUNK)

    for size in sizes:
        bench.part(f"Headers exchange, {size:,} bindings of 2-4 pairs over 8 keys")
        pairs = header_bindings(rng, size)
        topology = build(bench, "headers", [{"arguments": given} for given in pairs])
        drawn = messages(rng, 1_000)
        ours = bench.measure(
            f"headers, {size:,} bindings",
            routing(topology, fresh, bench.rounds),
            CHUNK,
            "new messages",
        )
        named = naming(topology, fresh, bench.rounds // 3)
        bench.measure(f"headers, {size:,}, queues named", named, CHUNK, "as one set")
        matched = sum(len(topology.route("x", m).queues) for m in drawn) / 1_000
        bench.add(f"queues per message, {size:,} bindings", matched, "queues")
        bound = [(given, f"q{n}") for n, given in enumerate(pairs)]
        few = drawn[: max(3, 200_000 // size)]
        scan = bench.measure(
            f"scan, {size:,} bindings",
            scanning(scan_headers, bound, few),
            len(few),
        )
        bench.versus(ours, "a scan over all bindings", scan.value)
        _check(topology, few[:50], lambda m, bound=bound: scan_headers(bound, m))
        bench_unbind(bench, rng, topology, pairs)
        if size == sizes[min(1, len(sizes) - 1)]:
            bench_repeated(bench, rng, topology)
            wide = routing(topology, lambda: messages(rng, CHUNK, extra=42), bench.rounds)
            bench.measure("headers, messages of 50 headers", wide, CHUNK, f"{size:,} bindings")


def bench_small(bench: Bench, rng: random.Random) -> None:
    bench.part("Headers exchange, few bindings, beside a plain scan and one of compiled predicates")
    for size in (1, 4, 8, 10):
        pairs = header_bindings(rng, size)
        topology = declared("headers", size)
        topology.bind_all(
            {"source": "x", "queue": f"q{n}", "arguments": given} for n, given in enumerate(pairs)
        )
        bound = [(given, f"q{n}") for n, given in enumerate(pairs)]
        tests = [(compile_predicate(all_equal(given)), queue) for given, queue in bound]
        fresh = partial(messages, rng, CHUNK)
        rounds = routing(topology, fresh, bench.rounds)
        ours = bench.measure(f"headers, {size} bindings", rounds, CHUNK, "new messages")
        scans = (partial(scan_all, scan_headers, bound, fresh()) for _ in range(bench.rounds))
        scan = bench.measure(f"plain scan, {size} bindings", scans, CHUNK)
        bench.versus(ours, "a plain scan", scan.value, at_least(1.0))
        scans = (partial(scan_all, scan_tests, tests, fresh()) for _ in range(bench.rounds))
        scan = bench.measure(f"scan, {size} predicates", scans, CHUNK)
        bench.versus(ours, "a scan of compiled predicates", scan.value)
        _check(topology, fresh(), lambda m, tests=tests: scan_tests(tests, m))


def all_equal(given: dict[str, Any]) -> Filter:
    return And(tuple(Compare("=", Field("header", k), Literal(v)) for k, v in given.items()))


def bench_lists(bench: Bench, rng: random.Random, size: int) -> None:
    bench.part(f"Filter exchange, {size:,} lists of values")
    asked = [f"value-{n}" for n in range(5_000)]

    def fresh() -> list[Message]:
        drawn = [{"a": "".join(rng.choice(asked)), "b": str(rng.random())} for _ in range(CHUNK)]
        return [Message(b"", "", headers) for headers in drawn]

    for count in (16, 64, 65, 256, 1_024):
        lists = [
            In(Field("header", "a"), tuple(map(Literal, rng.sample(asked, count))))
            for _ in range(size)
        ]
        topology = build(
            bench, "filter", [{"filter": tree} for tree in lists], f", IN of {count:,}"
        )
        # Another column whose values never repeat: no answer can be remembered.
        topology.bind("x", queue="q0", filter=Compare("=", Field("header", "b"), Literal("never")))
        rounds = routing(topology, fresh, bench.rounds // 3)
        bench.measure(f"filter, IN of {count:,} values", rounds, CHUNK, f"{size:,} bindings")
        bound = [(compile_predicate(tree), f"q{n}") for n, tree in enumerate(lists)]
        _check(topology, fresh()[:5], lambda m, bound=bound: scan_tests(bound, m))


def bench_longest(bench: Bench, rng: random.Random, sizes: Sequence[int]) -> None:
    """The collector is paused: its pauses depend on all objects of the process."""
    bench.part("The longest single question, while bindings are added")
    for size in sizes:
        topology = declared("headers", size)
        pairs = header_bindings(rng, size + 40)
        topology.bind_all(
            {"source": "x", "queue": f"q{n}", "arguments": pairs[n]} for n in range(size)
        )
        longest = 0.0
        gc.disable()
        for n in range(40):
            topology.bind("x", queue=f"q{n}", arguments=pairs[size + n])
            # Some bindings follow each other closely, and some after as many questions as there are bindings.
            drawn = messages(rng, 50 if n % 20 else min(size + 2_000, 20_000))
            longest = max(longest, *(_seconds(topology, message) for message in drawn))
        gc.enable()
        name = f"longest question, {size:,} bindings"
        bench.add(name, longest * 1e3, "ms", at_most(LONGEST_MS), note="CPU, collector paused")


def _seconds(topology: Topology, message: Message) -> float:
    before = time.process_time()
    topology.route("x", message)
    return time.process_time() - before


def bench_repeated(bench: Bench, rng: random.Random, topology: Topology) -> None:
    combinations = messages(rng, 1_000)
    _warm(topology, combinations)

    def known() -> list[Message]:
        return [Message(b"", "", dict(rng.choice(combinations).headers)) for _ in range(CHUNK)]

    repeated = routing(topology, known, bench.rounds)
    bench.measure("headers, repeated combinations", repeated, CHUNK, "1,000 combinations")


def _warm(topology: Topology, known: list[Message]) -> None:
    """Let the cache of answers notice that messages repeat: it rests while they do not."""
    for _ in range(600):
        for message in known:
            topology.route("x", message)


def bench_unbind(
    bench: Bench, rng: random.Random, topology: Topology, pairs: list[dict[str, Any]]
) -> None:
    chosen = rng.sample(range(len(pairs)), min(2_000, len(pairs) // 2))

    def unbind() -> None:
        for n in chosen:
            topology.unbind("x", queue=f"q{n}", arguments=pairs[n])

    bench.measure(f"unbind, headers, {len(pairs):,}", [unbind], len(chosen))
    for n in chosen:
        topology.bind("x", queue=f"q{n}", arguments=pairs[n])


def bench_filters(bench: Bench, rng: random.Random, sizes: Sequence[int]) -> None:
    def fresh() -> list[Message]:
        return messages(rng, CHUNK)

    for size in sizes:
        bench.part(f"Filter exchange, {size:,} expressions, half of them with a residual")
        trees = [expression(rng) for _ in range(size)]
        topology = build(bench, "filter", [{"filter": tree} for tree in trees])
        for message in messages(rng, 20_000):
            topology.route("x", message)  # compiles the residuals
        ours = bench.measure(
            f"filter, {size:,} expressions",
            routing(topology, fresh, bench.rounds),
            CHUNK,
            "new messages",
        )
        drawn = messages(rng, 1_000)
        matched = sum(len(topology.route("x", m).queues) for m in drawn) / 1_000
        bench.add(f"queues per message, {size:,} expressions", matched, "queues")
        some = min(size, 10_000)
        bound = [(compile_predicate(tree), f"q{n}") for n, tree in enumerate(trees[:some])]
        few = drawn[:20]
        name = f"scan, {some:,} of {size:,} closures"
        scan = bench.measure(name, scanning(scan_tests, bound, few), len(few))
        bench.versus(ours, f"a scan over {some:,} closures", scan.value)
        if some == size:
            _check(topology, few, lambda m, bound=bound: scan_tests(bound, m))


def bench_topics(bench: Bench, rng: random.Random, size: int) -> None:
    bench.part(f"Topic exchange, {size:,} patterns")
    patterns = [topic_pattern(rng) for _ in range(size)]
    topology = build(bench, "topic", [{"key": pattern} for pattern in patterns])
    ours = bench.measure(
        f"topic, {size:,} patterns, uncached",
        routing(topology, lambda: [Message(b"", topic(rng)) for _ in range(CHUNK)], bench.rounds),
        CHUNK,
        "new topics",
    )
    drawn = [Message(b"", topic(rng)) for _ in range(1_000)]
    matched = sum(len(topology.route("x", m).queues) for m in drawn) / 1_000
    bench.add(f"queues per topic, {size:,} patterns", matched, "queues")
    known = drawn * 20
    route = topology.route

    def cached() -> None:
        for message in known:
            route("x", message)

    bench.measure(
        f"topic, {size:,} patterns, cached",
        [cached] * 20,
        len(known),
        "through Topology.route",
    )
    trie: TopicTrie[Any] = TopicTrie(frozenset)
    for n, pattern in enumerate(patterns[:1000]):
        trie.add(pattern, f"q{n}")
    topics, match = [m.topic for m in known], trie.match

    def cached_trie() -> None:
        for word in topics:
            match(word)

    bench.measure(
        f"topic trie, {size:,} patterns, cached",
        [cached_trie] * 20,
        len(topics),
        "TopicTrie.match",
    )
    some = min(size, 10_000)
    bound = [(compile_pattern(pattern), f"q{n}") for n, pattern in enumerate(patterns[:some])]
    few = [m.topic for m in drawn[:10]]
    scan = bench.measure(f"scan, {some:,} patterns", scanning(scan_tests, bound, few), len(few))
    bench.versus(ours, f"a scan over {some:,} patterns", scan.value)


def bench_batches(bench: Bench, rng: random.Random, size: int, rows: int) -> None:
    bench.part(f"Batches against {size:,} headers bindings, 10,000 distinct combinations")
    pairs = [{"arguments": given} for given in header_bindings(rng, size)]
    topology = build(bench, "headers", pairs, ", for batches")
    combinations = messages(rng, 10_000)
    for count in (16_384, rows):
        drawn = [shred_messages([rng.choice(combinations) for _ in range(count)]) for _ in range(6)]
        topology.route_batch("x", drawn[0])
        rounds = [lambda b=b: topology.route_batch("x", b).unroutable for b in drawn[1:]]
        name = f"batch, {size:,} bindings" if count == rows else f"batch of {count:,} rows"
        ours = bench.measure(name, rounds, count, f"batches of {count:,} rows")
        spelled = [lambda b=b: topology.route_batch("x", b).selections() for b in drawn[1:]]
        bench.measure(f"{name}, all vectors", spelled, count, "every queue's rows spelled out")
    sample = [rng.choice(combinations) for _ in range(20_000)]
    rounds = [lambda: [topology.route("x", m) for m in sample]] * 2
    single = bench.measure("batch, its messages one by one", rounds, 20_000)
    bench.versus(ours, "one by one", single.value)


def bench_fan_out(bench: Bench, rng: random.Random, queues: int) -> None:
    bench.part(f"Fan-out to {queues:,} queues")
    for kind, given in (("fanout", {}), ("headers", {"arguments": {"region": "region-0"}})):
        topology = declared(kind, queues)
        for n in range(queues):
            topology.bind("x", queue=f"q{n}", **given)
        message = Message(b"", "t", {"region": "region-0"})
        route = topology.route
        assert len(route("x", message).queues) == queues

        def work(route: Any = route, message: Message = message) -> None:
            for _ in range(20_000):
                route("x", message)

        bench.measure(f"fan-out, {kind}, {queues:,} queues", [work] * 20, 20_000)


def bench_hostile(bench: Bench, rng: random.Random, size: int) -> None:
    bench.part(f"Hostile: {size:,} bindings no index can tell apart")
    amount = Field("header", "amount")
    shapes: dict[str, list[Filter]] = {
        "range-only expressions": [
            Compare(">", amount, Literal(rng.randrange(5_000))) for _ in range(size)
        ],
        "expressions without equality": [
            Not(Exists(Field("header", f"absent-{n % 50}")))
            if n % 2
            else Not(Compare("=", amount, Literal(n)))
            for n in range(size)
        ],
        "one equality for all, ranges on top": [
            And(
                (
                    Compare("=", Field("header", "region"), Literal("region-0")),
                    Compare("<", amount, Literal(n)),
                )
            )
            for n in range(size)
        ],
    }
    drawn = [messages(rng, 20) for _ in range(11)]
    for what, trees in shapes.items():
        topology = declared("filter", size)
        for n, tree in enumerate(trees):
            topology.bind("x", queue=f"q{n}", filter=tree)
        bound = [(compile_predicate(tree), f"q{n}") for n, tree in enumerate(trees)]
        _versus(bench, what, topology, drawn, lambda m, bound=bound: scan_tests(bound, m))
    same = [({"region": "region-0"}, f"q{n}") for n in range(size)]
    topology = declared("headers", size)
    for pairs, queue in same:
        topology.bind("x", queue=queue, arguments=pairs)
    _versus(
        bench, "every binding on the same key", topology, drawn, lambda m: scan_headers(same, m)
    )


def bench_hostile_patterns(bench: Bench, rng: random.Random, size: int) -> None:
    patterns = [f"#.w{n}.#" if n % 2 else f"#.w{n % 500}.#.w{n % 5_000}.#" for n in range(size)]
    topology = declared("topic", size)
    for n, pattern in enumerate(patterns):
        topology.bind("x", queue=f"q{n}", key=pattern)
    tests = [compile_pattern.__wrapped__(pattern) for pattern in patterns]
    bound = [(test, f"q{n}") for n, test in enumerate(tests)]
    drawn = [[Message(b"", topic(rng)) for _ in range(20)] for _ in range(7)]
    _versus(
        bench, f"{size:,} patterns #.x.#", topology, drawn, lambda m: scan_tests(bound, m.topic)
    )


def _versus(
    bench: Bench,
    what: str,
    topology: Topology,
    drawn: list[list[Message]],
    scan: Callable[[Message], list[str]],
) -> None:
    count = len(drawn[0])
    parts = iter(drawn)
    ours = bench.measure(what, routing(topology, lambda: next(parts), len(drawn)), count)
    # The scan makes a set of queues as well.
    rounds = [lambda part=part: [frozenset(scan(m)) for m in part] for part in drawn]
    theirs = bench.measure(f"scan, {what}", rounds, count)
    bench.versus(ours, "a scan over all bindings", theirs.value, at_least(0.9))  # a tenth is noise
    named = sorted({f"{entry.about} ({entry.bindings:,})" for entry in topology.advise()})
    print(f"  advise: {'; '.join(named)}", flush=True)
    _check(topology, drawn[0], scan)
    if not named:
        sys.exit(f"{what}: not named by advise()")


def _check(
    topology: Topology, drawn: Iterable[Message], scan: Callable[[Message], list[str]]
) -> None:
    for message in drawn:
        if set(topology.route("x", message).queues) != set(scan(message)):
            sys.exit(f"the index and the scan disagree about {message}")


# ---- the run -------------------------------------------------------------------------------------------


PARTS = (
    "small",
    "headers",
    "longest",
    "filters",
    "lists",
    "topics",
    "batches",
    "fan-out",
    "hostile",
)


def main() -> None:
    given = options(__doc__, seed=4, parts=PARTS).parse_args()
    pa.set_cpu_count(1)
    bench = Bench(rounds=300 if given.quick else 1_000)
    with recorded(bench, given):
        rng = random.Random(given.seed)
        for name in given.only or PARTS:
            measure(name, bench, rng, given.quick)
            gc.collect()


def measure(part: str, bench: Bench, rng: random.Random, quick: bool) -> None:
    match part:
        case "small":
            bench_small(bench, rng)
        case "longest":
            bench_longest(bench, rng, (1_000, 10_000) if quick else (1_000, 10_000, 100_000))
        case "lists":
            bench_lists(bench, rng, 500 if quick else 5_000)
        case "headers":
            sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
            bench_headers(bench, rng, sizes)
        case "filters":
            bench_filters(bench, rng, (1_000,) if quick else (10_000, 100_000))
        case "topics":
            bench_topics(bench, rng, 20_000 if quick else 1_000_000)
        case "batches":
            bench_batches(bench, rng, *((10_000, 65_536) if quick else (100_000, 1 << 19)))
        case "fan-out":
            bench_fan_out(bench, rng, 10_000)
        case "hostile":
            bench_hostile(bench, rng, 2_000 if quick else 10_000)
            bench_hostile_patterns(bench, rng, 5_000 if quick else 100_000)


if __name__ == "__main__":
    main()

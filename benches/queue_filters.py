"""Claims with filters while a queue grows: each beside the claim without a filter, in turns; and browsing for nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from figures import TIMES, Recorder, at_most

from headgate.queues.database import connect
from headgate.queues.delivery import Delivery
from headgate.queues.queue import Queue

MATCHING = {
    "type <>": "type <> 't7'",
    "type LIKE 't7%'": "type LIKE 't7%'",
    "type IS NOT NULL": "type IS NOT NULL",
    "undeclared, 1 %": "kind = 'k7'",
}
NOTHING = "kind = 'nothing'"
ROUNDS = 15
MILLION = 1_000_000
MINUTES = timedelta(minutes=5)

Fill = Callable[[Queue, int, str], None]
GiveBack = Callable[[Queue, list[Delivery]], None]


def filters_by_size(
    bench: Recorder, engine: str, url: str, sizes: Sequence[int], fill: Fill, give_back: GiveBack
) -> None:
    with connect(url) as db:
        queue = db.queue("grows", filter_headers=["type", "region"], max_attempts=0)
        stored = 0
        for size in sizes:
            bench.part(f"{engine}: claims with filters, {size:,} ready messages")
            fill(queue, size - stored, url)
            stored = size
            _beside_no_filter(bench, engine, size, queue, give_back)
        _of_nothing(bench, engine, stored, queue)
        db.delete("grows")


def _beside_no_filter(
    bench: Recorder, engine: str, size: int, queue: Queue, give_back: GiveBack
) -> None:
    is_bound = size == MILLION
    for name, filter in MATCHING.items():
        spent: dict[str | None, list[float]] = {None: [], filter: []}
        for _ in range(ROUNDS):
            for each, times in spent.items():
                began = time.perf_counter()
                claimed = queue.claim(10, MINUTES, each)
                times.append((time.perf_counter() - began) * 1e3)
                give_back(queue, claimed)
        none, ours = (statistics.median(times) for times in spent.values())
        note = f"{ours:.2f} ms, no filter {none:.2f} ms"
        row = f"{engine}, {size:,}: claim 10, {name} / no filter"
        bench.add(row, ours / none, TIMES, at_most(5) if is_bound else None, note=note)


def _of_nothing(bench: Recorder, engine: str, size: int, queue: Queue) -> None:
    where = f"{engine}, {size:,}"
    spent = [_empty_claim_ms(queue, NOTHING) for _ in range(ROUNDS)]
    soon = at_most(1_000) if size == MILLION and engine.startswith("postgres") else None
    bench.add(f"{where}: undeclared, nothing, the first claim", spent[0], "ms", soon)
    later = statistics.median(spent[1:])
    bench.add(f"{where}: undeclared, nothing, later claims", later, "ms", at_most(2))
    known = statistics.median(_empty_claim_ms(queue, "type = 'nothing'") for _ in range(ROUNDS))
    new = statistics.median(_empty_claim_ms(queue, f"type = 'no {n}'") for n in range(ROUNDS))
    figure = bench.add(f"{where}: declared, nothing, a filter that is known", known, "ms")
    bench.versus(figure, "a filter that is new", new)
    began = time.perf_counter()
    assert not list(queue.browse(filter=NOTHING))
    bench.add(f"{where}: browse for nothing", (time.perf_counter() - began) * 1e3, "ms")


def _empty_claim_ms(queue: Queue, filter: str) -> float:
    began = time.perf_counter()
    assert not queue.claim(10, MINUTES, filter)
    return (time.perf_counter() - began) * 1e3

"""What a task stages for each place is what the topology says, message by message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyarrow import RecordBatch

from headgate.columns.decode import decode_messages
from headgate.columns.shred import shred_messages
from headgate.message import Message
from headgate.pipelines.account import Counters, counters_to_json, sum_counters
from headgate.routing import to_toml
from headgate.routing.topology import Topology
from headgate.spark.pipeline import router
from headgate.spark.pipeline.router import (
    PipelineRouter,
    RoutingPlan,
    combine,
    descriptors,
    load_plan,
    load_router,
    save_plan,
    windows,
)
from headgate.spark.sink.staging import StagedPart
from headgate.streams.write.staged import read_staged
from tests import generate
from tests.wide import LAYOUTS

REGIONS = ("EU", "US", "AP", None)
TOPICS = ("orders.eu.created", "orders.us.paid", "audit", "")


@pytest.fixture
def topology() -> Topology:
    made = Topology()
    made.declare_exchange("orders", "headers", alternate="rest")
    made.declare_exchange("rest", "topic")
    made.declare_exchange("large", "filter")
    for queue in ("eu", "vip", "big", "audit"):
        made.declare_queue(queue)
    made.bind("orders", queue="eu", arguments={"region": "EU"})
    made.bind("orders", queue="vip", arguments={"x-match": "any", "vip": True, "region": "US"})
    made.bind("orders", exchange="large", arguments={"amount": None})
    made.bind("large", queue="big", filter="amount > 1500 OR region IS NULL")
    made.bind("rest", queue="audit", key="audit.#")
    return made


def messages(rng: Random, count: int) -> list[Message]:
    def headers(n: int) -> dict[str, object]:
        given = {"n": n, "region": rng.choice(REGIONS), "vip": rng.random() < 0.2 or None}
        given["amount"] = rng.randrange(2000) if rng.random() < 0.7 else None
        return {name: value for name, value in given.items() if value is not None}

    return [Message(b"%d" % n, rng.choice(TOPICS), headers(n)) for n in range(count)]  # type: ignore[arg-type]


def plan(tmp_path: Path, topology: Topology, **more: object) -> RoutingPlan:
    outlets = {"eu": [0], "vip": [0, 1], "big": [1], "audit": []}
    places = [f"stream:{tmp_path}/{name}" for name in ("one", "two", "lost")]
    made = RoutingPlan(
        to_toml(topology.definitions()), "orders", places, outlets, str(tmp_path / "ck"), 2
    )
    for folder in PipelineRouter(made).folders:
        Path(folder).mkdir(parents=True)
    return made


def staged_messages(staged: list[StagedPart], place: int) -> list[str]:
    chosen = [one for one in staged if one.destination == place]
    batches = [b for one in chosen for b in read_staged(Path(one.file), one.nbytes, one.crc)]
    return [message.payload.decode() for batch in batches for message in decode_messages(batch)]


def expected(topology: Topology, sent: list[Message], queues: tuple[str, ...]) -> list[str]:
    """One copy for each queue that sends it here, in the order the messages came."""
    routed = [(m, topology.route("orders", m).queues) for m in sent]
    return [m.payload.decode() for m, found in routed for queue in queues if queue in found]


def batches_of(
    rng: Random,
    sent: list[Message],
    layout: Callable[[list[Message]], RecordBatch] = shred_messages,
) -> list[RecordBatch]:
    cuts = sorted(rng.sample(range(1, len(sent)), 7))
    return [
        layout(sent[a:b]).append_column("payload", [m.payload for m in sent[a:b]])
        for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)
    ]


@pytest.mark.parametrize("held", [1, router.HELD_BYTES])
def test_every_place_gets_the_rows_of_its_queues_in_order(
    tmp_path: Path, topology: Topology, seed: int, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(router, "HELD_BYTES", held)
    rng = Random(seed)
    sent = messages(rng, 2000)
    counters = Counters()
    staged = list(PipelineRouter(plan(tmp_path, topology)).stage(batches_of(rng, sent), counters))
    assert staged_messages(staged, 0) == expected(topology, sent, ("eu", "vip"))
    assert staged_messages(staged, 1) == expected(topology, sent, ("vip", "big"))
    lost = [m.payload.decode() for m in sent if topology.route("orders", m).unroutable]
    assert staged_messages(staged, 2) == lost
    counted = Counter(q for m in sent for q in topology.route("orders", m).queues)
    assert counters.queues == counted
    assert (counters.read, counters.unroutable) == (2000, len(lost))
    assert counters.routed == 2000 - len(lost)


@pytest.mark.parametrize("layout", [LAYOUTS["overflow"], LAYOUTS["both"]])
def test_messages_with_200_headers_are_routed_by_the_topology(
    tmp_path: Path,
    topology: Topology,
    seed: int,
    layout: Callable[[list[Message]], RecordBatch],
) -> None:
    rng = Random(seed)
    sent = messages(rng, 200)
    router = PipelineRouter(replace(plan(tmp_path, topology), filter="n >= 20"))
    passing = router.apply_filter(batches_of(rng, sent, layout))
    staged = list(router.stage(passing, Counters()))
    assert staged_messages(staged, 0) == expected(topology, sent[20:], ("eu", "vip"))
    assert staged_messages(staged, 1) == expected(topology, sent[20:], ("vip", "big"))
    lost = [m.payload.decode() for m in sent[20:] if topology.route("orders", m).unroutable]
    assert staged_messages(staged, 2) == lost


def test_unroutable_messages_without_a_place_stage_no_file(
    tmp_path: Path, topology: Topology
) -> None:
    batch = shred_messages([Message(b"", headers={"region": "EU"})])
    (only,) = PipelineRouter(plan(tmp_path, topology)).stage([batch], Counters())
    assert (only.destination, only.rows) == (0, 1)
    assert not list((tmp_path / "two").rglob("*.arrow"))


def test_a_plan_is_read_from_its_file_and_built_once(tmp_path: Path, topology: Topology) -> None:
    made = plan(tmp_path, topology)
    file = save_plan(made, tmp_path / "ck" / "headgate")
    assert save_plan(made, file.parent) == file
    loaded = load_plan(file)
    assert (loaded.topology, loaded.outlets) == (made.topology, made.outlets)
    assert load_router(str(file)) is load_router(str(file))


def test_descriptors_name_every_file_and_end_with_the_counters() -> None:
    counters = Counters(read=3, queues={"q": 2})
    staged = StagedPart(1, "f", 2, 30, 4)
    rows = descriptors([staged], counters).to_pylist()
    assert rows[0] == {
        "destination": 1, "file": "f", "rows": 2, "nbytes": 30, "crc": 4, "counters": None,
    }  # fmt: skip
    assert rows[1]["file"] is None
    assert sum_counters([rows[1]["counters"], counters_to_json(counters)]) == Counters(
        read=6, queues={"q": 4}
    )


def test_batches_with_different_columns_are_combined_into_one(seed: int) -> None:
    rng = Random(seed)
    for _ in range(40):
        parts = [generate.messages(rng, rng.randint(1, 12)) for _ in range(rng.randint(1, 6))]
        batches = [shred_messages(part) for part in parts]
        expected = [message for batch in batches for message in decode_messages(batch)]
        assert decode_messages(combine(batches)) == expected


def test_a_column_may_be_a_dictionary_in_some_batches_only() -> None:
    words = pa.array(["a", "b", "a", None])
    wide = words.dictionary_encode()
    narrow = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["c", "a"]))
    batches = [pa.record_batch({"h.s.x": array}) for array in (narrow, words, wide)]
    whole = combine(batches).column("h.s.x")
    assert whole.to_pylist() == ["c", "a", "a", "b", "a", None, "a", "b", "a", None]


def test_more_words_than_the_codes_of_any_one_batch_could_count() -> None:
    def part(first: int) -> pa.RecordBatch:
        codes = pa.array(range(100), pa.int8())
        words = pa.array([f"w{n}" for n in range(first, first + 100)])
        return pa.record_batch({"h.s.x": pa.DictionaryArray.from_arrays(codes, words)})

    whole = combine([part(first) for first in range(0, 1000, 100)])
    assert whole.column("h.s.x").to_pylist() == [f"w{n}" for n in range(1000)]


def test_a_window_ends_when_it_is_long_or_heavy_enough() -> None:
    batches = [shred_messages([Message(b"", headers={"n": n})]) for n in range(10)]
    assert [w.num_rows for w in windows(batches, rows=4)] == [4, 4, 2]
    assert [w.num_rows for w in windows(batches, nbytes=1)] == [1] * 10
    assert [w.num_rows for w in windows(batches)] == [10]
    assert not list(windows([]))

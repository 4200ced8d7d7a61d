"""What a task stages for each place is what the topology says, message by message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from pyarrow import RecordBatch

from headgate.columns.decode import decode_messages
from headgate.columns.shred import shred_messages
from headgate.message import Message
from headgate.pipelines.counters import Counters, to_text, total
from headgate.routing.toml_file import as_toml
from headgate.routing.topology import Topology
from headgate.spark.pipeline import route
from headgate.spark.pipeline.plan import RoutingPlan, load_plan, save_plan
from headgate.spark.pipeline.route import Router, descriptors, router
from headgate.spark.sink.staging import Staged
from headgate.streams.write.staged import read_staged
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
        as_toml(topology.definitions()), "orders", places, outlets, str(tmp_path / "ck"), 2
    )
    for folder in Router(made)._folders:
        Path(folder).mkdir(parents=True)
    return made


def staged_messages(staged: list[Staged], place: int) -> list[str]:
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


@pytest.mark.parametrize("held", [1, route.HELD_BYTES])
def test_every_place_gets_what_the_topology_says_in_order(
    tmp_path: Path, topology: Topology, seed: int, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(route, "HELD_BYTES", held)
    rng = Random(seed)
    sent = messages(rng, 2000)
    counters = Counters()
    staged = list(Router(plan(tmp_path, topology)).stage(batches_of(rng, sent), counters))
    assert staged_messages(staged, 0) == expected(topology, sent, ("eu", "vip"))
    assert staged_messages(staged, 1) == expected(topology, sent, ("vip", "big"))
    lost = [m.payload.decode() for m in sent if topology.route("orders", m).unroutable]
    assert staged_messages(staged, 2) == lost
    counted = Counter(q for m in sent for q in topology.route("orders", m).queues)
    assert counters.queues == counted
    assert (counters.read, counters.unroutable) == (2000, len(lost))
    assert counters.routed == 2000 - len(lost)


@pytest.mark.parametrize("layout", [LAYOUTS["overflow"], LAYOUTS["both"]])
def test_messages_of_200_headers_go_where_the_topology_says(
    tmp_path: Path,
    topology: Topology,
    seed: int,
    layout: Callable[[list[Message]], RecordBatch],
) -> None:
    rng = Random(seed)
    sent = messages(rng, 200)
    router = Router(replace(plan(tmp_path, topology), filter="n >= 20"))
    passing = router.passing(batches_of(rng, sent, layout))
    staged = list(router.stage(passing, Counters()))
    assert staged_messages(staged, 0) == expected(topology, sent[20:], ("eu", "vip"))
    assert staged_messages(staged, 1) == expected(topology, sent[20:], ("vip", "big"))
    lost = [m.payload.decode() for m in sent[20:] if topology.route("orders", m).unroutable]
    assert staged_messages(staged, 2) == lost


def test_what_nobody_gets_makes_no_file(tmp_path: Path, topology: Topology) -> None:
    batch = shred_messages([Message(b"", headers={"region": "EU"})])
    (only,) = Router(plan(tmp_path, topology)).stage([batch], Counters())
    assert (only.destination, only.rows) == (0, 1)
    assert not list((tmp_path / "two").rglob("*.arrow"))


def test_a_plan_comes_back_from_its_file_and_is_built_once(
    tmp_path: Path, topology: Topology
) -> None:
    made = plan(tmp_path, topology)
    file = save_plan(made, tmp_path / "ck" / "headgate")
    assert save_plan(made, file.parent) == file
    loaded = load_plan(file)
    assert (loaded.topology, loaded.outlets) == (made.topology, made.outlets)
    assert router(str(file)) is router(str(file))


def test_descriptors_name_every_file_and_end_with_the_counters() -> None:
    counters = Counters(read=3, queues={"q": 2})
    staged = Staged(1, "f", 2, 30, 4)
    rows = descriptors([staged], counters).to_pylist()
    assert rows[0] == {
        "destination": 1, "file": "f", "rows": 2, "nbytes": 30, "crc": 4, "counters": None,
    }  # fmt: skip
    assert rows[1]["file"] is None
    assert total([rows[1]["counters"], to_text(counters)]) == Counters(read=6, queues={"q": 4})

"""Exchanges that pass each message on to one binding: by a consistent hash, by a modulus, at random."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from headgate.columns import shred_messages
from headgate.errors import BindingRefused, DeclarationRefused
from headgate.message import OPAQUE, Message
from headgate.partitions import partition_of
from headgate.routing import Envelope, Topology
from headgate.routing.choosing import hash_value

KEYS = [f"order-{n}" for n in range(20_000)]


def make_topology(type: str, weights: dict[str, int], **arguments: str) -> Topology:
    topology = Topology()
    topology.declare_exchange("x", type, arguments=arguments)
    for queue, weight in weights.items():
        topology.declare_queue(queue)
        topology.bind("x", queue=queue, key=str(weight))
    return topology


def route_keys(topology: Topology, keys=KEYS) -> list[str]:
    found = []
    for key in keys:
        (queue,) = topology.route("x", Message(topic=key)).queues
        found.append(queue)
    return found


# ---- the consistent hash -------------------------------------------------------------------------------


def test_keys_are_spread_by_weight():
    weights = {f"q{n}": 1 + n % 3 for n in range(12)}
    found = Counter(route_keys(make_topology("x-consistent-hash", weights)))
    for queue, weight in weights.items():
        share = weight / sum(weights.values())
        assert found[queue] / len(KEYS) == pytest.approx(share, rel=0.12)


def test_a_new_queue_takes_only_its_share_and_gives_it_back():
    topology = make_topology("x-consistent-hash", {f"q{n}": 2 for n in range(9)})
    before = route_keys(topology)
    topology.declare_queue("new")
    topology.bind("x", queue="new", key="2")
    after = route_keys(topology)
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {new for _, new in moved} == {"new"}
    assert len(moved) / len(KEYS) == pytest.approx(1 / 10, rel=0.1)
    topology.delete_queue("new")
    assert route_keys(topology) == before


def test_a_queue_that_goes_leaves_its_keys_to_all_others():
    topology = make_topology("x-consistent-hash", {f"q{n}": 1 for n in range(5)})
    before = route_keys(topology)
    topology.unbind("x", queue="q2", key="1")
    pairs = list(zip(before, route_keys(topology), strict=True))
    assert all(old == new for old, new in pairs if old != "q2")
    taken = Counter(new for old, new in pairs if old == "q2")
    assert taken.keys() == {"q0", "q1", "q3", "q4"}
    assert max(taken.values()) < 2 * min(taken.values())


def test_the_order_of_binding_and_its_detours_do_not_matter():
    weights = {"a": 1, "b": 3, "c": 2}
    topology = make_topology("x-consistent-hash", dict(reversed(weights.items())))
    topology.bind("x", queue="a", key="7")
    topology.bind("x", queue="c", key="4")
    topology.unbind("x", queue="a", key="7")
    topology.unbind("x", queue="c", key="4")
    assert route_keys(topology) == route_keys(make_topology("x-consistent-hash", weights))


def test_the_weights_of_several_bindings_to_one_queue_are_added():
    topology = make_topology("x-consistent-hash", {"a": 1, "b": 4})
    topology.bind("x", queue="a", key="3")
    assert route_keys(topology) == route_keys(make_topology("x-consistent-hash", {"a": 4, "b": 4}))


def test_every_process_routes_alike():
    code = (
        "from headgate.routing.choosing import hash_value\n"
        "print(hash_value('order-1'), hash_value(5), hash_value(None), hash_value(True), hash_value(1.5))"
    )
    here = [hash_value(v) for v in ("order-1", 5, None, True, 1.5)]
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
        )
        assert list(map(int, done.stdout.split())) == here
    assert len(set(here) | {hash_value("5"), hash_value(5.0)}) == 7
    assert hash_value("order-1") == 2709196713320186429  # it must not change: keys would move


@pytest.mark.parametrize(
    ("arguments", "same", "other"),
    [
        (
            {"hash-header": "customer"},
            [Message(topic="a", headers={"customer": 17}), Message(topic="b", headers={"customer": 17, "x": 1})],
            lambda n: Message(headers={"customer": n}),
        ),
        (
            {"hash-property": "correlation_id"},
            [Message(topic="a", properties={"correlation_id": "c"}), Message(topic="b", properties={"correlation_id": "c"})],
            lambda n: Message(properties={"correlation_id": str(n)}),
        ),
        (
            {"hash-property": "message_id"},
            [Message(topic="a", id="m"), Message(topic="b", id="m")],
            lambda n: Message(id=str(n)),
        ),
        (
            {"hash-property": "timestamp"},
            [Message(topic="a", timestamp=5), Message(topic="b", timestamp=5)],
            lambda n: Message(timestamp=n),
        ),
    ],
)  # fmt: skip
def test_a_header_or_a_property_is_hashed_instead_of_the_routing_key(arguments, same, other):
    topology = make_topology("x-consistent-hash", {f"q{n}": 1 for n in range(4)}, **arguments)
    first, second = (topology.route("x", message).queues for message in same)
    assert first == second
    spread = Counter(min(topology.route("x", other(n)).queues) for n in range(400))
    assert min(spread.values()) > 50
    absent = {min(topology.route("x", Message(topic=key)).queues) for key in KEYS[:50]}
    assert len(absent) == 1  # as in RabbitMQ, messages without it go to one queue


def test_what_came_over_amqp_is_hashed_by_any_header():
    topology = make_topology(
        "x-consistent-hash", {f"q{n}": 1 for n in range(8)}, **{"hash-header": "k"}
    )
    tables = [[n, {"a": n}] for n in range(100)]
    found = [min(topology.route("x", ("key", {"k": table})).queues) for table in tables]
    assert found == [min(topology.route("x", Envelope("other", {"k": t})).queues) for t in tables]
    assert len(set(found)) == 8


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", "must be an integer, not ''"),
        ("heavy", "must be an integer, not 'heavy'"),
        ("1.5", "must be an integer"),
        ("٣", "must be an integer"),
        ("0", "a weight from 1 to"),
        ("-3", "a weight from 1 to"),
        ("9" * 5000, "a weight from 1 to"),
    ],
)
def test_a_binding_key_that_is_no_weight_is_refused(key, problem):
    topology = make_topology("x-consistent-hash", {"q": 1})
    with pytest.raises(BindingRefused, match=problem):
        topology.bind("x", queue="q", key=key)
    assert len(topology) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"hash-header": "a", "hash-property": "message_id"}, "exclude each other"),
        ({"hash-property": "app_id"}, "one of correlation_id, message_id, timestamp, not 'app_id'"),
        ({"hash-property": 5}, "not 5"),
        ({"hash-header": 5}, "the name of a header, not 5"),
        ({"hash-header": ""}, "the name of a header"),
    ],
)
def test_bad_hash_arguments_are_refused(arguments, problem):
    with pytest.raises(DeclarationRefused, match=problem):
        Topology().declare_exchange("x", "x-consistent-hash", arguments=arguments)


# ---- the others ----------------------------------------------------------------------------------------


def test_a_modulus_hash_spreads_keys_evenly_whatever_the_binding_keys():
    topology = make_topology("x-modulus-hash", {f"q{n}": n for n in range(7)})
    found = Counter(route_keys(topology))
    assert max(found.values()) < 1.1 * min(found.values())
    assert route_keys(topology) == route_keys(topology)


def test_at_random_every_queue_gets_its_share():
    topology = make_topology("x-random", {f"q{n}": 1 for n in range(5)})
    found = Counter(route_keys(topology, ["same"] * 5_000))
    assert len(found) == 5
    assert min(found.values()) > 800  # of 1,000: eight standard deviations


def test_one_draw_is_made_for_each_message():
    topology = make_topology("x-random", {"a": 1, "b": 1, "c": 1})
    drawn = iter([2, 0, 1])
    topology._indexes["x"].draw = lambda count: next(drawn)
    assert route_keys(topology, ["same"] * 3) == ["c", "a", "b"]


@pytest.mark.parametrize("type", ["x-consistent-hash", "x-modulus-hash", "x-random"])
def test_nothing_bound_is_unroutable_and_an_alternate_and_other_exchanges_work(type):
    topology = Topology()
    topology.declare_exchange("x", type, alternate="rest")
    topology.declare_exchange("rest", "fanout")
    topology.declare_exchange("next", "direct")
    for queue in ("lost", "k"):
        topology.declare_queue(queue)
    topology.bind("rest", queue="lost")
    assert set(topology.route("x", Message(topic="k")).queues) == {"lost"}
    topology.bind("x", exchange="next", key="1")
    topology.bind("next", queue="k", key="k")
    assert set(topology.route("x", Message(topic="k")).queues) == {"k"}
    assert topology.route("x", Message(topic="k")).via == ("x", "next")
    with pytest.raises(BindingRefused, match="without x-filter; bind it to a filter exchange"):
        topology.bind("x", queue="k", key="1", filter="a = 1")


def test_a_hash_of_the_routing_key_is_known_by_the_key_alone():
    weights = {"a": 1, "b": 1}
    for topology in (
        make_topology("x-consistent-hash", weights),
        make_topology("x-modulus-hash", weights),
    ):
        assert topology.route_key("x", "k") == topology.route("x", Message(topic="k"))
    by_header = make_topology("x-consistent-hash", weights, **{"hash-header": "k"})
    assert by_header.route_key("x", "k") is None
    assert make_topology("x-random", weights).route_key("x", "k") is None


# ---- batches, explanations and files -------------------------------------------------------------------


def messages_of_all_kinds() -> list[Message]:
    values = [1, 1.0, "1", True, -0.0, 0.0, OPAQUE, "é", None]
    return [
        Message(
            f"payload {n}".encode(),
            topic=f"t{n % 50}",
            headers={"k": values[n % 9]} if values[n % 9] is not None else {},
            timestamp=n % 7,
            id=f"m{n % 30}",
        )
        for n in range(900)
    ]


@pytest.mark.parametrize("type", ["x-consistent-hash", "x-modulus-hash"])
@pytest.mark.parametrize(
    "arguments", [{}, {"hash-header": "k"}, {"hash-property": "message_id"}, {"hash-property": "timestamp"}]
)  # fmt: skip
def test_a_batch_is_routed_as_its_messages_are(type, arguments):
    topology = make_topology(type, {f"q{n}": 1 + n for n in range(5)}, **arguments)
    messages = messages_of_all_kinds()
    routed = topology.route_batch("x", shred_messages(messages))
    wanted: dict[str, list[int]] = {}
    for row, message in enumerate(messages):
        (queue,) = topology.route("x", message).queues
        wanted.setdefault(queue, []).append(row)
    assert {q: rows.tolist() for q, rows in routed.selections().items()} == wanted
    assert len(routed.unroutable) == 0
    assert routed.combinations <= 5  # one answer a queue, however many keys there are


@pytest.mark.parametrize(
    "messages",
    [messages_of_all_kinds(), [Message(b"", timestamp=5) for _ in range(900)]],
    ids=["different", "equal"],
)
def test_a_batch_is_spread_at_random_and_alike_when_it_is_routed_again(messages):
    batch = shred_messages(messages)
    weights = {"a": 1, "b": 1, "c": 1}
    first, again = (
        make_topology("x-random", weights).route_batch("x", batch).selections() for _ in range(2)
    )
    assert first.keys() == weights.keys()
    for queue, rows in first.items():
        assert rows.tolist() == again[queue].tolist()
        assert 200 < len(rows) < 400
    assert sorted(np.concatenate(list(first.values())).tolist()) == list(range(900))


def test_explain_says_where_the_hash_leads():
    topology = make_topology("x-consistent-hash", {"a": 1, "b": 1}, **{"hash-header": "k"})
    explained = topology.explain("x", Message(headers={"k": 5}))
    (queue,) = explained.routed.queues
    (other,) = {"a", "b"} - {queue}
    reasons = {reason.binding.destination: reason for reason in explained.reasons}
    assert reasons[queue].matched
    assert reasons[other].why_not == f"the hash of hash-header 'k' leads to {queue}"
    drawn = make_topology("x-random", {"a": 1, "b": 1}).explain("x", Message())
    (queue,) = drawn.routed.queues
    assert {r.binding.destination: r.matched for r in drawn.reasons} == {
        queue: True,
        "b" if queue == "a" else "a": False,
    }


@pytest.mark.parametrize("suffix", [".toml", ".json"])
@pytest.mark.parametrize("type", ["x-consistent-hash", "x-modulus-hash", "x-random"])
def test_files_and_pickles_keep_them(tmp_path, suffix, type):
    arguments = {"hash-header": "k"} if type == "x-consistent-hash" else {}
    topology = make_topology(type, {f"q{n}": 1 + n for n in range(5)}, **arguments)
    topology.save(tmp_path / f"t{suffix}")
    loaded = Topology.load(tmp_path / f"t{suffix}")
    for again in (loaded, pickle.loads(pickle.dumps(topology))):
        assert again.exchanges["x"] == topology.exchanges["x"]
        assert set(again.bindings("x")) == set(topology.bindings("x"))
        if type != "x-random":
            messages = messages_of_all_kinds()
            found = [again.route("x", message).queues for message in messages]
            assert found == [topology.route("x", message).queues for message in messages]


def make_super_stream(keys):
    topology = Topology()
    topology.declare_exchange("x", "x-super-stream")
    for key in keys:
        topology.declare_queue(f"x-{key}")
        topology.bind("x", queue=f"x-{key}", key=key)
    return topology


def test_a_super_stream_chooses_the_partition_of_rabbitmq_s_clients():
    topology = make_super_stream(["2", "0", "1"])
    for n in range(50):
        routed = topology.route("x", (f"hello{n}", {}))
        assert routed.queues == {f"x-{partition_of(f'hello{n}', 3)}"}
    assert topology.route("x", ("hello1", {})).queues == {"x-1"}
    assert topology.route("x", ("hello2", {})).queues == {"x-0"}


def test_a_super_stream_without_the_partition_of_a_key_does_not_route_it():
    topology = make_super_stream(["0", "7"])
    keys = [f"k{n}" for n in range(20)]
    lost = [key for key in keys if partition_of(key, 2) == 1]
    assert [key for key in keys if topology.route("x", (key, {})).unroutable] == lost
    [reason, _] = topology.explain("x", (lost[0], {})).reasons
    assert "no binding has the number" in reason.why_not
    topology.unbind("x", queue="x-7", key="7")
    assert not topology.route("x", (lost[0], {})).unroutable
    with pytest.raises(BindingRefused, match="must be an integer"):
        topology.bind("x", queue="x-7", key="seven")

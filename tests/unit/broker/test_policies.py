"""Policies: which one counts, what it may say, and that a change takes effect and is undone at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headgate.amqp.content import make_content
from headgate.broker import Broker, NotFound, PreconditionFailed
from headgate.broker.policy_keys import KEYS
from headgate.broker.policy_precedence import merge_arguments, merge_operator
from headgate.broker.queue_definition import define_queue
from headgate.testing import Broker as RunningBroker
from tests.unit.broker.conftest import MakeBroker


def declare(broker: Broker, name: str, **arguments: Any) -> Any:
    given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return broker.vhosts["/"].declare_queue(name, durable=True, arguments=given)


def publish(broker: Broker, queue: Any, count: int) -> None:
    for number in range(count):
        queue.publish(make_content(b"\x00\x01q", b"\x00\x00", b"%d" % number))
    broker.flush()


def test_the_highest_priority_counts_alone(broker: Broker) -> None:
    queue = declare(broker, "orders.eu")
    broker.policies.set("/", "all", ".*", {"max-length": 5, "message-ttl": 9})
    broker.policies.set("/", "orders", "^orders", {"max-length": 7}, priority=3)
    broker.policies.set("/", "others", "^others", {"max-length": 1}, priority=9)
    assert (queue.definition.max_length, queue.definition.message_ttl) == (7, None)
    broker.policies.clear("/", "orders")
    assert (queue.definition.max_length, queue.definition.message_ttl) == (5, 9)
    broker.policies.clear("/", "all")
    assert (queue.definition.max_length, queue.definition.message_ttl) == (None, None)
    with pytest.raises(NotFound):
        broker.policies.clear("/", "all")


@pytest.mark.parametrize(
    ("apply_to", "types"),
    [
        ("all", {"classic", "quorum"}),
        ("queues", {"classic", "quorum"}),
        ("classic_queues", {"classic"}),
        ("quorum_queues", {"quorum"}),
        ("streams", set()),
        ("exchanges", set()),
    ],
)
def test_a_policy_applies_to_what_it_says(broker: Broker, apply_to: str, types: set[str]) -> None:
    queues = {kind: declare(broker, kind, queue_type=kind) for kind in ("classic", "quorum")}
    broker.policies.set("/", "p", "", {"max-length": 5}, apply_to=apply_to)
    assert {kind for kind, queue in queues.items() if queue.definition.max_length == 5} == types


def test_a_delivery_limit_that_is_no_number_gives_way_to_a_policy(
    broker: Broker, make_broker: MakeBroker
) -> None:
    before = declare(broker, "before", queue_type="quorum", delivery_limit="abc")
    broker.policies.set("/", "p", "", {"delivery-limit": 5})
    after = declare(broker, "after", queue_type="quorum", delivery_limit=True)
    assert (before.definition.delivery_limit, after.definition.delivery_limit) == (5, 5)
    broker.flush()
    again = make_broker().vhosts["/"].queues["before"]
    assert again.definition.delivery_limit == 5


def test_a_policy_with_a_key_that_a_queue_cannot_have_does_not_apply_to_it(broker: Broker) -> None:
    classic, quorum = declare(broker, "c"), declare(broker, "q", queue_type="quorum")
    broker.policies.set("/", "low", "", {"max-length": 9})
    broker.policies.set("/", "high", "", {"max-length": 5, "delivery-limit": 2}, priority=1)
    assert classic.definition.max_length == 9
    assert (quorum.definition.max_length, quorum.definition.delivery_limit) == (5, 2)


def test_of_argument_policy_and_operator_policy_the_lowest_limit_counts(broker: Broker) -> None:
    queue = declare(broker, "q", max_length=10, dead_letter_exchange="mine", overflow="drop-head")
    said = {"max-length": 20, "dead-letter-exchange": "theirs", "overflow": "reject-publish"}
    broker.policies.set("/", "p", "", said)
    assert queue.definition.max_length == 10
    assert queue.definition.dead_letter_exchange == "mine"
    assert queue.definition.overflow == "drop-head"
    broker.operator_policies.set("/", "o", "", {"max-length": 4, "message-ttl": 3})
    assert (queue.definition.max_length, queue.definition.message_ttl) == (4, 3)
    broker.operator_policies.clear("/", "o")
    assert (queue.definition.max_length, queue.definition.message_ttl) == (10, None)


def test_merging_is_rabbitmqs() -> None:
    policy = {"delivery-limit": 5, "overflow": "drop-head", "expires": 9, "max-age": "1D"}
    operator = {"delivery-limit": -1, "overflow": "reject-publish", "expires": 20}
    assert merge_operator(policy, operator) == {
        "delivery-limit": 5,
        "overflow": "reject-publish",
        "expires": 9,
        "max-age": "1D",
    }
    arguments = {"x-overflow": "drop-head", "x-delivery-limit": 9, "x-max-age": "7D"}
    given = {"overflow": "reject-publish", "delivery-limit": 3, "max-age": "1D"}
    assert merge_arguments("quorum", arguments, given) == {
        "x-overflow": "reject-publish",
        "x-delivery-limit": 3,
        "x-max-age": "7D",
    }
    assert merge_arguments("stream", arguments, given)["x-max-age"] == "1D"


def test_a_limit_takes_effect_on_what_is_there(broker: Broker) -> None:
    queue = declare(broker, "q")
    publish(broker, queue, 10)
    broker.policies.set("/", "p", "^q$", {"max-length": 3})
    assert len(queue) == 3
    publish(broker, queue, 5)
    assert len(queue) == 3
    broker.policies.clear("/", "p")
    publish(broker, queue, 5)
    assert len(queue) == 8


def test_a_queue_declared_later_is_policed_too(broker: Broker) -> None:
    broker.policies.set("/", "p", "^q$", {"max-length": 3})
    assert declare(broker, "q").definition.max_length == 3
    assert declare(broker, "other").definition.max_length is None


def test_expiry_by_policy_begins_with_the_policy_and_ends_with_it() -> None:
    from headgate.amqp import AmqpCodec
    from headgate.store import InMemoryStore

    now, calls = [1_000], []
    broker = Broker(
        InMemoryStore(lambda call: call()),
        AmqpCodec(),
        lambda seconds, call: calls.append((now[0] + seconds * 1000, call)),
        now_ms=lambda: now[0],
    )

    def wait(milliseconds: int) -> None:
        now[0] += milliseconds
        due = [call for when, call in calls if when <= now[0]]
        calls[:] = [(when, call) for when, call in calls if when > now[0]]
        for call in due:
            call()

    kept, gone = declare(broker, "kept"), declare(broker, "gone")
    wait(5_000)
    broker.policies.set("/", "p", "", {"expires": 1_000})
    wait(500)
    assert not kept.is_deleted
    broker.policies.set("/", "p", "^gone", {"expires": 1_000})
    wait(600)
    assert (kept.is_deleted, gone.is_deleted) == (False, True)
    for length in range(50):
        broker.policies.set("/", "many", "^kept", {"expires": 10_000, "max-length": length})
    wait(9_999)
    wait(1)
    assert kept.is_deleted
    assert len(calls) <= 1


def test_an_alternate_exchange_by_policy(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_exchange("x", "direct", durable=True)
    vhost.declare_exchange("own", "direct", arguments={"alternate-exchange": "amq.direct"})
    rest = declare(broker, "rest")
    vhost.bind("amq.fanout", "rest", "", {})
    vhost.bind("x", "rest", "bound", {})
    assert vhost.find_route("x", "nothing").queues == ()
    broker.policies.set("/", "p", "", {"alternate-exchange": "amq.fanout"}, apply_to="exchanges")
    assert vhost.find_route("x", "nothing").queues == (rest,)
    assert vhost.find_route("x", "bound").queues == (rest,)
    assert vhost.find_route("own", "nothing").queues == (rest,)  # by way of amq.direct
    assert vhost.topology.exchange("own").alternate == "amq.direct"
    vhost.declare_exchange("x", "direct", durable=True)  # is what was declared
    vhost.declare_exchange("new", "fanout")
    assert vhost.find_route("new", "nothing").queues == (rest,)
    broker.policies.clear("/", "p")
    for name in ("x", "new"):
        assert vhost.find_route(name, "nothing").queues == ()


GOOD: dict[str, Any] = {
    "consumer-disconnected-timeout": 0, "delayed-retry-type": "all", "delayed-retry-min": 1, "delayed-retry-max": 1,
    "alternate-exchange": "x", "consumer-timeout": 0, "dead-letter-exchange": "x",
    "dead-letter-routing-key": "", "dead-letter-strategy": "at-least-once", "message-ttl": 0,
    "expires": 1, "max-length": 0, "max-length-bytes": 0, "max-in-memory-length": 0,
    "max-in-memory-bytes": 0, "queue-mode": "lazy", "queue-version": 2,
    "overflow": "reject-publish-dlx", "delivery-limit": -1, "max-age": "7D",
    "stream-max-segment-size-bytes": 0, "stream-filter-size-bytes": 16,
    "queue-leader-locator": "balanced", "queue-master-locator": "min-masters",
    "initial-cluster-size": 0, "target-group-size": 3, "federation-upstream": "x",
    "federation-upstream-set": "x", "federation-upstream-pattern": ".*", "shards-per-node": 2,
    "routing-key": "k", "filter": "amount > 3", "unmatched": "dead-letter", "unmatched-after": 1000,
}  # fmt: skip
BAD: dict[str, Any] = {
    "expires": 0, "stream-filter-size-bytes": 300, "delivery-limit": "x", "filter": "amount >",
    "federation-upstream-pattern": "(", "target-group-size": 0, "queue-version": True,
}  # fmt: skip


@pytest.mark.parametrize("key", list(KEYS))
def test_every_key_takes_good_values_and_no_others(broker: Broker, key: str) -> None:
    broker.policies.set("/", "p", "", {key: GOOD[key]})
    with pytest.raises(PreconditionFailed, match=f"is not a valid {KEYS[key].called[:20]}"):
        broker.policies.set("/", "p", "", {key: BAD.get(key, {})})
    if KEYS[key].for_operators:
        broker.operator_policies.set("/", "p", "", {key: GOOD[key]})
    else:
        with pytest.raises(PreconditionFailed, match="are not recognised policy settings"):
            broker.operator_policies.set("/", "p", "", {key: GOOD[key]})


def test_the_reference_names_every_key() -> None:
    reference = (Path(__file__).parents[3] / "docs" / "reference" / "broker.md").read_text()
    keys = reference.split("\nKeys: ")[1].split("\n\n")[0]
    assert sorted(re.findall("`([^`]+)`", keys)) == sorted(KEYS)


OF_CLASSIC: dict[str, Any] = {
    "consumer-timeout": 1000, "dead-letter-exchange": "x", "message-ttl": 1, "expires": 60_000, "max-length": 1,
    "max-length-bytes": 1, "overflow": "reject-publish", "filter": "a = 1", "unmatched": "drop", "unmatched-after": 1,
}  # fmt: skip
OF_STREAMS: dict[str, Any] = {
    "max-length-bytes": 1, "max-age": "1D", "stream-max-segment-size-bytes": 1, "stream-filter-size-bytes": 99,
    "filter": "a = 1",
}  # fmt: skip
RETRY = {"delayed-retry-type": "all", "delayed-retry-min": 1, "delayed-retry-max": 2}
DEAD = {"dead-letter-exchange": "x", "dead-letter-routing-key": "k"}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        *[(kind, {key: value}) for key, value in OF_CLASSIC.items() for kind in ("classic", "quorum")],
        *[("stream", {key: value}) for key, value in OF_STREAMS.items()],
        ("classic", DEAD),
        ("quorum", DEAD),
        ("quorum", {"delivery-limit": 3}),
        ("quorum", RETRY),
    ],
)  # fmt: skip
def test_what_a_key_says_holds_at_once_and_ends_with_the_policy(
    kind: str, said: dict[str, Any], tmp_path: Path
) -> None:
    with RunningBroker(tmp_path) as running:
        broker = running.broker
        queue = running.call(lambda: declare(broker, "q", queue_type=kind))
        before = queue.definition
        running.call(lambda: broker.policies.set("/", "p", "", said, apply_to="queues"))
        assert queue.definition == define_queue("q", "/", queue.arguments, policy=said) != before
        running.call(lambda: broker.policies.clear("/", "p"))
        assert queue.definition == before


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"definition": {}}, "no policy provided"),
        ({"definition": 3}, "must be a dictionary"),
        ({"definition": {"message-ttl": 2**64}}, "is not a valid message TTL"),
        ({"definition": {"expires": 2**64}}, "is not a valid queue expiry"),
        ({"definition": {"ha-mode": "all"}}, r'\[\{<<"ha-mode">>,<<"all">>\}\] are not recognised'),
        ({"pattern": "("}, "invalid regular expression"),
        ({"priority": "high"}, "whole number"),
        ({"apply_to": "topics"}, "apply-to 'topics' unrecognised"),
        ({"name": ""}, "the name of a policy"),
        (
            {"definition": {"federation-upstream": "a", "federation-upstream-set": "b"}},
            "cannot specify federation-upstream",
        ),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused(
    broker: Broker, change: dict[str, Any], problem: str
) -> None:
    policy = {"name": "p", "pattern": "", "definition": {"max-length": 1}, **change}
    with pytest.raises(PreconditionFailed, match=problem):
        broker.policies.set("/", policy.pop("name"), **policy)
    assert broker.policies.list() == []


def test_limits_of_a_virtual_host(broker: Broker) -> None:
    broker.parameters.set_vhost_limits("/", {"max-queues": 1})
    declare(broker, "a")
    declare(broker, "a")
    with pytest.raises(PreconditionFailed, match=r"queue limit in vhost '/' \(1\) is reached"):
        declare(broker, "b")
    broker.parameters.clear_vhost_limits("/", "max-queues")
    declare(broker, "b")
    assert broker.parameters.list() == []
    with pytest.raises(PreconditionFailed):
        broker.parameters.set_vhost_limits("/", {"max-something": 1})
    with pytest.raises(PreconditionFailed, match="policies may not be set using this method"):
        broker.parameters.set("/", "policy", "p", {})

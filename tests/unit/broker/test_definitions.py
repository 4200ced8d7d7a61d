"""Definitions: a document of RabbitMQ 4.0 comes in and goes out again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.broker import (
    Broker,
    PreconditionFailed,
    User,
    export_definitions,
    hash_password,
    import_definitions,
)

EXPORTED = Path(__file__).parents[2] / "data" / "rabbitmq_definitions.json"
PARTS = (
    "users", "vhosts", "permissions", "topic_permissions", "parameters", "global_parameters", "policies",
    "queues", "exchanges", "bindings",
)  # fmt: skip


def sorted_parts(document: dict[str, Any]) -> dict[str, list[str]]:
    """The parts of a document, with entries in one order."""
    return {part: sorted(json.dumps(e, sort_keys=True) for e in document[part]) for part in PARTS}


def test_an_export_of_rabbitmq_is_exported_again_as_it_was(make_broker) -> None:
    document = json.loads(EXPORTED.read_text())
    broker = make_broker()
    import_definitions(broker, document)
    found = export_definitions(broker)
    assert sorted_parts(found) == sorted_parts(document)
    versions = {"rabbit_version", "rabbitmq_version", "product_name", "product_version"}
    assert found.keys() == document.keys()
    for key in document.keys() - versions - set(PARTS):
        assert found[key] == document[key], key
    json.dumps(found)


def test_what_rabbitmqctl_exports_is_exported_again_with_all_that_it_says(broker: Broker) -> None:
    # It says more of a queue than the HTTP API (`type`), less of an exchange, and has limits that are a list if empty.
    document = {
        "rabbit_version": "4.0.5",
        "rabbitmq_version": "4.0.5",
        "vhosts": [
            {"name": "/", "limits": [], "metadata": {"description": "Default", "tags": []}, "default_queue_type": "classic"},
            {"name": "shop", "limits": {"max-queues": 7}, "metadata": {"description": "", "tags": ["eu"]}, "default_queue_type": "quorum"},
        ],
        "queues": [
            {"name": "q", "vhost": "/", "type": "quorum", "durable": True, "auto_delete": False, "arguments": {"x-queue-type": "quorum"}}
        ],
        "exchanges": [{"name": "x", "vhost": "/", "type": "direct", "durable": True, "auto_delete": False, "arguments": {}}],
        "bindings": [{"source": "x", "vhost": "/", "destination": "q", "destination_type": "queue", "routing_key": "k", "arguments": {}}],
    }  # fmt: skip
    import_definitions(broker, document)
    found = export_definitions(broker)
    assert found["queues"] == [{k: v for k, v in document["queues"][0].items() if k != "type"}]
    assert found["exchanges"] == [{**document["exchanges"][0], "internal": False}]
    assert found["bindings"] == document["bindings"]
    settings = {vhost["name"]: vhost for vhost in found["vhosts"]}
    assert (settings["/"]["description"], settings["/"]["default_queue_type"]) == ("Default", "classic")  # fmt: skip
    assert (settings["shop"]["tags"], settings["shop"]["default_queue_type"]) == (["eu"], "quorum")
    [limits] = found["parameters"]
    assert (limits["vhost"], limits["value"]) == ("shop", {"max-queues": 7})


def test_what_was_imported_takes_effect_and_survives_a_restart(make_broker) -> None:
    document = json.loads(EXPORTED.read_text())
    first = make_broker()
    import_definitions(first, document)
    again = make_broker()
    for broker in (first, again):
        shop = broker.vhosts["shop"]
        definition = shop.queues["orders.new"].definition
        assert (definition.type, definition.delivery_limit) == ("quorum", 5)
        assert definition.dead_letter_exchange == "dead"
        transient = shop.queues["transient.x"].definition
        assert (transient.expires, transient.max_length) == (3_600_000, 10_000)
        assert shop.topology.exchange("orders.topic").alternate == "dead"
        assert broker.access.users["orders"].limits == {"max-connections": 20, "max-channels": 100}
    durable = {part: [e for e in document[part] if e.get("durable", True)] for part in PARTS}
    durable["bindings"] = [b for b in durable["bindings"] if b["source"] != "with alternate"]
    assert sorted_parts(export_definitions(again)) == sorted_parts(durable)


def test_queues_that_the_broker_named_are_imported_with_their_bindings(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    queue = vhost.declare_queue("", durable=True)
    vhost.bind("amq.topic", queue.name, "a.#", {})
    document = json.loads(json.dumps(export_definitions(broker)))
    vhost.delete_queue(queue)
    for _ in range(2):
        import_definitions(broker, document)
        assert sorted_parts(export_definitions(broker)) == sorted_parts(document)
    assert [found.name for found in vhost.find_route("amq.topic", "a.b").queues] == [queue.name]
    with pytest.raises(PreconditionFailed, match=r"reserved prefix 'amq\.\*'"):
        import_definitions(broker, {"queues": [{"name": "amq.mine"}]})


def test_importing_twice_changes_nothing(broker: Broker) -> None:
    document = json.loads(EXPORTED.read_text())
    import_definitions(broker, document)
    before = export_definitions(broker)
    import_definitions(broker, document)
    assert export_definitions(broker) == before


def test_one_virtual_host_is_exported_and_imported_into_another(broker: Broker) -> None:
    import_definitions(broker, json.loads(EXPORTED.read_text()))
    document = export_definitions(broker, "shop")
    assert document["original_vhost_name"] == "shop"
    assert not any("vhost" in entry for part in ("queues", "policies") for entry in document[part])
    broker.add_vhost("copy")
    import_definitions(broker, document, "copy")
    copied = export_definitions(broker, "copy")
    for part in ("parameters", "policies", "queues", "exchanges", "bindings"):
        assert copied[part] == document[part], part


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "JSON object"),
        ({"queues": 1}, "queues are a list"),
        ({"queues": [1]}, "queues, entry 1: is not an object"),
        ({"queues": [{"name": "q", "vhost": "nope"}]}, "no vhost 'nope'"),
        ({"queues": [{"durable": True}]}, "has no 'name'"),
        ({"users": [{"name": "a", "password_hash": "?"}]}, r"users, entry 1 \(a\): .*base64"),
        ({"permissions": [{"user": "a", "vhost": "/"}]}, "has no 'configure'"),
        ({"policies": [{"name": "p", "pattern": "", "definition": {"x": 1}}]}, "not recognised"),
        ({"bindings": [{"source": "amq.topic", "destination": "q"}]}, "no queue 'q'"),
        ({"parameters": [{"component": "operator_policy", "name": "p", "value": 1}]}, "parameters"),
        ({"vhosts": [{"name": ""}]}, "the name of a vhost"),
        ({"exchanges": [{"name": "x", "type": "nope"}]}, "unknown exchange type"),
        ({"vhosts": [{"name": []}]}, "vhosts, entry 1: name is text, not list"),
        ({"queues": [{"name": 0}]}, "queues, entry 1: name is text, not int"),
        ({"exchanges": [{"name": None, "type": "topic"}]}, "name is text, not NoneType"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused_and_says_where(
    broker: Broker, document: Any, problem: str
) -> None:
    with pytest.raises(PreconditionFailed, match=problem):
        import_definitions(broker, document)


@pytest.mark.parametrize("last", [1, [1], [{"source": "amq.topic", "routing_key": {}}]])
def test_nothing_is_imported_of_a_document_that_is_not_built_like_definitions(
    broker: Broker, last: Any
) -> None:
    before = export_definitions(broker)
    with pytest.raises(PreconditionFailed):
        import_definitions(broker, {"queues": [{"name": "q"}], "bindings": last})
    assert export_definitions(broker) == before


def test_users_of_ours_keep_their_hash(make_broker) -> None:
    broker = make_broker()
    broker.access.put_user(User("ann", hash_password("secret"), ("management",)))
    document = export_definitions(broker)
    broker.access.delete_user("ann")
    import_definitions(broker, json.loads(json.dumps(document)))
    assert broker.access.users["ann"].password.verify("secret")
    import_definitions(broker, {"users": [{"name": "bob", "password": "plain", "tags": "x"}]})
    assert broker.access.users["bob"].password.verify("plain")


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"bindings": [{"source": "nope", "destination": "new"}]}, r"bindings, entry 1 \(nope\)"),
        ({"exchanges": [{"name": 7, "type": "topic"}]}, "name is text, not int"),
        ({"exchanges": [{"name": "x", "type": "topic", "durable": "no"}]}, "true or false"),
        ({"policies": [{"name": "p", "pattern": "(", "definition": {"expires": 1}}]}, "policies"),
    ],
)
def test_a_document_with_one_bad_entry_changes_nothing(
    broker: Broker, bad: dict[str, Any], problem: str
) -> None:
    good = {"vhosts": [{"name": "shop"}], "queues": [{"name": "new"}]}
    users = {"users": [{"name": "bob", "password": "plain", "tags": ""}]}
    before = export_definitions(broker)
    with pytest.raises(PreconditionFailed, match=problem):
        import_definitions(broker, {**good, **users, **bad})
    assert export_definitions(broker) == before


def test_entries_may_refer_to_what_is_there_already(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_queue("there")
    vhost.declare_exchange("orders", "topic", durable=True)
    broker.access.put_user(User("ann", hash_password("secret")))
    import_definitions(
        broker,
        {
            "permissions": [
                {"user": "ann", "vhost": "/", "configure": "", "write": "", "read": ""}
            ],
            "bindings": [{"source": "orders", "destination": "there", "routing_key": "#"}],
        },
    )
    assert [b.source for b in vhost.topology.bindings() if b.source] == ["orders"]

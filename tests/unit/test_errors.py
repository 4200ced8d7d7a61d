"""The tree of errors is drawn as it is, and every error survives a process boundary."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from headgate import errors
from headgate.errors import HeadgateError

ERRORS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, HeadgateError) and kind.__module__ == errors.__name__
]
EXAMPLES: list[HeadgateError] = [
    errors.BrokerUnreachable("amqp://guest@host:5672/", "no answer"),
    errors.PeerClosed(404, "NOT_FOUND - no queue"),
    errors.FilterSyntaxError("unexpected '='", "a = =", 4, ("a value",)),
    errors.FilterLimitError("tokens", 5000, 4096),
    errors.InvalidMessage("topic", "must be str, not int"),
    errors.CannotListen("127.0.0.1", 5672, "Address already in use", "give another port"),
    errors.StreamLocked("/s", {"pid": 1}),
    errors.StoreCorrupt("/d/broker.db", "is no SQLite file"),
    errors.StoreLocked("/d", "a broker"),
    errors.StoreTooNew("/d/broker.db", 2, 1),
    errors.StreamCorrupt("f.log", 7, "bad CRC", [(1, 3), (5, 5)]),
    errors.PositionLost("the cursor 'c'", 3, 10, 20),
    errors.UnknownExchange("x"),
    errors.UnknownQueue("q"),
    errors.NotEquivalent("queue 'q'", "durable", True, False),
    errors.QueueNotFound("q"),
    errors.StaleLease("q", (1,), "ack"),
    errors.PipelineError("p.toml", ("[sink.a]: no path",)),
    errors.SparkSchemaError("a", "is string, not date"),
    errors.CheckpointLocked("/c", {"pid": 1, "host": "h"}),
    errors.MissingExtra("postgres", "a PostgreSQL database"),
]


def drawn_tree() -> dict[str, tuple[str, list[str]]]:
    """Each drawn error: its parent, and the built-in errors it is as well."""
    found: dict[str, tuple[str, list[str]]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        entry = re.match(r"^((?:│   |    )*)(?:[├└]── )?(\w+)(?: \(([\w, ]+)\))?(?:\s{2,}|$)", line)
        if entry is None or not hasattr(errors, entry[2]):
            continue
        depth = len(entry[1]) // 4 + ("──" in line)
        above[depth:] = [entry[2]]
        parent = above[depth - 1] if depth else ""
        found[entry[2]] = parent, entry[3].split(", ") if entry[3] else []
    return found


def test_the_tree_at_the_top_of_the_module_is_the_tree_of_classes():
    actual = {}
    for kind in ERRORS:
        ours = [b.__name__ for b in kind.__bases__ if issubclass(b, HeadgateError)]
        others = [b.__name__ for b in kind.__bases__ if not issubclass(b, HeadgateError)]
        actual[kind.__name__] = ours[0] if ours else "", [n for n in others if n != "Exception"]
    assert drawn_tree() == actual


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_says_in_its_docstring_when_it_is_raised(kind):
    assert kind.__doc__
    assert kind.__doc__.splitlines()[0].endswith(".")


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_pickled_with_its_facts(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_every_error_with_facts_of_its_own_has_an_example():
    own = {kind for kind in ERRORS if "__init__" in vars(kind)}
    assert own == {type(error) for error in EXAMPLES}


def test_an_ipv6_address_is_told_apart_from_its_port():
    assert "on [::1]:5672:" in str(errors.CannotListen("::1", 5672, "Address already in use", ""))

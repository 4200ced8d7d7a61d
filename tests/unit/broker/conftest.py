from __future__ import annotations

from collections.abc import Callable

import pytest

from headgate.amqp import AmqpCodec
from headgate.broker import Broker
from headgate.store import InMemoryStore, Store

MakeBroker = Callable[..., Broker]


@pytest.fixture
def make_broker() -> MakeBroker:
    """Brokers over one store in memory: a second one is the first after a restart."""
    store = InMemoryStore(lambda call: call())

    def make(over: Store = store) -> Broker:
        return Broker(over, AmqpCodec(), lambda seconds, call: None)

    return make


@pytest.fixture
def broker(make_broker: MakeBroker) -> Broker:
    return make_broker()

"""Dead letters: makes the header `x-death`, and detects messages that go in circles, as RabbitMQ 4 does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from headgate.broker.message import BrokerMessage

DEATHS: Final = "x-death"


class DeadLetter(NamedTuple):
    """A message on its way to a dead letter exchange, under these routing keys."""

    message: BrokerMessage
    routing_keys: tuple[str, ...]


def make_dead_letter(
    message: BrokerMessage,
    queue: str,
    reason: str,
    exchange: str,
    routing_key: str | None,
    now_ms: int,
) -> DeadLetter:
    """The message as the dead letter exchange gets it, with the history of its deaths."""
    headers = message.headers
    deaths = _deaths(headers)
    # A letter that was given another key keeps its header CC, which routes it no more.
    last_keys = list(_texts(deaths[0].get("routing-keys"))) if deaths else [message.routing_key]
    carbon = list(_texts(headers.get("CC"))) if last_keys[:1] == [message.routing_key] else []
    death = {
        "count": 1,
        "reason": reason,
        "queue": queue,
        "time": datetime.fromtimestamp(now_ms // 1000, UTC),
        "exchange": message.exchange,
        "routing-keys": [message.routing_key, *carbon],
    }
    if message.expiration is not None:
        death["original-expiration"] = str(message.expiration)
    changed: dict[str, Any] = {DEATHS: _add_death(deaths, death)}
    for when in ("first", "last"):
        if when == "last" or f"x-{when}-death-queue" not in headers:
            changed[f"x-{when}-death-exchange"] = message.exchange
            changed[f"x-{when}-death-queue"] = queue
            changed[f"x-{when}-death-reason"] = reason
    if routing_key is None:
        keys = (message.routing_key, *carbon)
        return DeadLetter(message.republished(exchange, keys[0], changed), keys)
    return DeadLetter(message.republished(exchange, routing_key, changed), (routing_key,))


def goes_in_circles(message: BrokerMessage, queue: str) -> bool:
    """Whether the message died in this queue before, and since then nowhere because a consumer rejected it."""
    for death in _deaths(message.headers):
        if death.get("reason") == "rejected":
            return False
        if death.get("queue") == queue:
            return True
    return False


def carbon_keys(headers: Mapping[str, Any]) -> tuple[str, ...]:
    """The further routing keys of a message, in its headers CC and BCC."""
    return (*_texts(headers.get("CC")), *_texts(headers.get("BCC")))


def _deaths(headers: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = headers.get(DEATHS)
    return [death for death in found if isinstance(death, dict)] if isinstance(found, list) else []


def _add_death(deaths: Iterable[dict[str, Any]], death: dict[str, Any]) -> list[dict[str, Any]]:
    """The deaths with one more, latest first; a repeated queue and reason increases the count of its entry."""
    others = []
    for known in deaths:
        if (known.get("queue"), known.get("reason")) == (death["queue"], death["reason"]):
            count = known.get("count")
            death = {**known, "count": (count if isinstance(count, int) else 0) + 1}
        else:
            others.append(known)
    return [death, *others]


def _texts(value: Any) -> Iterable[str]:
    return (item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

"""Shovels that run inside the broker: one for each runtime parameter of the component `shovel`, with RabbitMQ's keys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from headgate.amqp import parse_address
from headgate.broker import Broker, Parameter, PreconditionFailed
from headgate.errors import HeadgateError
from headgate.shovels.shovel import PREFETCH, Shovel, ShovelOptions

log: Final = logging.getLogger(__name__)

COMPONENT: Final = "shovel"
RECONNECT_S: Final = 5
# Keys of RabbitMQ that change nothing here: the protocol is AMQP 0-9-1, a message is acknowledged when it is confirmed.
IGNORED: Final = frozenset(
    "src-protocol dest-protocol ack-mode add-forward-headers dest-add-forward-headers add-timestamp-header "
    "dest-add-timestamp-header publish-properties dest-publish-properties src-predeclared dest-predeclared".split()
)
KEYS: Final = frozenset(
    "src-uri src-queue src-exchange src-exchange-key src-prefetch-count prefetch-count src-delete-after delete-after "
    "src-queue-args src-consumer-args dest-uri dest-queue dest-exchange dest-exchange-key dest-queue-args "
    "reconnect-delay filter".split()
)
ARGUMENT_TABLES: Final = ("src-queue-args", "src-consumer-args", "dest-queue-args")
SHOWN: Final = (
    "src-queue", "src-exchange", "src-exchange-key", "dest-queue", "dest-exchange", "dest-exchange-key", "filter",
)  # fmt: skip
_RABBITMQ_STATES: Final = {"waiting to connect again": "starting", "failed": "terminated"}


@dataclass(frozen=True, slots=True)
class ShovelState:
    """The state of a shovel that runs in the broker."""

    vhost: str
    name: str
    state: str
    moved: int
    since: datetime
    options: ShovelOptions
    parameter: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The row of RabbitMQ's `GET /api/shovels`; addresses are without their passwords."""
        state, _, reason = self.state.partition(": ")
        given = {
            key.replace("-", "_"): self.parameter[key] for key in SHOWN if key in self.parameter
        }
        return {
            "name": self.name,
            "vhost": self.vhost,
            "type": "dynamic",
            "state": _RABBITMQ_STATES.get(state, state),
            "timestamp": f"{self.since:%Y-%m-%d %H:%M:%S}",
            "src_uri": str(parse_address(self.options.source)),
            "dest_uri": str(parse_address(self.options.destination)),
            "src_protocol": "amqp091",
            "dest_protocol": "amqp091",
            "moved": self.moved,
            **({"reason": reason} if reason else {}),
            **given,
        }


class DynamicShovels:
    """Runs the shovels of a broker's parameters, in its event loop."""

    def __init__(self, broker: Broker) -> None:
        self._parameters = broker.parameters
        self._flush = broker.flush
        self._here = ""  # where this broker listens, host:port
        self._running: dict[
            tuple[str, str], tuple[Shovel, Mapping[str, Any], asyncio.Task[None]]
        ] = {}

    def start(self, here: str) -> None:
        """Run a shovel for each parameter that is set, and follow changes of parameters; `here` is where this broker listens."""
        self._here = here
        self._parameters.checks[COMPONENT] = self._check
        self._parameters.watchers[COMPONENT] = self._changed
        for parameter in self._parameters.list(component=COMPONENT):
            try:
                self._changed(parameter)
            except HeadgateError as problem:  # the broker listens elsewhere now, for instance
                facts = {"shovel": parameter.name, "vhost": parameter.vhost, "why": str(problem)}
                log.error("a shovel cannot run", extra=facts)

    async def close(self) -> None:
        """Stop all shovels; messages under way stay at their sources."""
        tasks = [task for _, _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()

    def states(self) -> list[ShovelState]:
        return [
            ShovelState(
                vhost, name, shovel.state, shovel.moved, shovel.since, shovel.options, value
            )
            for (vhost, name), (shovel, value, _) in self._running.items()
        ]

    def _check(self, parameter: Parameter) -> None:
        """Refuse a parameter of which no shovel can be made."""
        value = parameter.value
        if not isinstance(value, Mapping):
            raise PreconditionFailed(
                "Validation failed\n\na shovel is an object with src-uri, dest-uri, …"
            )
        unknown = sorted(value.keys() - KEYS - IGNORED)
        problems = [f"Unrecognised terms [{', '.join(unknown)}]"] if unknown else []
        checks: dict[str, Callable[[Any], bool]] = {
            "src-prefetch-count": _is_prefetch,
            "prefetch-count": _is_prefetch,
            "reconnect-delay": lambda seconds: isinstance(seconds, int | float) and seconds >= 0,
            "src-delete-after": _is_end,
            "delete-after": _is_end,
            **dict.fromkeys(ARGUMENT_TABLES, lambda table: isinstance(table, Mapping)),
        }
        problems += [
            f"{key} cannot be {value[key]!r}"
            for key, holds in checks.items()
            if key in value and not holds(value[key])
        ]
        if not problems:
            try:
                read_options(value, self._here)
            except HeadgateError as problem:
                problems.append(str(problem))
        if problems:
            raise PreconditionFailed("Validation failed\n\n" + "\n".join(problems))

    def _changed(self, parameter: Parameter) -> None:
        key = (parameter.vhost, parameter.name)
        if key in self._running:
            self._running.pop(key)[-1].cancel()
        if parameter.value is not None:
            shovel = Shovel(read_options(parameter.value, self._here))
            task = asyncio.get_running_loop().create_task(self._run(parameter, shovel))
            self._running[key] = shovel, parameter.value, task

    async def _run(self, parameter: Parameter, shovel: Shovel) -> None:
        while True:
            try:
                await shovel.run()
                break
            except Exception as problem:
                shovel.state = f"failed: {problem}"
                delay = parameter.value.get("reconnect-delay", RECONNECT_S)
                facts = {"shovel": parameter.name, "vhost": parameter.vhost, "why": str(problem)}
                log.error("a shovel failed", extra={**facts, "trying_again_in_s": delay or None})
                if not delay:  # a delay of 0 means, as in RabbitMQ, that it is not started again
                    return
                await asyncio.sleep(delay)
        log.info("shovel %s is done: %d messages moved", parameter.name, shovel.moved)
        self._running.pop((parameter.vhost, parameter.name), None)
        self._parameters.clear(parameter.vhost, COMPONENT, parameter.name)
        self._flush()


def read_options(value: Mapping[str, Any], here: str) -> ShovelOptions:
    """The options in the value of a parameter, in a broker that listens at `here`."""
    get = value.get
    until = get("src-delete-after", get("delete-after", "never"))
    return ShovelOptions(
        source=_uri(value, "src-uri", here),
        destination=_uri(value, "dest-uri", here),
        queue=get("src-queue"),
        queue_arguments=get("src-queue-args", {}),
        consumer_arguments=get("src-consumer-args", {}),
        exchange=get("src-exchange"),
        routing_key=get("src-exchange-key", "#"),
        to_queue=get("dest-queue"),
        to_queue_arguments=get("dest-queue-args", {}),
        to_exchange=get("dest-exchange"),
        to_routing_key=get("dest-exchange-key"),
        filter=get("filter"),
        prefetch=get("src-prefetch-count", get("prefetch-count", PREFETCH)),
        until_empty=until == "queue-length",
        most=until if isinstance(until, int) else None,
        declares=True,
    )


def _uri(value: Mapping[str, Any], key: str, here: str) -> str:
    """The address under a key, the first of several; one without a host, as `amqp://`, is that of this broker."""
    found = value.get(key)
    if isinstance(found, list) and found:
        found = found[0]
    if not isinstance(found, str):
        raise HeadgateError(
            f"{key} must be the address of a broker, amqp://user:password@host/vhost"
        )
    try:
        parts = urlsplit(found)
    except ValueError:
        return found  # which is refused as an address
    login, at, place = parts.netloc.rpartition("@")
    if parts.scheme != "amqp" or place:
        return found
    return parts._replace(netloc=f"{login}{at}{here}").geturl()


def _is_prefetch(count: Any) -> bool:
    return isinstance(count, int) and 1 <= count <= 65535


def _is_end(when: Any) -> bool:
    return when in ("never", "queue-length") or (isinstance(when, int) and when > 0)

"""A shovel moves messages from a queue or exchange of one broker to another, Headgate or RabbitMQ, without losing one.

A message is acknowledged at its source when the destination has confirmed it. A shovel that is killed in between, or loses
either connection, may move some messages twice: delivery is at least once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from headgate.amqp import AmqpClient, Delivered, parse_address
from headgate.errors import BrokerUnreachable, HeadgateError, PeerClosed
from headgate.filters import compile_filter, parse
from headgate.message import Message

log: Final = logging.getLogger(__name__)

PREFETCH: Final = 1000
RECONNECT_S: Final = (0.5, 30.0)  # first and longest pause
NOT_FOUND: Final = 404
LASTING_CODES: Final = (403, 404, 405, 406, 530)  # errors that trying again would not mend


@dataclass(frozen=True, slots=True, kw_only=True)
class ShovelOptions:
    """Source, destination and limits of a shovel. Without a target, messages keep their exchange and routing key."""

    source: str  # addresses
    destination: str
    queue: str | None = None  # of the source; or
    # The exchange whose new messages are moved: a queue of the shovel's own is bound to it.
    exchange: str | None = None
    routing_key: str = "#"
    to_queue: str | None = None
    to_exchange: str | None = None
    to_routing_key: str | None = None
    filter: str | None = None
    prefetch: int = PREFETCH
    until_empty: bool = False
    most: int | None = None  # messages, after which it stops
    declares: bool = False  # queues that are missing, as durable ones, with these arguments:
    queue_arguments: Mapping[str, Any] = field(default_factory=dict)
    to_queue_arguments: Mapping[str, Any] = field(default_factory=dict)
    consumer_arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        is_one_place = parse_address(self.source)[1:] == parse_address(self.destination)[1:]
        if is_one_place and self.queue is not None and self.to_queue == self.queue:
            raise HeadgateError(f"a shovel from queue '{self.queue}' to itself would never end")
        if (self.queue is None) == (self.exchange is None):
            raise HeadgateError("a shovel takes from a queue or from an exchange: name one of them")
        if self.to_queue is not None and self.to_exchange is not None:
            raise HeadgateError("a shovel publishes to a queue or to an exchange, not to both")
        if self.until_empty and self.queue is None:
            raise HeadgateError("only a queue can be moved until it is empty")
        if self.filter is not None:
            parse(self.filter)


class Shovel:
    """One shovel; `moved` and `skipped` count its messages. `run` returns when the source is empty, or `stop` was called."""

    def __init__(self, options: ShovelOptions) -> None:
        self.options = options
        self.moved = self.skipped = 0
        self.state = "starting"
        self._matches: Callable[[Message], bool] | None = None
        if options.filter is not None and options.exchange is not None:
            self._matches = compile_filter(options.filter)
        self._stopping = asyncio.Event()

    @property
    def state(self) -> str:
        """What the shovel does now, with the reason behind a colon, if there is one."""
        return self._state

    @state.setter
    def state(self, state: str) -> None:
        self._state, self.since = state, datetime.now(UTC)

    def stop(self) -> None:
        """Let `run` return when the messages under way are settled."""
        self._stopping.set()

    async def run(self) -> None:
        """Move messages, and connect again whenever a connection breaks."""
        pause = RECONNECT_S[0]
        while not self._stopping.is_set():
            moved = self.moved
            try:
                await self._run_once()
                self.state = "stopped"
                return
            except (BrokerUnreachable, PeerClosed, TimeoutError) as problem:
                if isinstance(problem, PeerClosed) and problem.code in LASTING_CODES:
                    raise
                if self.moved > moved:
                    pause = RECONNECT_S[0]
                self.state = f"waiting to connect again: {problem}"
                log.warning("shovel: %s; trying again in %g s", problem, pause)
                await self._wait(pause)
                pause = min(pause * 2, RECONNECT_S[1])
        self.state = "stopped"

    async def _run_once(self) -> None:
        options = self.options
        if options.declares:
            await _declare_missing(options.source, options.queue, options.queue_arguments)
            await _declare_missing(
                options.destination, options.to_queue, options.to_queue_arguments
            )
        async with (
            await AmqpClient.connect(options.destination) as target,
            await AmqpClient.connect(options.source) as source,
        ):
            queue, waiting = await self._prepare(source)
            if options.to_queue is not None:
                await target.call("queue.declare", 0, options.to_queue, True, False, False, False, False, {})  # fmt: skip
            self.state = "running"
            await self._move(source, target, queue, waiting)

    async def _prepare(self, source: AmqpClient) -> tuple[str, int]:
        """The queue to take from, and how many messages are in it."""
        options = self.options
        if options.queue is not None:
            if options.filter is not None and "headgate" not in source.server_properties:
                raise HeadgateError(
                    "only a Headgate broker keeps the messages of a queue that a filter leaves out; "
                    "move everything, or take from an exchange"
                )
            found = await source.call("queue.declare", 0, options.queue, True, False, False, False, False, {})  # fmt: skip
            return options.queue, found[1]
        name, *_ = await source.call("queue.declare", 0, "", False, False, True, True, False, {})
        await source.call("queue.bind", 0, name, options.exchange, options.routing_key, False, {})
        return name, 0

    async def _move(self, source: AmqpClient, target: AmqpClient, queue: str, waiting: int) -> None:
        most = waiting if self.options.until_empty else self.options.most
        if most == 0:
            return
        arguments = dict(self.options.consumer_arguments)
        if self.options.filter is not None and self._matches is None:
            arguments["x-filter"] = self.options.filter
        under_way: set[asyncio.Future[None]] = set()
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deliveries = source.consume(queue, prefetch=self.options.prefetch, arguments=arguments)
        taken = 0
        while (delivered := await self._next(source, deliveries, failed)) is not None:
            self._pass_on(delivered, source, target, under_way, failed)
            taken += 1
            await target.drain()
            if most is not None and taken >= most:
                break
        while under_way:
            await asyncio.wait(set(under_way))
        if failed.done():
            failed.result()
        failed.cancel()

    async def _next(
        self,
        source: AmqpClient,
        deliveries: AsyncIterator[Delivered],
        failed: asyncio.Future[None],
    ) -> Delivered | None:
        """The next delivery; None when the shovel is to stop or a message was not taken."""
        if failed.done() or self._stopping.is_set():
            return None
        following = asyncio.ensure_future(anext(deliveries))
        if source.waiting_deliveries():
            return await following
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((following, failed, stopping), return_when=asyncio.FIRST_COMPLETED)
            return following.result() if following.done() else None
        finally:
            stopping.cancel()
            following.cancel()

    def _pass_on(
        self,
        delivered: Delivered,
        source: AmqpClient,
        target: AmqpClient,
        under_way: set[asyncio.Future[None]],
        failed: asyncio.Future[None],
    ) -> None:
        """Publish a delivery, and acknowledge it when it is confirmed."""
        if self._matches is not None and not self._matches(delivered.message()):
            self.skipped += 1
            source.ack(delivered.tag)
            return
        exchange, routing_key = self._target_of(delivered)
        confirmed = target.publish(exchange, routing_key, delivered.properties, delivered.body)
        under_way.add(confirmed)

        def settle(confirmed: asyncio.Future[None]) -> None:
            under_way.discard(confirmed)
            problem = None if confirmed.cancelled() else confirmed.exception()
            if problem is None:
                self.moved += 1
                source.ack(delivered.tag)
            elif not failed.done():
                failed.set_exception(problem)
                failed.exception()  # it counts as seen also if the shovel ends before it looks

        confirmed.add_done_callback(settle)

    def _target_of(self, delivered: Delivered) -> tuple[str, str]:
        options = self.options
        if options.to_queue is not None:
            return "", options.to_queue
        exchange = delivered.exchange if options.to_exchange is None else options.to_exchange
        key = delivered.routing_key if options.to_routing_key is None else options.to_routing_key
        return exchange, key

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass


async def _declare_missing(address: str, queue: str | None, arguments: Mapping[str, Any]) -> None:
    """Declare a durable queue unless there is one of this name, whatever its arguments."""
    if queue is None:
        return
    for passive in (True, False):
        async with await AmqpClient.connect(address) as client:
            try:
                await client.call("queue.declare", 0, queue, passive, True, False, False, False, arguments)  # fmt: skip
            except PeerClosed as problem:
                if passive and problem.code == NOT_FOUND:
                    continue
                raise
            return

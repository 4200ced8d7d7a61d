"""An exchange of a running broker, Headgate or RabbitMQ: the driver publishes a batch, and waits until all of it is confirmed.

At least once: a batch that Spark runs again, because the driver died or another place of the pipeline failed, is
published again, under the same message ids. A message that no queue of the broker takes fails the batch.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.columns import decode_messages
from headgate.errors import HeadgateError, SparkError
from headgate.message import Message
from headgate.pipelines import ExchangePlace
from headgate.spark.sink.destination import BatchMark, Owner
from headgate.spark.sink.queue import read_batches
from headgate.spark.sink.staging import (
    StagedPart,
    delete_files,
    delete_folder,
    delete_orphans,
    make_folder,
)
from headgate.streams.write import STAGED_SUFFIX

if TYPE_CHECKING:
    from headgate.amqp import AmqpClient

WINDOW: Final = 2_000  # messages that are published before their confirms are waited for
_DIGEST_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class ExchangeDestination:
    """The exchange of that name, which must exist. The topic of a message is its routing key."""

    url: str
    exchange: str
    owner: Owner

    @property
    def staging(self) -> str:
        return str(Path(self.owner.scratch) / self.owner.name)

    def check(self) -> None:
        self._run(())

    def open(self) -> None:
        make_folder(self.staging)

    def prepare(self, staged: StagedPart) -> tuple[StagedPart, ...]:
        return (staged,)

    def commit(self, mark: BatchMark, staged: Sequence[StagedPart]) -> None:
        if not staged:
            return
        self._run(with_ids(mark, _read_messages(staged)))
        delete_files(staged)

    def _run(self, messages: Iterator[tuple[str, Message]] | tuple[()]) -> None:
        try:
            asyncio.run(self._publish(messages))
        except (HeadgateError, TimeoutError) as problem:
            shown = ExchangePlace(self.url, self.exchange).shown
            raise SparkError(f"{shown}: {problem or 'no answer in time'}") from problem

    async def _publish(self, messages: Iterator[tuple[str, Message]] | tuple[()]) -> None:
        from headgate.amqp import AmqpClient, encode_for_publish

        async with await AmqpClient.connect(self.url) as client:
            await _require_exchange(client, self.exchange)
            waiting: list[asyncio.Future[None]] = []
            for id, message in messages:
                properties = encode_for_publish(message, id)
                waiting.append(
                    client.publish(self.exchange, message.topic, properties, message.payload)
                )
                if len(waiting) >= WINDOW:
                    await client.drain()
                    await asyncio.gather(*waiting)
                    waiting = []
            await asyncio.gather(*waiting)

    def discard(self, staged: Sequence[StagedPart]) -> None:
        delete_files(staged)

    def collect_orphans(self) -> None:
        delete_orphans(self.staging, (), STAGED_SUFFIX)

    def leave(self) -> None:
        delete_folder(self.staging)


async def _require_exchange(client: AmqpClient, name: str) -> None:
    passive = True
    await client.call(
        "exchange.declare", 0, name, "direct", passive, False, False, False, False, {}
    )


def _read_messages(staged: Sequence[StagedPart]) -> Iterator[Message]:
    for batch in read_batches(staged):
        yield from decode_messages(batch)


def with_ids(mark: BatchMark, messages: Iterator[Message]) -> Iterator[tuple[str, Message]]:
    """Give each message an id that is the same whenever the batch is repeated, in whatever order its files come then."""
    seen: Counter[str] = Counter()
    for message in messages:
        digest = _digest(message)
        seen[digest] += 1
        yield f"{mark.query}-{mark.batch}-{digest}-{seen[digest]}", message


def _digest(message: Message) -> str:
    """Return a digest of topic, headers, key, priority and payload; the timestamp may be the time of reading."""
    facts = (
        message.topic,
        sorted(message.headers.items(), key=repr),
        message.key,
        message.priority,
    )
    found = hashlib.blake2b(repr(facts).encode(), digest_size=_DIGEST_BYTES)
    found.update(message.payload)
    return found.hexdigest()

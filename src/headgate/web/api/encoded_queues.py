"""Rows of the list of queues, each encoded once and kept until something happens to its queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from headgate.broker import Broker, BrokerQueue
from headgate.insights import queue_facts_of
from headgate.web.api.listing import slices
from headgate.web.api.shapes import JsonObject, queue_row
from headgate.web.endpoints import encode_json


class EncodedQueues:
    """Encoded rows by queue."""

    def __init__(self, broker: Broker) -> None:
        self._rows: dict[BrokerQueue, bytes] = {}
        broker.statistics.watchers.append(self._changed)

    def _changed(self, queues: set[BrokerQueue]) -> None:
        if self._rows:
            for queue in queues:
                self._rows.pop(queue, None)

    def clear(self) -> None:
        """Forget all rows, because something that all depend on has changed."""
        self._rows.clear()

    async def encode(self, queues: Sequence[BrokerQueue], node: str) -> bytes:
        """The rows of some queues as a JSON array, made in slices so that other clients have their turn."""
        parts: list[bytes] = []
        for some in slices(queues):
            made = 0
            for queue in some:
                row = self._rows.get(queue)
                if row is None:
                    row = self._rows[queue] = encode_json(queue_row(queue_facts_of(queue), node))
                    made += 1
                parts.append(row)
            if made:
                await asyncio.sleep(0)
        return b"[%s]" % b",".join(parts)


def frame_page(page: JsonObject, items: bytes) -> bytes:
    """A page as JSON whose items are encoded already."""
    outer: dict[str, Any] = {key: value for key, value in page.items() if key != "items"}
    return encode_json(outer)[:-1] + b',"items":' + items + b"}"

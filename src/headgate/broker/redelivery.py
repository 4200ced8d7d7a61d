"""Redelivery in quorum queues: the limit of deliveries, and the delay before a message is delivered again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.broker.message import QueueEntry
from headgate.broker.records import make_record

if TYPE_CHECKING:
    from headgate.broker.queue import ClassicQueue

WAITING: Final = "waiting"  # the kind of definitions that say until when a message waits


class QuorumRedelivery:
    """Counts the redeliveries of the entries of one queue, and delays them."""

    def __init__(self, queue: ClassicQueue) -> None:
        self._queue = queue
        self._broker = queue.vhost.broker

    def accepts(self, entry: QueueEntry, failed: bool) -> bool:
        """Whether an entry is ready again at once; otherwise it was discarded, or waits for its delay."""
        if (failed or self._broker.counts_all_returns) and not self._count(entry):
            return False
        retry = self._queue.definition.retry
        delay = 0 if retry is None else retry.delay_ms(entry.deliveries, failed)
        if delay:
            self._hold(entry, self._broker.now() + delay)
        return not delay

    def _hold(self, entry: QueueEntry, due: int) -> None:
        """Keep an entry until it is due, also across a restart."""
        queue, define = self._queue, self._broker.store.define
        key = "\0".join((queue.vhost.name, queue.name, f"{entry.lane}", f"{entry.position}"))
        queue.waiting += 1
        if entry.stored:
            define(WAITING, key, b"%d" % due)

        def release() -> None:
            if entry.stored:
                define(WAITING, key, None)
            queue.give_back_late(entry)

        self._broker.call_at(due, release)

    def hold_again(self, level: int, position: int, due: int) -> bool:
        """Take an entry that waited before a restart out of its lane, until it is due; False if it is not there."""
        for lane in self._queue.lanes:
            if lane.priority != level:
                continue
            rows = lane.read_gap((position,)) if lane.in_gap(position) else lane.head
            entry = next((one for one in rows if one.position == position), None)
            if entry is not None:
                lane.take_out(entry)
                entry.redelivered = True
                self._queue.ready_bytes -= entry.message.body_size
                self._hold(entry, due)
                return True
        return False

    def _count(self, entry: QueueEntry) -> bool:
        """Count a redelivery; False, and the entry is discarded, if that exceeds the delivery limit."""
        entry.deliveries += 1
        limit = self._queue.definition.delivery_limit
        if limit is not None and entry.deliveries > limit:
            self._queue.discard(entry, "delivery_limit")
            return False
        if entry.stored:
            lane = next(one for one in self._queue.lanes if one.priority == entry.lane)
            head, body = entry.message.parts()
            record = make_record(entry, head, b"" if entry.body_id else body)
            self._broker.store.replace(lane.number, entry.position, record, entry.body_id)
        return True

"""Messages that exchanges of type x-delayed-message hold back: all of them in the store, only the next ones in memory.

window     the messages that fall due first, by (due, number)      complete up to `horizon`
store      all of them; those behind `horizon` are nowhere else

A message leaves the window when it is due. When a page has left, the next page of the store joins the window; that is read after
a commit, and what is added until then stays in the window, so that no page can miss it. Pages are small and the window is large:
reading one takes a few milliseconds, and a commit that takes long does not empty the window.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from math import isnan
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.clock import now_us

if TYPE_CHECKING:
    from headgate.broker.broker import Broker
    from headgate.broker.message import BrokerMessage
    from headgate.broker.vhost import VirtualHost

DELAY_HEADER: Final = "x-delay"
WINDOW: Final = 8_192  # messages, and their bytes, that are in memory
WINDOW_BYTES: Final = 8 << 20
PAGE: Final = 1_024  # messages, and their bytes, that are read at once
PAGE_BYTES: Final = 1 << 20
TURN: Final = 256  # messages that are published in one turn of the broker
MOST_MS: Final = 100 * 365 * 86_400_000  # a longer delay is cut to a hundred years
_END: Final = (1 << 62, 0)  # a horizon behind everything


class Delayed(NamedTuple):
    """A message in the window, as it is stored; `number` keeps the order of arrival among those due at one time."""

    due: int
    number: int
    record: bytes


def _place(delayed: Delayed) -> tuple[int, int]:
    return delayed[:2]


class DelayedMessages:
    """The delayed messages of all virtual hosts."""

    def __init__(self, broker: Broker, stored: int) -> None:
        self._broker = broker
        self.count = stored
        self.published = self.late_ms = 0  # how many were published, and how late all together
        # Above the numbers of earlier runs: no run takes a million of them in a second.
        self._next_number = now_us()
        self._window: list[Delayed] = []
        self._bytes = 0
        self._horizon = _END
        self._is_paging = False
        self._armed: int | None = None
        if stored:
            self._horizon = (-1, 0)
            self._read_page()

    def add(self, vhost: VirtualHost, message: BrokerMessage, delay_ms: int) -> None:
        """Hold a message back; it is safe after the next commit."""
        record = make_delayed_record(vhost.name, message)
        found = Delayed(self._broker.now() + delay_ms, self._next_number, record)
        self._next_number += 1
        self.count += 1
        self._broker.store.delay(found.due, found.number, record)
        if self._is_paging or found[:2] <= self._horizon:
            insort(self._window, found)
            self._bytes += len(record)
            self._cut()
            self._arm()

    def _cut(self) -> None:
        """Drop the end of a window that has become too large; the store still has it."""
        if len(self._window) <= 2 * WINDOW and self._bytes <= 2 * WINDOW_BYTES:
            return
        if self._is_paging:
            return
        while len(self._window) > 1 and (len(self._window) > WINDOW or self._bytes > WINDOW_BYTES):
            self._bytes -= len(self._window.pop().record)
        self._horizon = self._window[-1][:2]

    def _arm(self) -> None:
        """Set the timer for the next message that falls due."""
        if not self._window:
            return
        due = self._window[0].due
        if self._armed is None or due < self._armed:
            self._armed = due
            self._broker.call_at(due, lambda: self._due(due))

    def _due(self, armed: int) -> None:
        if self._armed == armed:
            self._armed = None
        self._publish()
        self._ask_for_page()
        self._arm()

    def _publish(self) -> None:
        """Publish the messages that are due, at most as many as fit into one turn."""
        now, window = self._broker.now(), self._window
        taken = 0
        for found in window[:TURN]:
            if found.due > now or found[:2] > self._horizon:
                break
            taken += 1
            self.late_ms += now - found.due
            self._bytes -= len(found.record)
            self._broker.store.delay(found.due, found.number, None)
            publish_delayed(self._broker, found.record)
        del window[:taken]
        self.count -= taken
        self.published += taken

    def _ask_for_page(self) -> None:
        """Have the next page read after a commit, if it fits into the window and there is one."""
        is_full = len(self._window) > WINDOW - PAGE or self._bytes > WINDOW_BYTES - PAGE_BYTES
        if (is_full and self._window) or self._is_paging or self._horizon == _END:
            return
        self._is_paging = True
        self._broker.store.commit(self._read_page)

    def _read_page(self) -> None:
        """Read the next messages of the store into the window."""
        self._is_paging = False
        window = self._window
        rows = self._broker.store.page_delayed(self._horizon, PAGE, PAGE_BYTES)
        behind = bisect_right(window, self._horizon, key=_place)
        # What was added while the page was asked for may be in it, or lie behind its end: then another page brings it.
        self._horizon = rows[-1][:2] if rows else _END
        found = {row[:2]: Delayed(*row) for row in rows}
        found |= {new[:2]: new for new in window[behind:] if new[:2] <= self._horizon}
        self._bytes += sum(len(one.record) for one in found.values())
        self._bytes -= sum(len(one.record) for one in window[behind:])
        window[behind:] = sorted(found.values())
        self._cut()
        self._ask_for_page()
        self._arm()


def delay_of(message: BrokerMessage) -> int:
    """The milliseconds for which a message asks to be held back; 0: not at all."""
    delay = message.headers.get(DELAY_HEADER)
    if isinstance(delay, bool) or not isinstance(delay, int | float) or isnan(delay):
        return 0
    return int(min(delay, MOST_MS)) if delay > 0 else 0


def make_delayed_record(vhost: str, message: BrokerMessage) -> bytes:
    """Encode a message for the store: virtual host and head, each behind its length, then the body."""
    name = vhost.encode()
    head, body = message.parts()
    return b"".join((len(name).to_bytes(2, "big"), name, len(head).to_bytes(4, "big"), head, body))


def publish_delayed(broker: Broker, record: bytes) -> None:
    """Route a message that is due; its virtual host or exchange may have been deleted meanwhile."""
    head_at = 2 + int.from_bytes(record[:2], "big") + 4
    body_at = head_at + int.from_bytes(record[head_at - 4 : head_at], "big")
    vhost = broker.vhosts.get(record[2 : head_at - 4].decode())
    if vhost is not None:
        message = broker.codec.decode(record[head_at:body_at], record[body_at:])
        changed: dict[str, Any] = {DELAY_HEADER: -delay_of(message)}  # as RabbitMQ's plugin says it
        vhost.publish_due(message.with_headers(changed))

"""Options of a queue or a publication beyond plain delivery: a rate limit, a time to live, uniqueness, a result.

rate limit   a token bucket: up to `count` messages at once, and as many within each period on average
ttl          a message that was not claimed within it is deleted, at the beginning of the next claim on its queue
unique       while a message with that key is pending (not acked, not dead), another is not published
result       what the handler returned is kept for a time; the message carries RESULT_ADDRESS as its reply_to
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from headgate.errors import QueueOptionsError
from headgate.message import Message
from headgate.queues.arguments import MOST, RESULT_ADDRESS, microseconds
from headgate.queues.engine import JobResult, RateLimit, State

LIMITED: Final = 1  # bits of QueueInfo.policies
EXPIRING: Final = 2


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket at some time: the limit, and when it will be full again if nothing is taken."""

    limit: RateLimit
    full_at: int
    now: int

    @property
    def _token_us(self) -> int:
        return max(self.limit.period_us // self.limit.count, 1)

    @property
    def tokens(self) -> int:
        """How many messages may be claimed now."""
        missing_us = max(self.full_at - self.now, 0)
        return max((self._token_us * self.limit.count - missing_us) // self._token_us, 0)

    @property
    def wait_us(self) -> int:
        """How long until a message may be claimed."""
        return max(self.full_at - self.now - self._token_us * (self.limit.count - 1), 0)

    def take(self, count: int) -> int:
        """Return when the bucket will be full again after that many messages were claimed."""
        return max(self.full_at, self.now) + count * self._token_us


def rate_limit(count: int | None, per: timedelta) -> RateLimit | None:
    """Return the limit; refuse an invalid one. A count of None is no limit."""
    if count is None:
        return None
    period_us = microseconds("per", per)
    if type(count) is not int or not 1 <= count <= MOST or not period_us:
        raise QueueOptionsError(
            f"a rate is a number of messages from 1 on per timedelta that is not 0, not {count!r} per {per!r}"
        )
    return RateLimit(count, period_us)


def wants_result(message: Message) -> bool:
    """Whether the publisher of the message asked for what the handler returns."""
    return bool(message.properties) and message.reply_to == RESULT_ADDRESS


def encode_result(value: object) -> str:
    """Return what a handler returned as JSON; QueueOptionsError if JSON cannot express it."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        raise QueueOptionsError(f"a result must be JSON: {problem}; return other values") from None


def decode_result(
    value: str | None, is_done: bool, state: int | None, reason: str | None
) -> JobResult:
    """Return the result of a message from the stored value, and from the state and reason of its delivery.

    The state is None if the delivery is gone.
    """
    if is_done:
        decoded: Any = None if value is None else json.loads(value)
        return JobResult("done", decoded)
    if state is None:
        return JobResult("gone")
    if state == State.DEAD:
        return JobResult("failed", None, reason)
    return JobResult("pending", None, reason)

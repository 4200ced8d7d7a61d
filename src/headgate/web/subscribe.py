"""Messages of a stream as server-sent events: those that match a filter, as they are published, resumed by offset."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from headgate.columns import Record
from headgate.filters import as_filter
from headgate.message import OPAQUE, Message
from headgate.streams import AsyncStream
from headgate.streams.read import Start, parse_start
from headgate.web.pages.visit import PageTable, Visit
from headgate.web.problems import HttpProblem

pages: Final = PageTable()

# After this time without a message, a comment keeps proxies from closing the connection.
IDLE_S: Final = 5.0
MOST: Final = 100
_open = 0


@pages.get("/api/headgate/subscribe")
async def subscribe(visit: Visit) -> Response:
    """Answer a subscription on the pages of an embedded application; a broker's is in `web.api.messages`."""
    path = visit.site.stream_path(visit.ask("stream"))
    headers = visit.request.headers
    return stream_messages(path, visit.request.query_params, headers)


def stream_messages(
    path: Path,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    is_allowed: Callable[[], bool] = lambda: True,
) -> StreamingResponse:
    """Messages that match `filter`, from `from` on (by default the next one), or behind the last event that was seen.

    They end when the client may not read them any more, as `is_allowed` says.
    """
    if _open >= MOST:
        raise HttpProblem(503, f"{MOST} clients subscribe already")
    text = query.get("filter") or None
    if text is not None:
        as_filter(text)  # refuse a bad one now
    start = parse_start(query.get("from") or "next")
    seen = headers.get("last-event-id", "")
    if seen.isascii() and seen.isdigit() and len(seen) < 19:
        start = int(seen) + 1
    return StreamingResponse(_events(path, text, start, is_allowed), media_type="text/event-stream")


async def _events(
    path: Path, text: str | None, start: Start, is_allowed: Callable[[], bool]
) -> AsyncIterator[str]:
    global _open
    _open += 1
    try:
        async with await AsyncStream.open(path) as stream:
            consumer = stream.consume(text, start=start, follow=True, on_lost="first")
            async with consumer:
                yield "retry: 2000\n\n"
                following = asyncio.ensure_future(consumer.next_record())
                try:
                    while True:
                        done, _ = await asyncio.wait([following], timeout=IDLE_S)
                        if not is_allowed():
                            return
                        if not done:
                            yield ": still here\n\n"
                            continue
                        yield _event(following.result())
                        following = asyncio.ensure_future(consumer.next_record())
                finally:
                    following.cancel()
    finally:
        _open -= 1


def _event(record: Record) -> str:
    return f"id: {record.offset}\ndata: {json.dumps(message_json(record))}\n\n"


def message_json(record: Record) -> dict[str, Any]:
    """A message as JSON; a payload that is not UTF-8 is base64."""
    message = record.message
    shown: dict[str, Any] = {
        "offset": record.offset,
        "topic": message.topic,
        "timestamp": message.timestamp,
        "headers": {n: None if v is OPAQUE else v for n, v in message.headers.items()},
    }
    return shown | _payload_json(message)


def _payload_json(message: Message) -> dict[str, str]:
    try:
        return {"payload": message.payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(message.payload).decode()}

"""One message of a stream or queue, and its body to download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from headgate.insights import Sighting, message_at, message_in_broker_queue, message_in_queue
from headgate.web.pages.rendering import query_text
from headgate.web.pages.site import Place, parse_place
from headgate.web.pages.visit import ABOVE, PageTable, Visit
from headgate.web.problems import HttpProblem

pages: Final = PageTable()

SHOWN: Final = 64 << 10  # bytes of a body
_HEX_SHOWN: Final = 4 << 10
_PATHS: Final = {"queue": "/queue", "stream": "/stream", "sql": "/sql-queue"}


@pages.get("/message")
async def show_message(visit: Visit) -> Response:
    place, seen = await _find(visit)
    shown_as = visit.ask("as") or ("json" if _as_json(seen.message.payload) else "text")
    body, cut = _body_text(seen.message.payload, shown_as)
    return visit.render(
        "message.html",
        of=place.of,
        of_name=place.queue_name if place.kind == "queue" else place.name,
        back=_path_back(place),
        above=ABOVE[_PATHS[place.kind]],
        seen=seen,
        shown_as=shown_as,
        body=body,
        cut=cut,
    )


@pages.get("/download")
async def download(visit: Visit) -> Response:
    """Send the body as a download: a browser must not show it as a page of this site."""
    _, seen = await _find(visit)
    named = f'attachment; filename="message-{seen.position}.bin"'
    return Response(
        bytes(seen.message.payload),
        media_type="application/octet-stream",
        headers={"Content-Disposition": named},
    )


def _path_back(place: Place) -> str:
    if place.kind == "queue":
        return _PATHS["queue"] + query_text({"vhost": place.vhost, "name": place.queue_name})
    return _PATHS[place.kind] + query_text({"name": place.name})


async def _find(visit: Visit) -> tuple[Place, Sighting]:
    place, at = parse_place(visit.ask("of")), visit.ask_number("at")
    if at is None:
        raise HttpProblem(400, "give the position of a message: at=0")
    if place.kind != "queue":
        visit.check_stored()
        return place, await run_in_threadpool(_find_stored, visit, place, at)
    queue = visit.find_queue(place.vhost, place.queue_name)
    if not visit.may_read(queue):
        raise HttpProblem(403, "you may not read the messages of this queue")
    directory: Path | None = getattr(queue, "directory", None)
    if directory is not None:
        return place, await run_in_threadpool(message_at, directory, at)
    return place, message_in_broker_queue(queue, at)


def _find_stored(visit: Visit, place: Place, at: int) -> Sighting:
    if place.kind == "stream":
        return message_at(visit.site.stream_path(place.name), at)
    with visit.site.open_database() as database:
        return message_in_queue(database.find(place.name), at)


def _body_text(payload: bytes, shown_as: str) -> tuple[str, bool]:
    """The body as text, JSON or hexadecimal digits, and whether it was cut."""
    if shown_as == "hex":
        return _hex_text(payload[:_HEX_SHOWN]), len(payload) > _HEX_SHOWN
    parsed = _as_json(payload) if shown_as == "json" else None
    text = payload[:SHOWN].decode("utf-8", "replace") if parsed is None else parsed
    return text, len(payload) > SHOWN


def _as_json(payload: bytes) -> str | None:
    if payload[:1] not in (b"{", b"[") or len(payload) > SHOWN:
        return None
    try:
        return json.dumps(json.loads(payload), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _hex_text(payload: bytes) -> str:
    lines = []
    for at in range(0, len(payload), 16):
        part = payload[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {text}")
    return "\n".join(lines)

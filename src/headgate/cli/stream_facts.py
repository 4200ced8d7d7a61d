"""What is known of a stream without reading its messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headgate.cli.messages import time_text
from headgate.streams import Stream, segment_files
from headgate.streams.cold import list_manifests, read_note


def summary(path: Path, base: Path) -> dict[str, Any]:
    """How much is in it, and in which form; its name is the path from `base`."""
    with Stream.open(path) as stream:
        files = segment_files(path)
        first, following = stream.first_offset, stream.next_offset
        return {
            "stream": str(path.relative_to(base)),
            "messages": following - first,
            "first_offset": first,
            "next_offset": following,
            "segments": len(files),
            "sealed": sum(file.sealed and not file.cold for file in files),
            "cold": sum(file.cold for file in files),
            "bytes": bytes_in(path),
            "indexed": list(stream.options.indexed),
        }


def bytes_in(path: Path) -> int:
    """What its files take, and those of its cold tier wherever they are."""
    cold = sum(read_note(manifest).nbytes for manifest in list_manifests(path))
    return cold + sum(file.stat().st_size for file in path.iterdir() if file.is_file())


def facts(path: Path) -> dict[str, Any]:
    """Its summary, its options, and where its consumers stand."""
    with Stream.open(path) as stream:
        options = {
            name: getattr(stream.options, name) for name in stream.options.__dataclass_fields__
        }
        cursors = _cursors(stream)
    return {**summary(path, path.parent), "options": options, "cursors": cursors}


def _cursors(stream: Stream) -> list[dict[str, Any]]:
    following = stream.next_offset
    return [
        {
            "name": cursor.name,
            "position": cursor.position,
            "lag": max(following - cursor.position, 0),
            "updated": time_text(cursor.updated),
        }
        for cursor in stream.cursors().list()
    ]

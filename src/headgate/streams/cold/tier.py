"""The files of the cold tier among the others: what one step leaves behind, the next one clears away.

    add      Parquet file complete → its final name → manifest renamed into place → what it covers is removed
    drop     manifest renamed to `….cold.dropped` → Parquet file deleted → that name removed

A crash after any arrow loses nothing and shows nothing twice. What is covered, and what was dropped half, is finished
by the next holder of the writer's lock; a Parquet file that nothing refers to, by the next compaction.
"""

from __future__ import annotations

import logging
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from headgate.errors import StreamCorrupt, StreamError
from headgate.files import remove_files, sync_directory
from headgate.streams.cold.location import cold_file
from headgate.streams.cold.manifest import read_note
from headgate.streams.format import INDEX_SUFFIX, LOG_SUFFIX, SEALED_SUFFIX, Covered, cold_bounds
from headgate.streams.write.lock import hold_lock

TIER_LOCK: Final = "cold.lock"
COMPACTION_LOCK: Final = "compaction.lock"
DROPPED: Final = ".dropped"

_log = logging.getLogger(__name__)


def changing(directory: Path) -> AbstractContextManager[None]:
    """Held for a moment by whoever adds to the cold tier and whoever drops segments: neither undoes the other."""
    return hold_lock(directory / TIER_LOCK)


def manifests(directory: Path) -> list[Path]:
    """Of every cold segment, oldest first."""
    return sorted(path for path in directory.iterdir() if cold_bounds(path) is not None)


def covered_files(directory: Path) -> list[Path]:
    """Hot and sealed files whose messages are in the cold tier: nobody reads them any more."""
    covered = Covered(manifests(directory))
    return [
        path
        for path in sorted(directory.iterdir())
        if path.suffix in (SEALED_SUFFIX, LOG_SUFFIX, INDEX_SUFFIX)
        and path.stem.isdigit()
        and int(path.stem) in covered
    ]


def remove_covered_files(directory: Path) -> list[Path]:
    """Remove them, and say what they were. Needs the writer's lock."""
    covered = covered_files(directory)
    if covered:
        remove_files(*covered)
    return covered


def tidy(directory: Path) -> list[Path]:
    """Finish what was begun; the covered files that were removed. Needs the writer's lock."""
    covered = remove_covered_files(directory)
    dropped = list(directory.glob(f"*{DROPPED}"))
    if dropped:
        with changing(directory):
            for path in dropped:
                _finish_drop(path)
    return covered


def drop_cold(manifest: Path) -> None:
    """Take a cold segment out of the stream, then delete its data. Needs the writer's lock."""
    dropped = manifest.with_name(manifest.name + DROPPED)
    os.replace(manifest, dropped)
    sync_directory(manifest.parent)
    _finish_drop(dropped)


def _finish_drop(dropped: Path) -> None:
    try:
        cold_file(dropped.parent, read_note(dropped).file).delete()
    except (OSError, StreamError) as problem:
        # The messages are out of the stream; a place that does not answer is asked again later.
        _log.warning("%s: its data cannot be deleted now: %s", dropped, problem)
        if not isinstance(problem, StreamCorrupt):
            return
    remove_files(dropped)


def delete_data(directory: Path) -> None:
    """Delete the Parquet files of a stream that is about to be deleted."""
    for manifest in manifests(directory):
        drop_cold(manifest)


def cold_bytes(manifest: Path) -> int:
    """Of a cold segment: its manifest, and its data wherever that is."""
    return manifest.stat().st_size + read_note(manifest).nbytes

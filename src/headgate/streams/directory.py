"""The directory of a stream: which one may become a stream, and how a stream is deleted."""

from __future__ import annotations

import shutil
from pathlib import Path

from headgate.errors import StreamExists
from headgate.streams.cold.manifest import delete_all_cold
from headgate.streams.format import INBOX, LOCK_FILE, OPTIONS_FILE
from headgate.streams.record import COPY_SUFFIX


def delete_files(directory: Path) -> None:
    """Delete a stream, or what an interrupted deletion left of it. Needs the writer's lock."""
    delete_all_cold(directory)
    (directory / OPTIONS_FILE).unlink(missing_ok=True)
    shutil.rmtree(directory)


def refuse_foreign(directory: Path) -> None:
    """Refuse a directory that holds other files, or the rest of a deleted stream."""
    ours = {INBOX, LOCK_FILE, OPTIONS_FILE + COPY_SUFFIX}  # what an interrupted `create` leaves
    found = {path.name for path in directory.iterdir() if not path.name.startswith(".")} - ours
    if found and OPTIONS_FILE not in found:
        raise StreamExists(
            f"{directory} is not empty: it holds {min(found)}; choose another directory"
        )


def refuse_existing(directory: Path) -> None:
    """Refuse a directory that is a stream already."""
    if (directory / OPTIONS_FILE).exists():
        raise StreamExists(
            f"there is a stream in {directory} already; open it with Stream.open, or look at it with "
            f"`headgate stream info {directory}`"
        )

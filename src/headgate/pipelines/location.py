"""Where a directory is, however it is spelled: relative, through links, or as a file: URI."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from headgate.errors import SparkOptionsError


def same_place(one: str, other: str) -> bool:
    """Whether two spellings name one place: relative or not, through links, with `file:` or a slash at the end."""
    return one == other or real_place(one) == real_place(other)


def real_place(location: str) -> str:
    """The one spelling of a place, whatever links lead there; of another file system, as it is written."""
    try:
        local = local_path(location)
    except SparkOptionsError:  # what cannot be a path is not the same place as any
        return location
    return location.rstrip("/") if local is None else str(local)


def local_path(location: str) -> Path | None:
    """The place as the one path it has, whatever links lead there; None when it is on some other file system."""
    try:
        parts = urlsplit(location)
        if not parts.scheme:
            return Path(location).resolve()
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            return Path(unquote(parts.path)).resolve()
    except (OSError, ValueError) as problem:  # a NUL, a URL with half an address, links in a ring
        raise SparkOptionsError(f"{location[:200]!r} is no path: {problem}") from None
    return None

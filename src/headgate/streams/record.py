"""A small JSON file that a flipped bit does not lose: it holds its own checksum, and there is a copy beside it.

    {"format": 1, …, "crc32": 305419896}

The checksum goes over the other entries as JSON with sorted keys and without blanks. A file without one is believed:
earlier versions wrote none.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from headgate.checksum import crc32
from headgate.files import replace_file

COPY_SUFFIX: Final = ".copy"
_CHECKSUM: Final = "crc32"

Parsed = TypeVar("Parsed")
Parse = Callable[[dict[str, Any]], Parsed]

_log: Final = logging.getLogger(__name__)


def copy_of(path: Path) -> Path:
    return path.with_name(path.name + COPY_SUFFIX)


def write_record(path: Path, known: Mapping[str, Any]) -> None:
    """Write the file and its copy, each whole or not at all. The file comes last: with it, the record is there."""
    whole = {**known, _CHECKSUM: _checksum(known)}
    content = json.dumps(whole, indent=2, ensure_ascii=False).encode()
    replace_file(copy_of(path), content)
    replace_file(path, content)


def read_record(path: Path, parse: Parse[Parsed]) -> Parsed:
    """What the file says, or if it is damaged its copy; OSError or ValueError when neither can be used."""
    found = _read(path, parse)
    if not isinstance(found, ValueError):
        return found
    with suppress(OSError):
        copied = _read(copy_of(path), parse)
        if not isinstance(copied, ValueError):
            _log.warning("%s: %s; %s is used", path, found, copy_of(path).name)
            return copied
    raise found


def damaged_records(path: Path, parse: Parse[Any]) -> dict[Path, str]:
    """What is wrong with the file and with its copy, for those that cannot be used; a copy need not be there."""
    found = {}
    for file in (path, copy_of(path)):
        with suppress(FileNotFoundError):
            problem = _read(file, parse)
            if isinstance(problem, ValueError):
                found[file] = str(problem)
    return found


def mend_record(path: Path, parse: Parse[Any]) -> None:
    """Write a damaged file, or a copy that is damaged or missing, anew from the other one. Needs the lock."""
    if copy_of(path).exists() and not damaged_records(path, parse):
        return
    with suppress(
        OSError, ValueError
    ):  # there is no record, neither of the two is sound, or the disk is full
        known = read_record(path, lambda known: (parse(dict(known)), known)[1])
        write_record(path, known)


def _read(path: Path, parse: Parse[Parsed]) -> Parsed | ValueError:
    content = path.read_bytes()
    try:
        known = json.loads(content)
        checksum = known.pop(_CHECKSUM, None)
        if checksum not in (None, _checksum(known)):
            raise ValueError("it fails its checksum")
        return parse(known)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        return ValueError(str(problem))


def _checksum(known: Mapping[str, Any]) -> int:
    return crc32(json.dumps(known, sort_keys=True, separators=(",", ":")).encode())

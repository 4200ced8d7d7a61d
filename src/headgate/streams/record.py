"""A record: a small JSON file with its own checksum and a copy beside it, so that a flipped bit does not lose it.

    {"format": 1, …, "crc32": 305419896}

The checksum covers the other values as JSON with sorted keys and without blanks. A file without one is accepted:
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
    """Write the copy and then the file, each as a whole or not at all."""
    whole = {**known, _CHECKSUM: _checksum(known)}
    content = json.dumps(whole, indent=2, ensure_ascii=False).encode()
    replace_file(copy_of(path), content)
    replace_file(path, content)


def read_record(path: Path, parse: Parse[Parsed]) -> Parsed:
    """Read and parse a record, or its copy when it is damaged.

    Raises ValueError when neither can be used, OSError when the record cannot be opened.
    """
    found = _read(path, parse)
    if not isinstance(found, ValueError):
        return found
    with suppress(OSError):
        copied = _read(copy_of(path), parse)
        if not isinstance(copied, ValueError):
            _log.warning("%s is damaged: %s; reading %s instead", path, found, copy_of(path).name)
            return copied
    raise found


def damaged_records(path: Path, parse: Parse[Any]) -> dict[Path, str]:
    """Return, by path, what is wrong with the record and with its copy; a sound or missing file is not listed."""
    found = {}
    for file in (path, copy_of(path)):
        with suppress(FileNotFoundError):
            problem = _read(file, parse)
            if isinstance(problem, ValueError):
                found[file] = str(problem)
    return found


def mend_record(path: Path, parse: Parse[Any]) -> None:
    """Restore a damaged record, or a damaged or missing copy, from the other file. Needs the writer's lock."""
    if copy_of(path).exists() and not damaged_records(path, parse):
        return
    # There may be no record, both files may be damaged, or the disk may be full.
    with suppress(OSError, ValueError):
        known = read_record(path, lambda known: (parse(dict(known)), known)[1])
        write_record(path, known)


def _read(path: Path, parse: Parse[Parsed]) -> Parsed | ValueError:
    content = path.read_bytes()
    try:
        known = json.loads(content)
        checksum = known.pop(_CHECKSUM, None)
        if checksum not in (None, _checksum(known)):
            raise ValueError("its checksum is wrong")
        return parse(known)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        return ValueError(str(problem))


def _checksum(known: Mapping[str, Any]) -> int:
    return crc32(json.dumps(known, sort_keys=True, separators=(",", ":")).encode())

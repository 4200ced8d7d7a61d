"""How the columns of a stream are named in Parquet: without dots, which other engines take for nested fields.

    h.s.region   h_s_region          h.i.x-total   h_i_x$2dtotal          topic, offset, …   as they are

Every byte of a name that is no ASCII letter, digit or underscore is written as `$` and two hexadecimal digits.
"""

from __future__ import annotations

import re
from typing import Final

_TYPED: Final = re.compile(r"([hp])\.([sifbo])\.(.+)", re.DOTALL)
_TYPED_IN_PARQUET: Final = re.compile(r"([hp])_([sifbo])_(.+)")
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def parquet_name(column: str) -> str:
    """The Parquet column that holds this column of a stream."""
    found = _TYPED.fullmatch(column)
    return f"{found[1]}_{found[2]}_{_escaped(found[3])}" if found else column


def stream_name(parquet: str) -> str:
    """The column of a stream that this Parquet column holds."""
    found = _TYPED_IN_PARQUET.fullmatch(parquet)
    return f"{found[1]}.{found[2]}.{_unescaped(found[3])}" if found else parquet


def _escaped(name: str) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"${byte:02x}" for byte in name.encode())


def _unescaped(name: str) -> str:
    first, *rest = name.encode().split(b"$")
    return (first + b"".join(bytes([int(part[:2], 16)]) + part[2:] for part in rest)).decode()

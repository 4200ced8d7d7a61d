"""JSON payloads -> a struct column, decoded where messages are read.

A batch is parsed by Arrow in one go. A payload that is no JSON object, or does not fit the types, is null: then the
batch is halved until the payload is alone. So that a payload with half an object, or with two, cannot shift its neighbours,
each payload is wrapped with a number under a random name, and the numbers of the parsed rows are compared.
"""

from __future__ import annotations

import io
from secrets import token_hex
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from headgate.errors import SparkSchemaError
from headgate.spark.schema import DECODED

_LEAVES: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
)


def check_json_type(kind: pa.DataType) -> None:
    """Refuse a type that payloads cannot be decoded into."""
    if pa.types.is_struct(kind):
        for field in kind:
            check_json_type(field.type)
    elif pa.types.is_list(kind):
        check_json_type(kind.value_type)
    elif not any(is_leaf(kind) for is_leaf in _LEAVES):
        raise SparkSchemaError(
            DECODED, f"JSON cannot be decoded into {kind}; take string, and cast it in the query"
        )


def decode_json(payloads: pa.Array, kind: pa.StructType) -> pa.Array:
    """Decode the payloads to structs of this type; null where a payload is missing or does not fit."""
    parts = _decode([value or b"" for value in payloads.to_pylist()], kind)
    return pa.concat_arrays(parts) if parts else pa.array([], kind)


def _decode(payloads: list[bytes], kind: pa.StructType) -> list[pa.Array]:
    if not payloads:
        return []
    try:
        return [_parse(payloads, kind)]
    except (pa.ArrowException, UnicodeDecodeError):
        if len(payloads) == 1:
            return [pa.nulls(1, kind)]
    half = len(payloads) // 2
    return [*_decode(payloads[:half], kind), *_decode(payloads[half:], kind)]


def _object_or_null(payload: bytes) -> bytes:
    """Return a payload that may be a JSON object, else null: most others are recognized without a parser."""
    text = payload.strip()
    return text if text[:1] == b"{" and text[-1:] == b"}" else b"null"


def _parse(payloads: list[bytes], kind: pa.StructType) -> pa.Array:
    """Parse all payloads; raises when one is no JSON object of this type."""
    number, value = f"n{token_hex(16)}", f"v{token_hex(16)}"
    lines = [
        b'{"%b":%d,"%b":%b}' % (number.encode(), at, value.encode(), _object_or_null(payload))
        for at, payload in enumerate(payloads)
    ]
    text = b"\n".join(lines)
    text.decode()  # Arrow does not check that it is UTF-8
    table = arrow_json.read_json(
        io.BytesIO(text),
        arrow_json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1 << 10)),
        arrow_json.ParseOptions(
            pa.schema({number: pa.int64(), value: kind}),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    numbers = table[number].to_numpy()
    if not np.array_equal(numbers, np.arange(len(payloads))):
        raise pa.ArrowInvalid("a payload is not one JSON object")
    return table[value].combine_chunks()

"""The exact facts of a field, from its value in every message: what no index knows, and a verdict is tried with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from headgate.filters.facts import FieldFacts, ValueRange
from headgate.filters.nodes import KIND_OF, KINDS, Kind
from headgate.message import Scalar

_FILLER: Final[dict[Kind, Scalar]] = {"string": "", "int": 0, "float": 0.0, "bool": False}
_DTYPE: Final[dict[Kind, Any]] = {
    "string": object,
    "int": np.int64,
    "float": np.float64,
    "bool": np.bool_,
}


def facts_of_values(values_of_chunks: Sequence[Sequence[object]]) -> FieldFacts:
    """From the field's value (or None) in every message of every chunk."""
    ranges = {kind: _range_of(kind, values_of_chunks) for kind in KINDS}
    opaque = [sum(v is not None and type(v) not in KIND_OF for v in vs) for vs in values_of_chunks]
    return FieldFacts(
        {kind: found for kind, found in ranges.items() if found.count.any()},
        opaque=np.array(opaque, np.int64),
    )


def _range_of(kind: Kind, values_of_chunks: Sequence[Sequence[object]]) -> ValueRange:
    of_kind: list[list[Any]] = [
        [v for v in values if KIND_OF.get(type(v)) == kind] for values in values_of_chunks
    ]
    dtype, filler = _DTYPE[kind], _FILLER[kind]
    return ValueRange(
        np.array([len(values) for values in of_kind], np.int64),
        np.array([min(values, default=filler) for values in of_kind], dtype),
        np.array([max(values, default=filler) for values in of_kind], dtype),
    )

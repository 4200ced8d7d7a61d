"""Results of Spark jobs about a stream, as JSON values: its statistics, and advice on its options."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.spark.jobs import FieldStats, StreamAdvice, StreamStats

PERCENTILES: Final = (0.5, 0.9, 0.99)  # of payload sizes
_TOP_VALUES: Final = 20  # frequent values of a field


def describe_stats(stats: StreamStats) -> dict[str, Any]:
    """A stream's statistics as JSON values."""
    return {
        "messages": stats.messages,
        "bytes": stats.nbytes,
        "payload_bytes": stats.payload_bytes,
        "largest_payload": stats.largest_payload,
        "payload_sizes": {f"p{share * 100:g}": stats.size_below(share) for share in PERCENTILES},
        "first_us": stats.first_us,
        "last_us": stats.last_us,
        "tiers": {name: asdict(tier) for name, tier in stats.tiers.items()},
        "fields": {key: _describe_field(field) for key, field in stats.fields.items()},
    }


def _describe_field(field: FieldStats) -> dict[str, Any]:
    distinct = field.distinct
    return {
        "present": field.present,
        "opaque": field.opaque,
        "distinct": distinct.estimate,
        "distinct_error": distinct.error,
        "kinds": {
            kind: {"present": values.present, "low": values.low, "high": values.high}
            for kind, values in field.kinds.items()
        },
        "top": [{"value": v, "messages": count} for v, count in field.heavy.top(_TOP_VALUES)],
        "top_error": field.heavy.missed,
    }


def describe_advice(advice: StreamAdvice) -> dict[str, Any]:
    """Advice on a stream's options as JSON values, with the commands that follow it."""
    return {
        "stream": advice.path,
        "messages": advice.stats.messages,
        "segments": advice.segments,
        "segments_looked_at": advice.sampled,
        "indexed": list(advice.indexed),
        "filter_size": advice.filter_size,
        "expected_skipped": advice.expected,
        "sealed_space": advice.sealed_space,
        "hot_space": advice.hot_space,
        "filters": [asdict(outlook) for outlook in advice.outlooks],
        "tried": [asdict(tried) for tried in advice.tried],
        "sizes": [asdict(size) for size in advice.sizes],
        "restrictions": [{**asdict(r), "advised": r.advised} for r in advice.restrictions],
        "commands": advice_commands(advice),
    }


def advice_commands(advice: StreamAdvice) -> list[str]:
    """The commands that follow the advice."""
    path = shlex.quote(advice.path)
    indexed = " ".join(f"--indexed {shlex.quote(name)}" for name in advice.indexed or ("",))
    restricted = [
        f"--restrict {shlex.quote(found.header + '=' + ','.join(map(str, found.values)))}"
        for found in advice.restrictions
        if found.advised and all(isinstance(value, str) for value in found.values)
    ]
    change = " ".join([indexed, f"--filter-size {advice.filter_size}", *restricted])
    return [f"headgate stream set {path} {change}", f"headgate stream seal {path} --all"]

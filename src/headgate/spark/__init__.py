"""The data pipeline: Headgate as a source, a sink and a router inside Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.spark.sessions import session

__all__ = ["session"]


def __getattr__(name: str) -> Any:
    """Executors come by here often, and never start a session."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headgate.spark.sessions import session

    return session

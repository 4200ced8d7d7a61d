"""Streams in Polars: `headgate.polars.scan_stream(path)` is a LazyFrame whose predicates are pushed down."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.polars.scan import scan_stream as scan_stream
else:
    __getattr__, __dir__ = front_door(__name__, {"scan": ["scan_stream"]})

__all__ = ["scan_stream"]

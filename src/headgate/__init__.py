"""Headgate: say once what you want, and the filter is pushed as deep as it goes.

The public names are loaded at their first use, so that a Spark executor or a small script carries nothing that it
does not use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    __version__: str
    from headgate.errors import FilterError as FilterError
    from headgate.errors import FilterLimitError as FilterLimitError
    from headgate.errors import FilterSyntaxError as FilterSyntaxError
    from headgate.errors import HeadgateError as HeadgateError
    from headgate.errors import InvalidMessage as InvalidMessage
    from headgate.filters import all_of as all_of
    from headgate.filters import any_of as any_of
    from headgate.filters import as_filter as as_filter
    from headgate.filters import compile_filter as compile_filter
    from headgate.filters import header as header
    from headgate.filters import topic as topic
    from headgate.message import OPAQUE as OPAQUE
    from headgate.message import Message as Message
    from headgate.queues import connect as connect
    from headgate.routing import Topology as Topology
    from headgate.settings import Settings as Settings
    from headgate.streams import Stream as Stream
    from headgate.streams import SuperStream as SuperStream
else:
    _load, __dir__ = front_door(
        __name__,
        {
            "errors": [
                "FilterError",
                "FilterLimitError",
                "FilterSyntaxError",
                "HeadgateError",
                "InvalidMessage",
            ],
            "filters": ["all_of", "any_of", "as_filter", "compile_filter", "header", "topic"],
            "message": ["OPAQUE", "Message"],
            "queues": ["connect"],
            "routing": ["Topology"],
            "settings": ["Settings"],
            "streams": ["Stream", "SuperStream"],
        },
    )

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("headgate")
        return _load(name)


__all__ = [
    "OPAQUE",
    "FilterError",
    "FilterLimitError",
    "FilterSyntaxError",
    "HeadgateError",
    "InvalidMessage",
    "Message",
    "Settings",
    "Stream",
    "SuperStream",
    "Topology",
    "all_of",
    "any_of",
    "as_filter",
    "compile_filter",
    "connect",
    "header",
    "topic",
]

"""The compilers: each module compiles the tree for one engine."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.filters.compile.python import compile_predicate as compile_predicate
    from headgate.filters.compile.verdict import judge as judge
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "python": ["compile_predicate"],
            "verdict": ["judge"],
        },
    )

"""Shovels: messages moved from one broker to another, by `headgate shovel` or inside a broker."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.shovels.dynamic import DynamicShovels as DynamicShovels
    from headgate.shovels.shovel import PREFETCH as PREFETCH
    from headgate.shovels.shovel import Shovel as Shovel
    from headgate.shovels.shovel import ShovelOptions as ShovelOptions
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "dynamic": ["DynamicShovels"],
            "shovel": ["PREFETCH", "Shovel", "ShovelOptions"],
        },
    )

"""How long tests wait for another thread or process."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Final

PATIENCE: Final = 30  # seconds until a thread or process that does nothing counts as broken


def wait_until(holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Poll until it holds."""
    deadline = monotonic() + seconds
    while not holds():
        assert monotonic() < deadline, "it did not hold in time"
        sleep(0.005)

"""Fixtures of the integration tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from headgate.check.engines import CheckEngine


@pytest.fixture(scope="module")
def engine(new_engine: Callable[[], AbstractContextManager[CheckEngine]]) -> Iterator[CheckEngine]:
    """The engine under check, opened once for a module that defines `new_engine`."""
    with new_engine() as opened:
        yield opened

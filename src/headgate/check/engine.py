"""What it takes to be an engine that answers filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headgate.filters import Filter
from headgate.message import Message


class Question(NamedTuple):
    """Does this message match this filter?"""

    filter: Filter
    message: Message


class Engine(Protocol):
    """Answers many questions at once; a context manager when it holds a connection or a session."""

    name: str

    def answer(self, questions: Sequence[Question]) -> list[bool]: ...

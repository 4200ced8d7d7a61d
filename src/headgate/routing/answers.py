"""What an exchange answers: where the message goes, or what is left to ask."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NamedTuple, TypeAlias

from headgate.matching import Checked, Matcher, add_passing, gathered, merged, parts_of
from headgate.message import Message
from headgate.routing.bindings import Target, ToExchange
from headgate.routing.values import Envelope

Routable: TypeAlias = Message | Envelope


class Routed(NamedTuple):
    """Where a message goes: each queue once, through whatever exchanges (`via`) it was reached."""

    queues: Set[str]
    unroutable: bool
    via: tuple[str, ...]


class Pending(NamedTuple):
    """What an exchange knows so far, and what is left to ask."""

    queues: Set[str]
    exchanges: tuple[str, ...] = ()
    gates: tuple[Matcher[Target], ...] = ()
    checked: Checked = ()

    def resolve(self, message: Routable) -> tuple[Set[str], tuple[str, ...]]:
        """The queues and the exchanges this message goes to."""
        if not self.gates and not self.checked:
            return self.queues, self.exchanges
        asked = message if isinstance(message, Message) else message.message
        more: Set[Target] = frozenset()
        if self.checked:
            more = add_passing(more, self.checked, asked)
        for gate in self.gates:
            more = merged(more, gate.find(asked))
        queues, exchanges, _ = told_apart(more)
        return merged(self.queues, queues), (*self.exchanges, *exchanges)


Answer: TypeAlias = Routed | Pending


class Gate:
    """Stands in an index for the bindings of one key that have a filter on top."""

    __slots__ = ("matcher",)

    def __init__(self) -> None:
        self.matcher: Matcher[Target] = Matcher()


def told_apart(members: Set[Any]) -> tuple[Set[str], tuple[str, ...], tuple[Matcher[Target], ...]]:
    """Queues, exchanges and gates."""
    exchanges = tuple(sorted(m.name for m in members if type(m) is ToExchange))
    gates = tuple(m.matcher for m in members if type(m) is Gate)
    if not exchanges and not gates:
        return members, (), ()
    parts = [frozenset(m for m in part if isinstance(m, str)) for part in parts_of(members)]
    return gathered((), parts), exchanges, gates

"""The answers of an exchange: the queues of a message, or those known so far and the conditions still to be tested."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Final, NamedTuple, TypeAlias

from headgate.matching import Matcher, OpenChecks, add_passing, merge, parts_of, unite
from headgate.message import Message
from headgate.routing.bindings import Target, ToExchange
from headgate.routing.values import Envelope

Routable: TypeAlias = Message | Envelope

_QUEUES_ONLY: Final = frozenset((str,))  # the types of members that are all queues


class Routed(NamedTuple):
    """Where a message goes: each queue once, through whatever exchanges (`via`) it was reached."""

    queues: Set[str]
    unroutable: bool
    via: tuple[str, ...]


class Unresolved(NamedTuple):
    """The queues that are certain, and the exchanges, matchers and checks that must still be evaluated."""

    queues: Set[str]
    exchanges: tuple[str, ...] = ()
    gates: tuple[Matcher[Target], ...] = ()
    checks: OpenChecks = ()

    def resolve(self, message: Routable) -> tuple[Set[str], tuple[str, ...]]:
        """The queues and the exchanges this message goes to."""
        certain, exchanges, gates, checks = self
        if not gates and not checks:
            return certain, exchanges
        asked = message if isinstance(message, Message) else message.message
        more: Set[Target] = add_passing(frozenset(), checks, asked) if checks else frozenset()
        for gate in gates:
            found = gate.find(asked)
            more = merge(more, found) if more else found
        queues, further, _ = split_members(more)
        if certain:
            queues = merge(certain, queues)
        return queues, exchanges + further


RouteAnswer: TypeAlias = Routed | Unresolved


class Gate:
    """Stands in an index for the bindings of one key that have a filter on top."""

    __slots__ = ("matcher",)

    def __init__(self) -> None:
        self.matcher: Matcher[Target] = Matcher()


def split_members(
    members: Set[Any],
) -> tuple[Set[str], tuple[str, ...], tuple[Matcher[Target], ...]]:
    """The members of an index by kind: queues, exchanges and gates."""
    if _QUEUES_ONLY.issuperset(map(type, members)):
        return members, (), ()
    exchanges = tuple(sorted(m.name for m in members if type(m) is ToExchange))
    gates = tuple(m.matcher for m in members if type(m) is Gate)
    parts = [frozenset(m for m in part if isinstance(m, str)) for part in parts_of(members)]
    return unite((), parts), exchanges, gates

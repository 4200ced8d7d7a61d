"""The answers of an exchange: the queues of a message, or those known so far and the conditions still to be tested."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NamedTuple, TypeAlias

from headgate.matching import Matcher, OpenChecks, add_passing, merge, parts_of, unite
from headgate.message import Message
from headgate.routing.bindings import Target, ToExchange
from headgate.routing.values import Envelope

Routable: TypeAlias = Message | Envelope


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
        if not self.gates and not self.checks:
            return self.queues, self.exchanges
        asked = message if isinstance(message, Message) else message.message
        more: Set[Target] = frozenset()
        if self.checks:
            more = add_passing(more, self.checks, asked)
        for gate in self.gates:
            found = gate.find(asked)
            more = merge(more, found) if more else found
        queues, exchanges, _ = split_members(more)
        if self.queues:
            queues = merge(self.queues, queues)
        return queues, self.exchanges + exchanges


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
    if len(members) == 1 and type(next(iter(members))) is str:
        return members, (), ()
    exchanges = tuple(sorted(m.name for m in members if type(m) is ToExchange))
    gates = tuple(m.matcher for m in members if type(m) is Gate)
    if not exchanges and not gates:
        return members, (), ()
    parts = [frozenset(m for m in part if isinstance(m, str)) for part in parts_of(members)]
    return unite((), parts), exchanges, gates

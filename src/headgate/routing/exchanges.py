"""One index for each type of exchange: who is bound, and whom does this message reach?

An index answers with a `Routed` when there is nothing more to say, and remembers it; otherwise with a
`Pending`: something is left to ask of the message, or another exchange to go on to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias
from typing import Literal as OneOf

import numpy as np

from headgate.errors import BindingRefused, TopicPatternError
from headgate.filters import TRUE, Columns, Filter, check_pattern
from headgate.matching import (
    Alike,
    Checked,
    Checks,
    EqualityIndex,
    Group,
    Matcher,
    Rows,
    Slot,
    TopicTrie,
    Wanted,
    exclude,
    include,
    match_rows,
    match_topics,
)
from headgate.message import Message
from headgate.routing.answers import Answer, Gate, Pending, Routable, Routed, told_apart
from headgate.routing.bindings import X_FILTER, Binding, Target, ToExchange, ways_into
from headgate.routing.values import PLAIN, Arguments, Envelope, key_of

ExchangeType: TypeAlias = OneOf["direct", "fanout", "topic", "headers", "filter"]
EXCHANGE_TYPES: Final[tuple[ExchangeType, ...]] = ("direct", "fanout", "topic", "headers", "filter")
# A binding, where its index files it, to whom it leads, and its filter.
Bound: TypeAlias = tuple[Binding, Any, Target, Filter | None]
BULK: Final = (
    1 << 17
)  # bindings that are inserted together, at most: what is kept for that is some 20 MB


@dataclass(frozen=True, slots=True)
class Exchange:
    """What was declared. Messages it cannot route go on to the `alternate` exchange."""

    name: str
    type: ExchangeType = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    alternate: str | None = None
    arguments: Arguments = ()


class Index(ABC):
    """The bindings of one exchange. `find` is the whole of what a message asks.

    Where the topic decides, `settled` is what was found for it before: to be looked up without a call. Elsewhere
    `recall` may know what was found for such a message. Both may be asked while others bind and unbind; whatever
    else is asked of an index, or changes it, holds the lock of its topology.
    """

    recall: Callable[[Routable], Answer | None] | None = None

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.settled: dict[str, Routed] = {}  # never another dictionary
        self.bindings: dict[
            Binding, Any
        ] = {}  # and where the index has filed each, if it needs to know
        self.filters: dict[Binding, Filter] = {}  # of the bindings that have one
        self._unfiled: list[Bound] | None = None  # bound in bulk, and not inserted yet
        self.via = (exchange.name,)
        self.special = 0  # members that are no queues
        last = exchange.alternate is None
        self.nowhere: Answer = Routed(frozenset(), True, self.via) if last else _NOTHING

    @abstractmethod
    def find(self, message: Routable) -> Answer: ...

    @abstractmethod
    def find_rows(self, columns: Columns, rows: Rows) -> Alike[Answer]:
        """What `find` says to each of the rows."""

    def bind(self, binding: Binding, tree: Filter | None) -> bool:
        """Take the binding in; False when it was there."""
        place = self.place(binding, tree)
        before = len(self.bindings)
        self.bindings.setdefault(binding, None)
        if len(self.bindings) == before:
            return False
        if tree is not None:
            self.filters[binding] = tree
        _, destination, kind, _, _ = binding
        if kind == "exchange":
            self.special += 1
        target: Target = destination if kind == "queue" else ToExchange(destination)
        if self._unfiled is None:
            self.insert(((binding, place, target, tree),))
            return True
        self._unfiled.append((binding, place, target, tree))
        if len(self._unfiled) >= BULK:
            self._insert_unfiled()
        return True

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """What is bound meanwhile is inserted together, at the latest in the end; until then nothing else is asked."""
        self._unfiled = []
        try:
            yield
        finally:
            self._insert_unfiled()
            self._unfiled = None

    def _insert_unfiled(self) -> None:
        unfiled, self._unfiled = self._unfiled, []  # first: an interruption inserts nothing twice
        self.insert(unfiled or ())

    def unbind(self, binding: Binding) -> bool:
        """Let go of the binding; whether it was there."""
        if binding not in self.bindings:
            return False
        placed, tree = self.bindings.pop(binding), self.filters.pop(binding, None)
        if binding.kind == "exchange":
            self.special -= 1
        self.drop(binding, placed, tree)
        return True

    @abstractmethod
    def place(self, binding: Binding, tree: Filter | None) -> Any:
        """Where in the index the binding belongs; refuses what this type of exchange cannot use."""

    @abstractmethod
    def insert(self, bound: Sequence[Bound]) -> None: ...

    @abstractmethod
    def drop(self, binding: Binding, placed: Any, tree: Filter | None) -> None: ...

    def finish(self, members: Set[Any], checked: Checked = ()) -> Answer:
        """The answer for these members: the final one, when nothing else has a say."""
        if not checked:
            if not members:
                return self.nowhere
            if not self.special:
                return _routed((members, False, self.via))
        if not self.special:
            return Pending(members, (), (), checked)
        queues, exchanges, gates = told_apart(members)
        if exchanges or gates or checked:
            return Pending(queues, exchanges, gates, checked)
        return Routed(queues, False, self.via)


_NOTHING: Final = Pending(frozenset())
_routed: Final = partial(tuple.__new__, Routed)  # half of what calling Routed costs


class KeyedIndex(Index, ABC):
    """Bindings under a key of their own; those with a filter on top share a gate per key."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.gates: dict[str, Gate] = {}

    def place(self, binding: Binding, tree: Filter | None) -> str:
        return binding.key

    def insert(self, bound: Sequence[Bound]) -> None:
        for _, key, target, tree in bound:
            if tree is None or tree == TRUE:
                self.put(key, target)
            else:
                self._gate(key).matcher.add(target, tree)

    def _gate(self, key: str) -> Gate:
        gate = self.gates.get(key)
        if gate is None:
            gate = self.gates[key] = Gate()
            self.special += 1
            self.put(key, gate)
        return gate

    def drop(self, binding: Binding, placed: None, tree: Filter | None) -> None:
        place = self.place(binding, tree)
        if tree is None or tree == TRUE:
            self.take(place, binding.target)
            return
        gate = self.gates[place]
        gate.matcher.remove(binding.target, tree)
        if not gate.matcher:
            del self.gates[place]
            self.special -= 1
            self.take(place, gate)

    def find_rows(self, columns: Columns, rows: Rows) -> Alike[Answer]:
        return match_topics(lambda topic: self.find(Envelope(topic)), columns, rows)

    @abstractmethod
    def put(self, key: str, member: Any) -> None: ...

    @abstractmethod
    def take(self, key: str, member: Any) -> None: ...


class DirectIndex(KeyedIndex):
    """The routing key, word for word."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._slots: dict[str, Slot] = {}
        self._pending: dict[str, Pending] = {}
        self.recall = self._recall

    def _recall(self, message: Routable) -> Answer | None:
        return None if message.topic in self._slots else self.nowhere

    def find(self, message: Routable) -> Answer:
        topic = message.topic
        return self.settled.get(topic) or self._pending.get(topic) or self._learn(topic)

    def put(self, key: str, member: Any) -> None:
        self._slots[key] = include(self._slots.get(key), member)
        self._forget(key)

    def take(self, key: str, member: Any) -> None:
        slot, _ = exclude(self._slots.get(key), member)
        self._forget(key)
        if slot is None:
            self._slots.pop(key, None)
        else:
            self._slots[key] = slot

    def _learn(self, key: str) -> Answer:
        slot = self._slots.get(key)
        if slot is None:
            return self.finish(frozenset())
        members = slot.members if isinstance(slot, Group) else frozenset((slot,))
        answer = self.finish(members)
        if isinstance(answer, Routed):
            self.settled[key] = answer
        else:
            self._pending[key] = answer
        return answer

    def _forget(self, key: str) -> None:
        self.settled.pop(key, None)
        self._pending.pop(key, None)


class DefaultIndex(DirectIndex):
    """The default exchange: every queue, by its name, without a binding."""

    def __init__(self, exchange: Exchange, queues: dict[str, Any]) -> None:
        super().__init__(exchange)
        self._queues = queues
        self.recall = self.find

    def find(self, message: Routable) -> Answer:
        if message.topic not in self._queues:
            return self.nowhere
        return Routed(frozenset((message.topic,)), False, self.via)


class FanoutIndex(KeyedIndex):
    """Everyone."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._everyone: Group[Any] = Group()
        self._answer: Answer | None = None
        self.recall = self._recall

    def find(self, message: Routable) -> Answer:
        if self._answer is None:
            self._answer = self.finish(self._everyone.members)
        return self._answer

    def _recall(self, message: Routable) -> Answer | None:
        return self._answer

    def find_rows(self, columns: Columns, rows: Rows) -> Alike[Answer]:
        return Alike(np.zeros(len(rows), np.int64), [self.find(Envelope(""))])

    def place(self, binding: Binding, tree: Filter | None) -> str:
        return ""

    def put(self, key: str, member: Any) -> None:
        self._everyone.add(member)
        self._answer = None

    def take(self, key: str, member: Any) -> None:
        self._everyone.discard(member)
        self._answer = None


class TopicIndex(KeyedIndex):
    """Patterns: `*` is one word, `#` any number."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.trie: TopicTrie[Answer] = TopicTrie(self.finish, open=Pending)
        self.settled = self.trie.settled  # type: ignore[assignment]

    def find(self, message: Routable) -> Answer:
        return self.trie.match(message.topic)

    def place(self, binding: Binding, tree: Filter | None) -> str:
        try:
            check_pattern(binding.key)
        except TopicPatternError as problem:
            raise BindingRefused(f"{binding}: {problem}") from problem
        return binding.key

    def put(self, key: str, member: Any) -> None:
        self.trie.add(key, member)

    def take(self, key: str, member: Any) -> None:
        self.trie.remove(key, member)


class HeadersIndex(Index):
    """Pairs of names and values, all of them or any."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.equalities: EqualityIndex[Answer] = EqualityIndex(self.finish, key_of, PLAIN)
        self.recall = self.equalities.recall
        self._checks = Checks()

    def find(self, message: Routable) -> Answer:
        return self.equalities.match(message)

    def find_rows(self, columns: Columns, rows: Rows) -> Alike[Answer]:
        return match_rows(self.equalities, columns, rows)

    def place(self, binding: Binding, tree: Filter | None) -> Sequence[Wanted]:
        return ways_into(binding)

    def insert(self, bound: Sequence[Bound]) -> None:
        take = self._checks.take
        entries = self.equalities.make_entries(
            [
                (wanted, target, None if tree is None else take(tree))
                for _, ways, target, tree in bound
                for wanted in ways
            ]
        )
        made = iter(entries)
        for binding, ways, _, _ in bound:
            several = len(ways) != 1
            self.bindings[binding] = [next(made) for _ in ways] if several else next(made)
        self.equalities.insert(entries)

    def drop(self, binding: Binding, placed: Any, tree: Filter | None) -> None:
        for entry in placed if type(placed) is list else [placed]:
            self.equalities.remove(entry)
            self._checks.release(entry[1])


class FilterIndex(Index):
    """A filter expression for each binding."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.matcher: Matcher[Target] = Matcher()

    def find(self, message: Routable) -> Answer:
        asked = message if type(message) is Message else message.message  # type: ignore[union-attr]
        return self.finish(self.matcher.find(asked))

    def find_rows(self, columns: Columns, rows: Rows) -> Alike[Answer]:
        codes, found = self.matcher.match_rows(columns, rows)
        return Alike(codes, [self.finish(members, checked) for members, checked in found])

    def place(self, binding: Binding, tree: Filter | None) -> None:
        if tree is None:
            raise BindingRefused(
                f"{binding}: a filter exchange needs a filter in {X_FILTER}; '' matches everything"
            )

    def insert(self, bound: Sequence[Bound]) -> None:
        self.matcher.add_all((target, tree) for _, _, target, tree in bound if tree is not None)

    def drop(self, binding: Binding, placed: None, tree: Filter | None) -> None:
        if tree is not None:
            self.matcher.remove(binding.target, tree)


INDEXES: Final[dict[ExchangeType, type[Index]]] = {
    "direct": DirectIndex,
    "fanout": FanoutIndex,
    "topic": TopicIndex,
    "headers": HeadersIndex,
    "filter": FilterIndex,
}

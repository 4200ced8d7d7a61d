"""One index for each type of exchange: it holds the bindings of the exchange and finds the queues of a message.

The answer of an index is a `Routed` if it is final; such answers are cached. Otherwise it is an `Unresolved`: conditions
must still be tested on the message, or other exchanges must route it further.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from headgate.errors import BindingRefused, TopicPatternError
from headgate.filters import TRUE, Columns, Filter, check_pattern, depends_on_time
from headgate.matching import (
    Checks,
    CodedAnswers,
    EqualityIndex,
    Matcher,
    MemberGroup,
    OpenChecks,
    Pairs,
    RowNumbers,
    Slot,
    TopicTrie,
    exclude,
    include,
    match_rows,
    match_topics,
)
from headgate.message import Message
from headgate.routing.answers import (
    Gate,
    Routable,
    RouteAnswer,
    Routed,
    Unresolved,
    split_members,
)
from headgate.routing.bindings import (
    X_FILTER,
    Binding,
    Target,
    ToExchange,
    header_conjunctions,
)
from headgate.routing.declarations import Exchange, ExchangeType
from headgate.routing.values import PLAIN, Envelope, key_of

# A binding, where its index files it, to whom it leads, and its filter.
NewBinding: TypeAlias = tuple[Binding, Any, Target, Filter | None]

BULK: Final = 1 << 17  # bindings inserted together, at most: what is kept for that is some 20 MB


_NOTHING: Final = Unresolved(frozenset())
_routed: Final = partial(tuple.__new__, Routed)  # half of what calling Routed costs


class ExchangeIndex(ABC):
    """The bindings of one exchange. `find` answers for a message, `find_rows` for the rows of a batch.

    Callers of both, and of every change, hold the lock of the topology. Two things may be read without the lock: `final`,
    the final answers by topic, where the topic alone decides; and `recall`, which returns the answer of `find`, or None if
    it has none cached. An answer of `recall` is valid only if no change happened during the call.
    """

    recall: Callable[[Routable], RouteAnswer | None] | None = None
    by_key = False  # whether its members depend on nothing but the topic

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.final: dict[str, Routed] = {}  # never replaced by another dictionary
        # Where each binding is filed, if the index needs that to remove it.
        self.bindings: dict[Binding, Any] = {}
        self.filters: dict[Binding, Filter] = {}  # of the bindings that have one
        self._pending: list[NewBinding] | None = None  # bound in bulk, and not inserted yet
        self.via = (exchange.name,)
        self.special = 0  # members that are no queues
        self._timed = 0  # filters that ask for the time
        last = exchange.alternate is None
        self.nowhere: RouteAnswer = Routed(frozenset(), True, self.via) if last else _NOTHING

    @abstractmethod
    def find(self, message: Routable) -> RouteAnswer: ...

    @abstractmethod
    def find_rows(self, columns: Columns, rows: RowNumbers) -> CodedAnswers[RouteAnswer]:
        """What `find` answers for each of the rows."""

    def bind(self, binding: Binding, tree: Filter | None) -> bool:
        """Add the binding; False when it was there."""
        place = self.place(binding, tree)
        before = len(self.bindings)
        self.bindings.setdefault(binding, None)
        if len(self.bindings) == before:
            return False
        if tree is not None:
            self.filters[binding] = tree
            self._timed += depends_on_time(tree)
        _, destination, kind, _, _ = binding
        if kind == "exchange":
            self.special += 1
        target: Target = destination if kind == "queue" else ToExchange(destination)
        if self._pending is None:
            self.insert(((binding, place, target, tree),))
            return True
        self._pending.append((binding, place, target, tree))
        if len(self._pending) >= BULK:
            self._insert_pending()
        return True

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """Collect new bindings and insert them together, at the end at the latest; until then the index is not queried."""
        self._pending = []
        try:
            yield
        finally:
            self._insert_pending()
            self._pending = None

    def _insert_pending(self) -> None:
        pending, self._pending = self._pending, []  # first: an interruption inserts nothing twice
        self.insert(pending or ())

    def unbind(self, binding: Binding) -> bool:
        """Remove the binding; whether it was there."""
        if binding not in self.bindings:
            return False
        place, tree = self.bindings.pop(binding), self.filters.pop(binding, None)
        if binding.kind == "exchange":
            self.special -= 1
        if tree is not None:
            self._timed -= depends_on_time(tree)
        self.delete(binding, place, tree)
        return True

    @property
    def is_steady(self) -> bool:
        """Whether it answers alike for messages that differ in nothing but the body, until a binding changes."""
        return not self._timed

    @abstractmethod
    def place(self, binding: Binding, tree: Filter | None) -> Any:
        """Where in the index the binding belongs; refuses one that this type of exchange cannot use."""

    @abstractmethod
    def insert(self, bindings: Sequence[NewBinding]) -> None: ...

    @abstractmethod
    def delete(self, binding: Binding, place: Any, tree: Filter | None) -> None: ...

    def finish(self, members: Set[Any], checks: OpenChecks = ()) -> RouteAnswer:
        """The answer for these members: the final one, when nothing is left to ask."""
        if not checks:
            if not members:
                return self.nowhere
            if not self.special:
                return _routed((members, False, self.via))
        if not self.special:
            return Unresolved(members, (), (), checks)
        queues, exchanges, gates = split_members(members)
        if exchanges or gates or checks:
            return Unresolved(queues, exchanges, gates, checks)
        return Routed(queues, False, self.via)


class KeyedIndex(ExchangeIndex, ABC):
    """Members under the key of their binding; bindings with a filter on top share one gate per key."""

    by_key = True

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.gates: dict[str, Gate] = {}

    def place(self, binding: Binding, tree: Filter | None) -> str:
        return binding.key

    def insert(self, bindings: Sequence[NewBinding]) -> None:
        for _, key, target, tree in bindings:
            if tree is None or tree == TRUE:
                self.add_member(key, target)
            else:
                self._ensure_gate(key).matcher.add(target, tree)

    def _ensure_gate(self, key: str) -> Gate:
        gate = self.gates.get(key)
        if gate is None:
            gate = self.gates[key] = Gate()
            self.special += 1
            self.add_member(key, gate)
        return gate

    def delete(self, binding: Binding, place: None, tree: Filter | None) -> None:
        key = self.place(binding, tree)
        if tree is None or tree == TRUE:
            self.delete_member(key, binding.target)
            return
        gate = self.gates[key]
        gate.matcher.remove(binding.target, tree)
        if not gate.matcher:
            del self.gates[key]
            self.special -= 1
            self.delete_member(key, gate)

    def find_rows(self, columns: Columns, rows: RowNumbers) -> CodedAnswers[RouteAnswer]:
        return match_topics(lambda topic: self.find(Envelope(topic)), columns, rows)

    @abstractmethod
    def add_member(self, key: str, member: Any) -> None: ...

    @abstractmethod
    def delete_member(self, key: str, member: Any) -> None: ...


class DirectIndex(KeyedIndex):
    """Bindings whose key equals the routing key."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._slots: dict[str, Slot] = {}
        self._unresolved: dict[str, Unresolved] = {}
        self.recall = self._recall

    def _recall(self, message: Routable) -> RouteAnswer | None:
        return None if message.topic in self._slots else self.nowhere

    def find(self, message: Routable) -> RouteAnswer:
        topic = message.topic
        return self.final.get(topic) or self._unresolved.get(topic) or self._learn(topic)

    def add_member(self, key: str, member: Any) -> None:
        self._slots[key] = include(self._slots.get(key), member)
        self._forget(key)

    def delete_member(self, key: str, member: Any) -> None:
        slot, _ = exclude(self._slots.get(key), member)
        self._forget(key)
        if slot is None:
            self._slots.pop(key, None)
        else:
            self._slots[key] = slot

    def _learn(self, key: str) -> RouteAnswer:
        slot = self._slots.get(key)
        if slot is None:
            return self.finish(frozenset())
        members = slot.members if isinstance(slot, MemberGroup) else frozenset((slot,))
        answer = self.finish(members)
        if isinstance(answer, Routed):
            self.final[key] = answer
        else:
            self._unresolved[key] = answer
        return answer

    def _forget(self, key: str) -> None:
        self.final.pop(key, None)
        self._unresolved.pop(key, None)


class DefaultIndex(DirectIndex):
    """The default exchange: every queue by its name, without a binding."""

    def __init__(self, exchange: Exchange, queues: dict[str, Any]) -> None:
        super().__init__(exchange)
        self._queues = queues
        self.recall = self.find

    def find(self, message: Routable) -> RouteAnswer:
        if message.topic not in self._queues:
            return self.nowhere
        return Routed(frozenset((message.topic,)), False, self.via)


class FanoutIndex(KeyedIndex):
    """All bindings, whatever the message."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._members: MemberGroup[Any] = MemberGroup()
        self._answer: RouteAnswer | None = None
        self.recall = self._recall

    def find(self, message: Routable) -> RouteAnswer:
        if self._answer is None:
            self._answer = self.finish(self._members.members)
        return self._answer

    def _recall(self, message: Routable) -> RouteAnswer | None:
        return self._answer

    def find_rows(self, columns: Columns, rows: RowNumbers) -> CodedAnswers[RouteAnswer]:
        return CodedAnswers(np.zeros(len(rows), np.int64), [self.find(Envelope(""))])

    def place(self, binding: Binding, tree: Filter | None) -> str:
        return ""

    def add_member(self, key: str, member: Any) -> None:
        self._members.add(member)
        self._answer = None

    def delete_member(self, key: str, member: Any) -> None:
        self._members.discard(member)
        self._answer = None


class TopicIndex(KeyedIndex):
    """Patterns of the routing key: `*` is one word, `#` any number of words."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.trie: TopicTrie[RouteAnswer] = TopicTrie(self.finish, provisional=Unresolved)
        self.final = self.trie.final  # type: ignore[assignment]

    def find(self, message: Routable) -> RouteAnswer:
        return self.trie.match(message.topic)

    def place(self, binding: Binding, tree: Filter | None) -> str:
        try:
            check_pattern(binding.key)
        except TopicPatternError as problem:
            raise BindingRefused(f"{binding}: {problem}") from problem
        return binding.key

    def add_member(self, key: str, member: Any) -> None:
        self.trie.add(key, member)

    def delete_member(self, key: str, member: Any) -> None:
        self.trie.remove(key, member)


class HeadersIndex(ExchangeIndex):
    """Pairs of header and value, all of which must hold, or any."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.equalities: EqualityIndex[RouteAnswer] = EqualityIndex(self.finish, key_of, PLAIN)
        self.recall = self.equalities.recall
        self._checks = Checks()

    def find(self, message: Routable) -> RouteAnswer:
        return self.equalities.match(message)

    def find_rows(self, columns: Columns, rows: RowNumbers) -> CodedAnswers[RouteAnswer]:
        return match_rows(self.equalities, columns, rows)

    def place(self, binding: Binding, tree: Filter | None) -> Sequence[Pairs]:
        return header_conjunctions(binding)

    def insert(self, bindings: Sequence[NewBinding]) -> None:
        take = self._checks.take
        entries = self.equalities.make_entries(
            [
                (pairs, target, None if tree is None else take(tree))
                for _, conjunctions, target, tree in bindings
                for pairs in conjunctions
            ]
        )
        made = iter(entries)
        for binding, conjunctions, _, _ in bindings:
            several = len(conjunctions) != 1
            self.bindings[binding] = [next(made) for _ in conjunctions] if several else next(made)
        self.equalities.insert(entries)

    def delete(self, binding: Binding, place: Any, tree: Filter | None) -> None:
        for entry in place if type(place) is list else [place]:
            self.equalities.remove(entry)
            self._checks.release(entry[1])


class FilterIndex(ExchangeIndex):
    """A filter expression for each binding."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.matcher: Matcher[Target] = Matcher()
        self.recall = self._recall

    def _recall(self, message: Routable) -> RouteAnswer | None:
        asked = message if type(message) is Message else message.message  # type: ignore[union-attr]
        members = self.matcher.recall(asked)
        return None if members is None else self.finish(members)

    def find(self, message: Routable) -> RouteAnswer:
        asked = message if type(message) is Message else message.message  # type: ignore[union-attr]
        return self.finish(self.matcher.find(asked))

    def find_rows(self, columns: Columns, rows: RowNumbers) -> CodedAnswers[RouteAnswer]:
        codes, found = self.matcher.match_rows(columns, rows)
        return CodedAnswers(codes, [self.finish(members, checks) for members, checks in found])

    def place(self, binding: Binding, tree: Filter | None) -> None:
        if tree is None:
            raise BindingRefused(
                f"{binding}: a filter exchange needs a filter in {X_FILTER}; '' matches everything"
            )

    def insert(self, bindings: Sequence[NewBinding]) -> None:
        self.matcher.add_all((target, tree) for _, _, target, tree in bindings if tree is not None)

    def delete(self, binding: Binding, place: None, tree: Filter | None) -> None:
        if tree is not None:
            self.matcher.remove(binding.target, tree)


INDEXES: Final[dict[ExchangeType, type[ExchangeIndex]]] = {
    "direct": DirectIndex,
    "fanout": FanoutIndex,
    "topic": TopicIndex,
    "headers": HeadersIndex,
    "filter": FilterIndex,
}

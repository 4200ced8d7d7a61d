"""Exchanges, queues and bindings: declaring them, binding them, taking them back."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from threading import RLock
from typing import Any, Final, TypeAlias

from headgate.errors import (
    BindingRefused,
    DeclarationRefused,
    NotEquivalent,
    NotPermitted,
    UnknownExchange,
    UnknownQueue,
)
from headgate.forks import keep_across_forks
from headgate.routing.bindings import (
    X_FILTER,
    Binding,
    FilterText,
    filter_and_text,
    key_to_bind,
)
from headgate.routing.exchanges import (
    EXCHANGE_TYPES,
    INDEXES,
    DefaultIndex,
    Exchange,
    ExchangeType,
    Index,
)
from headgate.routing.rabbitmq_file import ALTERNATE
from headgate.routing.values import Arguments, arguments_key

DEFAULT: Final = ""  # the exchange that knows every queue by its name
RESERVED: Final = "amq."
STANDARD: Final[dict[str, ExchangeType]] = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}

# What is bound to a queue or an exchange: nothing, one binding as to most, or several.
Arriving: TypeAlias = Binding | dict[Binding, None] | None

_binding_of: Final = partial(tuple.__new__, Binding)  # half of what calling Binding costs


@dataclass(frozen=True, slots=True)
class Queue:
    """What was declared; how it stores is not for a topology to know."""

    name: str
    durable: bool = True
    auto_delete: bool = False
    arguments: Arguments = ()


class Declarations:
    """What there is: exchanges with their indexes, queues, and the bindings between them.

    Whatever changes it holds its lock, and so does whatever an index is asked: indexes learn while they answer.
    """

    def __init__(self) -> None:
        self._lock = keep_across_forks(RLock())
        self._queues: dict[str, Arriving] = {}  # every queue, and what is bound to it
        self._uncommon: dict[str, Queue] = {}  # those not declared as most are
        self._indexes: dict[str, Index] = {DEFAULT: DefaultIndex(Exchange(DEFAULT), self._queues)}
        self._doors = dict(self._indexes)  # the exchanges one may publish to
        self._onward: dict[str, Arriving] = {}  # every exchange, and what is bound to it
        for name, kind in STANDARD.items():
            self._add(Exchange(name, kind))

    # ---- declaring

    def declare_exchange(
        self,
        name: str,
        type: ExchangeType = "direct",
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        alternate: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Exchange:
        """An exchange of that name; declared before, it must have been declared the same way.

        The alternate exchange may also be given as AMQP's argument `alternate-exchange`.
        """
        if type not in EXCHANGE_TYPES:
            raise DeclarationRefused(
                f"exchange {name!r}: there is no type {type!r}; there are {', '.join(EXCHANGE_TYPES)}"
            )
        others = dict(arguments or {})
        alternate = others.pop(ALTERNATE, alternate)
        if not isinstance(alternate, str | None):
            raise DeclarationRefused(f"exchange {name!r}: {ALTERNATE} is a name, not {alternate!r}")
        exchange = Exchange(
            name, type, durable, auto_delete, internal, alternate, arguments_key(others)
        )
        if name == DEFAULT:
            raise NotPermitted("the default exchange is always there and cannot be declared")
        with self._lock:
            if name in self._indexes:
                _must_equal(f"exchange {name!r}", self._indexes[name].exchange, exchange)
                return self._indexes[name].exchange
            if name.startswith(RESERVED):
                raise NotPermitted(
                    f"exchange names that begin with {RESERVED!r} are reserved: {name!r}"
                )
            self._add(exchange)
            return exchange

    def declare_queue(
        self,
        name: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> Queue:
        """A queue of that name, reachable through the default exchange at once."""
        queue = Queue(name, durable, auto_delete, arguments_key(arguments or {}))
        with self._lock:
            if name in self._queues:
                _must_equal(f"queue {name!r}", self._uncommon.get(name, Queue(name)), queue)
            else:
                self._add_queue(queue)
            return queue

    def delete_exchange(self, name: str) -> bool:
        """Remove the exchange and every binding from it and to it; whether it was there."""
        if name == DEFAULT or name in STANDARD:
            raise NotPermitted(f"the exchange {name!r} is always there and cannot be deleted")
        with self._lock:
            index = self._indexes.get(name)
            if index is None:
                return False
            for binding in list(index.bindings):
                self._let_go(binding)
            del self._indexes[name]
            self._doors.pop(name, None)
            self._remove_all(self._onward.pop(name))
            return True

    def delete_queue(self, name: str) -> bool:
        """Remove the queue and every binding to it; whether it was there."""
        with self._lock:
            if name not in self._queues:
                return False
            arriving = self._queues.pop(name)
            self._uncommon.pop(name, None)
            self._remove_all(arriving)
            return True

    # ---- binding

    def bind(
        self,
        source: str,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        key: str = "",
        arguments: Mapping[str, Any] | None = None,
        filter: FilterText | None = None,
    ) -> Binding:
        """Bind a queue, or another exchange, to the source; to bind the same twice is to bind it once."""
        with self._lock:
            index = self._indexes.get(source)
            if index is None:
                raise UnknownExchange(source)
            binding, given = self._binding(source, queue, exchange, key, arguments, filter)
            targets = self._onward if queue is None else self._queues
            destination = binding.destination
            try:
                arriving = targets[destination]
            except KeyError:
                missing = UnknownExchange if queue is None else UnknownQueue
                raise missing(destination) from None
            tree = None
            if given is not None:
                tree, text = filter_and_text(given, str(binding))
                if type(given) is not str:
                    binding = binding.with_filter(text)
            if index.bind(binding, tree):
                targets[destination] = arrived(arriving, binding)
            return binding

    def bind_all(self, bindings: Iterable[Mapping[str, Any]]) -> None:
        """Many at once, each given as the arguments of a `bind`; those before one that is refused are bound."""
        entries = list(bindings)  # nothing of the caller's runs while they are gathered
        bind = self.bind
        with self._lock, self._bulk({given.get("source", "") for given in entries}):
            for given in entries:
                bind(**given)

    def unbind(
        self,
        source: str,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        key: str = "",
        arguments: Mapping[str, Any] | None = None,
        filter: FilterText | None = None,
    ) -> bool:
        """Undo a `bind` with the same arguments; whether there was such a binding."""
        with self._lock:
            if source not in self._indexes:
                raise UnknownExchange(source)
            binding, given = self._binding(source, queue, exchange, key, arguments, filter)
            if given is not None and type(given) is not str:
                binding = binding.with_filter(filter_and_text(given, str(binding))[1])
            return self.remove(binding)

    def remove(self, binding: Binding) -> bool:
        """Undo a binding; whether it was there. An exchange that deletes itself goes with its last one."""
        with self._lock:
            if not self._let_go(binding):
                return False
            index = self._indexes[binding.source]
            if index.exchange.auto_delete and not index.bindings:
                self.delete_exchange(binding.source)
            return True

    # ---- looking

    @property
    def exchanges(self) -> Mapping[str, Exchange]:
        with self._lock:
            return {name: index.exchange for name, index in self._indexes.items()}

    @property
    def queues(self) -> Mapping[str, Queue]:
        with self._lock:
            return {name: self._uncommon.get(name) or Queue(name) for name in self._queues}

    def bindings(self, source: str | None = None) -> Iterator[Binding]:
        """The bindings of one exchange, or of all, as they are now."""
        with self._lock:
            if source is not None and source not in self._indexes:
                raise UnknownExchange(source)
            names = self._indexes if source is None else (source,)
            return iter([binding for name in names for binding in self._indexes[name].bindings])

    def __len__(self) -> int:
        """How many bindings there are."""
        with self._lock:
            return sum(len(index.bindings) for index in self._indexes.values())

    # ---- inside

    @contextmanager
    def _bulk(self, sources: Set[str]) -> Iterator[None]:
        """What is bound to these meanwhile is taken in together; nothing else may be asked of them."""
        with collector_paused(), ExitStack() as stack:
            for source in sources & self._indexes.keys():
                stack.enter_context(self._indexes[source].bulk())
            yield

    def _add(self, exchange: Exchange) -> None:
        index = INDEXES[exchange.type](exchange)
        self._indexes[exchange.name] = index
        self._onward[exchange.name] = None
        if not exchange.internal:
            self._doors[exchange.name] = index

    def _no_door(self, exchange: str) -> Exception:
        if exchange in self._indexes:
            return NotPermitted(
                f"the exchange {exchange!r} is internal: bind it to one that may be published to"
            )
        return UnknownExchange(exchange)

    def _binding(
        self,
        source: str,
        queue: str | None,
        exchange: str | None,
        key: str,
        arguments: Mapping[str, Any] | None,
        filter: FilterText | None,
    ) -> tuple[Binding, object]:
        if (queue is None) == (exchange is None):
            raise BindingRefused(
                f"a binding from {source!r} needs a queue or an exchange, and one only"
            )
        if type(key) is not str:
            raise BindingRefused(f"a binding from {source!r}: the key is text, not {key!r}")
        if source == DEFAULT or exchange == DEFAULT:
            raise NotPermitted(
                "the default exchange cannot be bound: it knows every queue by its name"
            )
        if filter is not None:
            if arguments and X_FILTER in arguments:
                raise BindingRefused(f"give the filter once: as filter, or as {X_FILTER}")
            arguments = {**(arguments or {}), X_FILTER: filter if isinstance(filter, str) else ""}
        frozen = _freeze_arguments(source, arguments) if arguments else ()
        if queue is not None:
            binding = _binding_of((source, queue, "queue", key, frozen))
        else:
            binding = Binding(source, str(exchange), "exchange", key, frozen)
        if filter is None and arguments and X_FILTER in arguments:
            return binding, _not_void(arguments[X_FILTER], binding)
        return binding, filter

    def _let_go(self, binding: Binding) -> bool:
        index = self._indexes.get(binding.source)
        if index is None or not index.unbind(binding):
            return False
        targets = self._targets(binding)
        arriving = targets.get(binding.destination)  # None where the target is being deleted
        if isinstance(arriving, dict):
            del arriving[binding]
        if arriving in (binding, {}):
            targets[binding.destination] = None
        return True

    def _targets(self, binding: Binding) -> dict[str, Arriving]:
        return self._queues if binding.kind == "queue" else self._onward

    def _remove_all(self, arriving: Arriving) -> None:
        """Undo all that was bound to something that is gone."""
        if isinstance(arriving, dict):
            for binding in list(arriving):
                self.remove(binding)
        elif arriving is not None:
            self.remove(arriving)

    def _add_queue(self, queue: Queue) -> None:
        self._queues[queue.name] = None
        if queue != Queue(queue.name):
            self._uncommon[queue.name] = queue


def arrived(arriving: Arriving, binding: Binding) -> Arriving:
    if arriving is None:
        return binding
    if isinstance(arriving, dict):
        arriving[binding] = None
        return arriving
    return {arriving: None, binding: None}


@contextmanager
def collector_paused() -> Iterator[None]:
    """Building makes no garbage, but every so often the collector would look at all there is to see that."""
    was_running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_running:
            _call_everything_old()
            gc.enable()


def _call_everything_old() -> None:
    """What was built is here to stay: the collector need not look through it twice to come to that."""
    if not gc.get_freeze_count():  # what somebody else has frozen must stay so
        gc.freeze()
        gc.unfreeze()  # to the oldest generation, without a look at anything


def _freeze_arguments(source: str, arguments: Mapping[str, Any]) -> Arguments:
    try:
        frozen = arguments_key(arguments, key_to_bind)
    except TypeError as problem:  # names of several kinds have no order
        raise _unnamed(source) from problem
    if type(frozen[0]) is not str:  # as it is, all are
        raise _unnamed(source)
    return frozen


def _unnamed(source: str) -> BindingRefused:
    return BindingRefused(f"a binding from {source!r}: the names of its arguments must be text")


def _not_void(filter: object, binding: Binding) -> object:
    if filter is None:
        raise BindingRefused(
            f"{binding}: {X_FILTER} is there and holds nothing; give a filter, or leave it out"
        )
    return filter


def _must_equal(what: str, declared: Any, given: Any) -> None:
    for field in fields(declared):
        was, is_ = getattr(declared, field.name), getattr(given, field.name)
        if was != is_:
            raise NotEquivalent(what, field.name, was, is_)

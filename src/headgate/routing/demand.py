"""What a topology wants: a filter that is true of every message that reaches a queue, and perhaps of others.

Where a message that no queue gets is of no use, its source need not read it. The filter may be wider than the bindings, for
the router decides what each queue gets; it is never narrower.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import FilterError, FilterLimitError
from headgate.filters import (
    FALSE,
    TOPIC,
    TRUE,
    And,
    Compare,
    Exists,
    Field,
    Filter,
    In,
    Literal,
    Or,
    TopicMatch,
    check_depth,
    depends_on_time,
    join_terms,
    parse_stored,
    walk,
)
from headgate.matching import PRESENT
from headgate.routing.bindings import Binding, compared_headers, x_match
from headgate.routing.declarations import DEFAULT, ExchangeType
from headgate.routing.values import value_of

if TYPE_CHECKING:
    from headgate.routing.topology import Topology

MOST_NODES: Final = 500  # of a filter: a million messages are then tested in some 30 ms


def demand_of(topology: Topology, exchange: str) -> Filter:
    """What reaches a queue from this exchange; TRUE where that cannot be said in a filter of moderate size."""
    bindings = list(topology.bindings())
    if len(bindings) > MOST_NODES:
        return TRUE
    demand = _Demand(topology, bindings).of(exchange, frozenset())
    try:
        check_depth(demand)
    except FilterLimitError:
        return TRUE
    return demand if sum(1 for _ in walk(demand)) <= MOST_NODES else TRUE


class _Demand:
    def __init__(self, topology: Topology, bindings: Iterable[Binding]) -> None:
        self._exchanges, self._queues = topology.exchanges, topology.queues
        self._bindings: dict[str, list[Binding]] = {}
        for binding in bindings:
            self._bindings.setdefault(binding.source, []).append(binding)
        self._looked_at = 0

    def of(self, name: str, passed: frozenset[str]) -> Filter:
        """What this exchange wants; one that was passed before wants nothing else than the way so far."""
        if name in passed or name not in self._exchanges:
            return FALSE
        if name == DEFAULT:
            return any_term(Compare("=", TOPIC, Literal(queue)) for queue in self._queues)
        exchange, passed = self._exchanges[name], passed | {name}
        wanted = [
            self._through(binding, exchange.routing_type, passed)
            for binding in self._bindings.get(name, ())
        ]
        if exchange.alternate is not None:
            wanted.append(self.of(exchange.alternate, passed))
        return any_term(wanted)

    def _through(self, binding: Binding, type_: ExchangeType, passed: frozenset[str]) -> Filter:
        self._looked_at += 1
        if (
            self._looked_at > MOST_NODES
        ):  # there are many ways through exchanges that are bound to each other
            return TRUE
        onward = TRUE if binding.kind == "queue" else self.of(binding.destination, passed)
        return all_terms([condition_of(binding, type_), onward])


def condition_of(binding: Binding, type_: ExchangeType) -> Filter:
    """A filter that is true of every message that the binding lets through."""
    try:
        return all_terms([_condition_of_type(binding, type_), _own_filter(binding)])
    except FilterError:  # a value that no filter can compare
        return TRUE


def _own_filter(binding: Binding) -> Filter:
    if binding.filter_text is None:
        return TRUE
    tree = parse_stored(binding.filter_text)
    return TRUE if depends_on_time(tree) else tree  # the router asks at another moment


def _condition_of_type(binding: Binding, type_: ExchangeType) -> Filter:
    match type_:
        case "direct":
            return Compare("=", TOPIC, Literal(binding.key))
        case "topic":
            return TopicMatch(binding.key)
        case "headers":
            match = x_match(binding)
            terms = [_header_condition(*pair) for pair in compared_headers(binding, match)]
            return all_terms(terms) if match.startswith("all") else any_term(terms)
        case (
            "fanout"
            | "filter"
            | "x-consistent-hash"
            | "x-modulus-hash"
            | "x-random"
            | "x-local-random"
            | "x-super-stream"
            | "x-delayed-message"
        ):
            return TRUE


def _header_condition(name: str, key: Any) -> Filter:
    header = Field("header", name)
    value = None if key is PRESENT else value_of(key)
    if isinstance(value, str | int | float):
        return Compare("=", header, Literal(value))
    return Exists(header)


# ---- joining terms -----------------------------------------------------------------------------------


def all_terms(terms: Iterable[Filter]) -> Filter:
    """The conjunction of the terms, without those that are always true."""
    left = [term for term in terms if term != TRUE]
    if FALSE in left:
        return FALSE
    return join_terms(And, left) if left else TRUE


def any_term(terms: Iterable[Filter]) -> Filter:
    """The disjunction of the terms; equalities with one field become one IN."""
    left = list(dict.fromkeys(_join_equalities(term for term in terms if term != FALSE)))
    if TRUE in left:
        return TRUE
    return join_terms(Or, left) if left else FALSE


def _join_equalities(terms: Iterable[Filter]) -> Iterator[Filter]:
    texts: dict[Field, list[Literal]] = {}
    for term in terms:
        match term:
            case Compare("=", Field() as field, Literal(kind="string") as literal):
                texts.setdefault(field, []).append(literal)
            case _:
                yield term
    for field, literals in texts.items():
        different = tuple(dict.fromkeys(literals))
        equal = Compare("=", field, different[0])
        yield equal if len(different) == 1 else In(field, different)

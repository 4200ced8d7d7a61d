"""A message's way from exchange to exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from headgate.matching import merge
from headgate.routing.answers import Routable, RouteAnswer, Routed
from headgate.routing.exchanges import ExchangeIndex


def walk(
    indexes: Mapping[str, ExchangeIndex],
    start: ExchangeIndex,
    answer: RouteAnswer,
    message: Routable,
    by_key: bool = False,
) -> RouteAnswer | None:
    """Follow the answer of the first exchange; with `by_key` as far as the topic decides: see `Topology.route_key`."""
    queues: Set[str] = frozenset()
    seen, work = {start.exchange.name}, [start]
    for index in work:  # which grows
        if index is not start:
            if by_key and not index.by_key:
                return None
            answer = index.find(message)
        if isinstance(answer, Routed):
            queues = merge(queues, answer.queues)
            continue
        if by_key and (answer.gates or answer.checks):
            is_alone = index is start and not answer.exchanges and not index.exchange.alternate
            return answer if is_alone else None
        reached, onward = answer.resolve(message)
        queues = merge(queues, reached)
        if not reached and not onward and index.exchange.alternate is not None:
            onward = (index.exchange.alternate,)
        for name in onward:
            if name not in seen and name in indexes:
                seen.add(name)
                work.append(indexes[name])
    return Routed(queues, not queues, tuple(index.exchange.name for index in work))


def walk_all(
    indexes: Mapping[str, ExchangeIndex], start: ExchangeIndex, messages: Sequence[Routable]
) -> Routed:
    """Where one message goes that has several topics: each exchange on its way sees all of them."""
    queues: Set[str] = frozenset()
    seen, work = {start.exchange.name}, [start]
    for index in work:  # which grows
        is_reached = False
        onward: list[str] = []
        for message in messages:
            answer = index.find(message)
            reached = answer.queues
            if not isinstance(answer, Routed):
                reached, further = answer.resolve(message)
                onward += further
            queues = merge(queues, reached)
            is_reached = is_reached or bool(reached)
        if not is_reached and not onward and index.exchange.alternate is not None:
            onward = [index.exchange.alternate]
        for name in onward:
            if name not in seen and name in indexes:
                seen.add(name)
                work.append(indexes[name])
    return Routed(queues, not queues, tuple(index.exchange.name for index in work))

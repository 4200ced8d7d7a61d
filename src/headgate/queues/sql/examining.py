"""Filters that match nothing, or nearly nothing, and that no index answers.

The first claim has to read everything. But messages never change, and in a queue every new one has a higher id. So what
was examined once need not be read again, whatever becomes of it: leased, given back, delayed, dead, requeued. Only those
few that match are looked at every time, and what has arrived since. In a subscription older messages may arrive
later; there, nothing is remembered.
"""

from __future__ import annotations

from typing import Final

from headgate.queues.engine import Operation, SqlValue, Statement
from headgate.queues.sql.core import Core
from headgate.queues.sql.dialect import Condition, Dialect
from headgate.queues.sql.search import FIRST_GAP, Candidate, Examined, Search

_PAGE: Final = 20_000  # deliveries read by one statement
_MOST_KNOWN: Final = 100  # matches; with more, reading the queue in its order soon meets some
_REMEMBERED: Final = 256


class Examining(Core):
    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._examined: dict[tuple[int, Condition], Examined] = {}

    def remembers(self, search: Search) -> bool:
        """Whether it is worth remembering what did not match."""
        return search.lasting and search.walks

    def has_examined(self, search: Search) -> bool:
        return (search.queue.id, search.conditions[0]) in self._examined

    def _examine(self, search: Search) -> Operation[list[int] | None]:
        """All that matches, in whatever state; None when that is too much. Within one snapshot."""
        key = (search.queue.id, search.conditions[0])
        before = self._examined.get(key, Examined())
        last, matches = yield from self._walk(search, before)
        if len(matches) > _MOST_KNOWN:
            self._examined.pop(key, None)
            return None
        if len(self._examined) >= _REMEMBERED:
            self._examined.clear()
        self._examined[key] = yield from self._kept(before, last, matches)
        return matches

    def _walk(self, search: Search, before: Examined) -> Operation[tuple[int, list[int]]]:
        """The last message there is, and those that match, up to one too many."""
        last, matches = before.upto, list(before.known)
        while len(matches) <= _MOST_KNOWN:
            [(count, end), *found] = yield self.examine_statement(search, last)
            matches += [id for _, id in found]
            last = last if end is None else end
            if count < _PAGE:
                break
        return last, matches

    def _kept(self, before: Examined, last: int, matches: list[int]) -> Operation[Examined]:
        """What may be remembered: ids appear in their order, where one writes at a time."""
        return Examined(last, tuple(matches))
        yield

    def examine_statement(self, search: Search, after: int) -> Statement:
        """The next deliveries by id: how many, the last of them, and then those that match."""
        [condition] = search.conditions
        where = self.dialect.shifted(condition.where, 1)
        params: list[SqlValue] = [search.queue.id, _PAGE, after, *where.params]
        join = " " + self.dialect.text("candidate_join") if condition.needs_message else ""
        text = self.dialect.text("examine", where=where.text, join=join, most=str(_MOST_KNOWN + 1))
        assert len(params) == FIRST_GAP + len(condition.where.params)
        return Statement(text, tuple(params))

    def _claimable(
        self, search: Search, matches: list[int], limit: int
    ) -> Operation[list[Candidate]]:
        """Those of them that a claim could take, in the order of the queue."""
        ids: list[SqlValue] = [id for id in matches if id not in search.skip]
        if not ids:
            return []
        rows = yield self.dialect.statement("claimable", search.queue.id, limit, ids)
        return [Candidate(*row) for row in rows]

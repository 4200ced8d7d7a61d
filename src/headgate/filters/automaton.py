"""Lexemes -> the value of the grammar's first rule. Lark makes the LALR tables; the loop that runs them is here.

Lark's own loop takes two to three times as long: it looks up every rule and every symbol by its value, for each of the
dozen steps between a name and the condition it is part of. In the tables below a step is a number or a tuple with all
it needs, and a rule that changes nothing only changes the state. The tables are not part of lark's public interface:
`tests/unit/filters/test_automaton.py` fails when another lark keeps them elsewhere, or parses differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from lark import Lark, Token, Transformer
from lark.lexer import Lexer

from headgate.filters.scanner import END, Lexeme


class Unexpected(Exception):
    """The grammar has no such filter; `accepted` are the terminals that could be there instead."""

    def __init__(self, lexeme: Lexeme, accepted: frozenset[str]) -> None:
        self.lexeme, self.accepted = lexeme, accepted
        super().__init__(lexeme.text)


class _Reduce(NamedTuple):
    """Replace the last `size` values by one. Without `build` there is one value, and it stays as it is."""

    size: int
    build: Callable[[list[Any]], Any] | None
    followers: dict[int, int]  # by the state below


_Step: TypeAlias = int | _Reduce  # a number is the state after the token was taken


class Automaton:
    """The tables of a grammar, with the methods of a transformer as its actions."""

    def __init__(self, grammar: str, transformer: Transformer[Any, Any]) -> None:
        lark = Lark(grammar, parser="lalr", lexer=_NoLexer, transformer=transformer)
        tables = lark.parse_interactive("").parser_state.parse_conf
        self._start, self._end = tables.start_state, tables.end_state
        followers: dict[str, dict[int, int]] = {}
        for state, steps in tables.states.items():
            for symbol, (_, target) in steps.items():
                if isinstance(target, int):  # a shift; a reduction has a rule
                    followers.setdefault(str(symbol), {})[state] = target
        self._steps: dict[int, dict[str, _Step]] = {
            state: {
                str(symbol): target
                if isinstance(target, int)
                else _reduce(target, tables, followers)
                for symbol, (_, target) in steps.items()
            }
            for state, steps in tables.states.items()
        }

    def run(self, lexemes: Sequence[Lexeme]) -> Any:
        """Run the transformer over the lexemes; Unexpected where the grammar does not allow one."""
        steps, states, values = self._steps, [self._start], []
        for lexeme in (*lexemes, Lexeme(END, "", 0)):
            symbol = lexeme[0]
            while True:
                step = steps[states[-1]].get(symbol)
                if isinstance(step, int):
                    states.append(step)
                    values.append(lexeme)
                    break
                if step is None:
                    raise Unexpected(lexeme, self._accepted(states))
                size, build, followers = step
                if build is None:
                    states[-1] = followers[states[-2]]
                else:
                    value = build(values[-size:])
                    del values[-size:], states[-size:]
                    values.append(value)
                    states.append(followers[states[-1]])
                if states[-1] == self._end:
                    return values[-1]
        raise AssertionError("END is reduced, never shifted")

    def _accepted(self, states: list[int]) -> frozenset[str]:
        terminals = (symbol for symbol in self._steps[states[-1]] if symbol.isupper())
        return frozenset(symbol for symbol in terminals if self._accepts(list(states), symbol))

    def _accepts(self, states: list[int], symbol: str) -> bool:
        """Tell whether a symbol may follow here: its row allows it in some context, the states below decide in which."""
        while states[-1] != self._end:
            step = self._steps[states[-1]].get(symbol)
            if not isinstance(step, _Reduce):
                return step is not None
            del states[-step.size :]
            states.append(step.followers[states[-1]])
        return True


class _NoLexer(Lexer):
    """Lark makes no tables without a lexer; the lexemes come from the scanner."""

    def __init__(self, lexer_conf: object) -> None:
        pass

    def lex(self, lexer_state: object, parser_state: object) -> Iterator[Token]:
        yield from ()


def _reduce(rule: Any, tables: Any, followers: dict[str, dict[int, int]]) -> _Reduce:
    size = len(rule.expansion)
    if not size:
        raise AssertionError(f"the loop of Automaton.run supports no empty rule: {rule}")
    changes_nothing = (
        size == 1 and rule.options.expand1 and not rule.alias and not rule.expansion[0].is_term
    )
    build = None if changes_nothing else tables.callbacks[rule]
    return _Reduce(size, build, followers[str(rule.origin.name)])

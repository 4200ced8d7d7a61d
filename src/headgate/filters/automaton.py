"""Tokens -> the value of the grammar's first rule. Lark works out the LALR tables; the loop that runs them is here.

Lark's own loop looks up every rule and every symbol by its value, and does so for each of the dozen steps between a
name and the condition it stands in. In the tables below a step is a number or a tuple that holds all it needs, and a
rule that changes nothing only changes the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from lark import Lark, Token, Transformer
from lark.grammar import Rule
from lark.lexer import Lexer
from lark.parsers.lalr_analysis import Shift

END: Final = "$END"


class Lexeme(NamedTuple):
    """A piece of the text: the terminal it is, its characters, and where they begin."""

    type: str
    text: str
    at: int


class Unexpected(Exception):
    """No filter goes on like this; `accepted` are the terminals with which it could."""

    def __init__(self, lexeme: Lexeme, accepted: frozenset[str]) -> None:
        self.lexeme, self.accepted = lexeme, accepted
        super().__init__(lexeme.text)


class _Reduce(NamedTuple):
    """The last `size` values become one. Without `build` there is one, and it stays what it is."""

    size: int
    build: Callable[[list[Any]], Any] | None
    followers: dict[int, int]  # by the state that is uncovered


_Step: TypeAlias = int | _Reduce  # a number is the state after the token was taken


class Automaton:
    """The tables of a grammar whose rules a transformer answers."""

    def __init__(self, grammar: str, transformer: Transformer[Any, Any]) -> None:
        lark = Lark(grammar, parser="lalr", lexer=_Unasked, transformer=transformer)
        tables = lark.parse_interactive("").parser_state.parse_conf
        self._start, self._end = tables.start_state, tables.end_state
        followers: dict[str, dict[int, int]] = {}
        for state, steps in tables.states.items():
            for symbol, (action, target) in steps.items():
                if action is Shift:
                    followers.setdefault(str(symbol), {})[state] = target
        self._steps: dict[int, dict[str, _Step]] = {
            state: {
                str(symbol): target if action is Shift else _reduce(target, tables, followers)
                for symbol, (action, target) in steps.items()
            }
            for state, steps in tables.states.items()
        }

    def run(self, lexemes: Sequence[Lexeme]) -> Any:
        """What the transformer made of the lexemes; Unexpected where the grammar has no way on."""
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
        raise AssertionError("the end is the last lexeme of all, and never taken")

    def _accepted(self, states: list[int]) -> frozenset[str]:
        terminals = (symbol for symbol in self._steps[states[-1]] if symbol.isupper())
        return frozenset(symbol for symbol in terminals if self._accepts(list(states), symbol))

    def _accepts(self, states: list[int], symbol: str) -> bool:
        """A row names what may follow in any context; whether it may in this one, the states below decide."""
        while states[-1] != self._end:
            step = self._steps[states[-1]].get(symbol)
            if not isinstance(step, _Reduce):
                return step is not None
            del states[-step.size :]
            states.append(step.followers[states[-1]])
        return True


class _Unasked(Lexer):
    """The lexemes come from elsewhere, but lark makes no tables without a lexer."""

    def __init__(self, lexer_conf: object) -> None:
        pass

    def lex(self, lexer_state: object, parser_state: object) -> Iterator[Token]:
        yield from ()


def _reduce(rule: Rule, tables: Any, followers: dict[str, dict[int, int]]) -> _Reduce:
    size = len(rule.expansion)
    if not size:
        raise AssertionError(f"the loop above takes no rule that may be empty: {rule}")
    changes_nothing = (
        size == 1 and rule.options.expand1 and not rule.alias and not rule.expansion[0].is_term
    )
    build = None if changes_nothing else tables.callbacks[rule]
    return _Reduce(size, build, followers[str(rule.origin.name)])

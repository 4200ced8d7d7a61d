"""Our loop over lark's tables does what lark's own loop does, and notices a lark that keeps its tables elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from random import Random
from typing import Any

import lark
import pytest
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer

from headgate.filters import to_text
from headgate.filters.automaton import Automaton, Unexpected
from headgate.filters.scanner import Lexeme, scan
from tests import generate

GRAMMAR = files("headgate.filters").joinpath("grammar.lark").read_text()
ADVICE = (
    f"lark {lark.__version__} keeps its LALR tables elsewhere: adapt headgate.filters.automaton.Automaton to it, "
    "or pin the lark that worked in pyproject.toml"
)
WORDS = scan(
    "a AND OR NOT = IN ( 1 'x' , ) LIKE ESCAPE BETWEEN IS NULL EXISTS TRUE UTC + - * sys.topic"
)


class Scanned(Lexer):
    """Lark's public way to bring lexemes from elsewhere."""

    def __init__(self, lexer_conf: object) -> None:
        pass

    def lex(self, lexemes: Any) -> Any:
        for lexeme in lexemes:
            yield lark.Token(lexeme.type, lexeme.text, lexeme.at)


def outline(node: Any) -> Any:
    """The rules that were applied, and the text they were applied to."""
    if isinstance(node, lark.Tree):
        return (str(node.data), *map(outline, node.children))
    return node.text if isinstance(node, Lexeme) else node and str(node)


def outcome(parse: Callable[[Any], Any], lexemes: list[Lexeme]) -> Any:
    """The outline, or the type of the lexeme that is refused and the types that are accepted in its place."""
    try:
        return outline(parse(lexemes))
    except Unexpected as problem:
        return problem.lexeme.type, problem.accepted
    except UnexpectedToken as problem:
        return problem.token.type, problem.accepts


@pytest.fixture(scope="module")
def lark_loop() -> lark.Lark:
    return lark.Lark(GRAMMAR, parser="lalr", lexer=Scanned, transformer=lark.Transformer())


@pytest.fixture(scope="module")
def our_loop() -> Automaton:
    return Automaton(GRAMMAR, lark.Transformer())


def test_lark_keeps_its_tables_where_the_automaton_reads_them(lark_loop):
    try:
        tables = lark_loop.parse_interactive([]).parser_state.parse_conf
        tables.start_state, tables.end_state
        steps = [step for row in tables.states.values() for step in row.values()]
        rules = [target for _, target in steps if not isinstance(target, int)]
        assert len(rules) < len(steps), "no step is a shift"
        for rule in rules:
            len(rule.expansion), rule.options.expand1, rule.alias, rule.origin.name
    except (AttributeError, TypeError, ValueError, AssertionError) as problem:
        pytest.fail(f"{ADVICE} ({problem})")


def test_filters_are_parsed_as_by_larks_own_loop(our_loop, lark_loop, seed):
    rng = Random(seed)
    for _ in range(300):
        lexemes = scan(to_text(generate.filter(rng)))
        assert outline(our_loop.run(lexemes)) == outline(lark_loop.parse(lexemes)), ADVICE


def test_text_that_is_no_filter_is_refused_as_by_larks_own_loop(our_loop, lark_loop, seed):
    rng = Random(seed)
    for _ in range(2000):
        lexemes = [rng.choice(WORDS) for _ in range(rng.randint(0, 6))]
        assert outcome(our_loop.run, lexemes) == outcome(lark_loop.parse, lexemes), ADVICE

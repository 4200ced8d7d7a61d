"""Whatever is thrown at the parser, it answers with a tree or with our own error, and nothing leaks."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.errors import FilterError
from headgate.filters.nodes import FILTER_TYPES
from headgate.filters.parser import parse
from headgate.filters.printer import to_text
from tests import generate
from tests.conftest import FULL

EXAMPLES = settings(max_examples=50_000 if FULL else 2_000)
WORDS = [
    "AND",
    "OR",
    "NOT",
    "IN",
    "LIKE",
    "ESCAPE",
    "BETWEEN",
    "IS",
    "NULL",
    "EXISTS",
    "TRUE",
    "FALSE",
    "UTC",
    "MATCHES",
    "TIMESTAMP",
    "INTERVAL",
    "(",
    ")",
    ",",
    "=",
    "<>",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "a",
    "b",
    "[x]",
    "`y`",
    "[[[",
    "]]]",
    "sys.topic",
    "sys.nothing",
    "p.subject",
    "p.nothing",
    "h.priority",
    "a.b",
    "'text'",
    "'it''s'",
    '"two"',
    "'a%'",
    "'!'",
    "1",
    "0",
    "-1",
    "1.5",
    ".5",
    "1.",
    "1e5",
    "1e999",
    "9223372036854775807",
    "9223372036854775808",
    "0x1",
    "'2026-01-01'",
    "'1h'",
    "'",
    '"',
    "[",
    "`",
    "\\",
    "\n",
    "\t",
    ".",
    ";",
    "--",
    "/*",
    "*/",
    "#",
    "$1",
    "?",
    ":x",
]


def assert_tree_or_refusal(text: str) -> None:
    try:
        tree = parse(text)
    except FilterError:
        return
    assert isinstance(tree, FILTER_TYPES)
    assert parse(to_text(tree)) == tree


@EXAMPLES
@given(st.text(max_size=60))
@example("\x00")
@example("a = '\ud800'")
@example("[\ud800] = 1")
@example("²")
@example("a = ٣")
@example("ａ = 1")
@example("a\u00a0= 1")
@example("a = 1 AND\u2028b = 2")
def test_any_text_is_a_tree_or_a_refusal(text):
    assert_tree_or_refusal(text)


@EXAMPLES
@given(st.binary(max_size=60))
def test_any_bytes_read_as_latin_1_are_a_tree_or_a_refusal(raw):
    assert_tree_or_refusal(raw.decode("latin-1"))


@EXAMPLES
@given(st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join))
def test_any_words_of_the_language_are_a_tree_or_a_refusal(text):
    assert_tree_or_refusal(text)


@EXAMPLES
@given(st.randoms(use_true_random=False), st.data())
def test_a_filter_with_a_few_characters_changed_is_a_tree_or_a_refusal(rng, data):
    text = to_text(generate.filter(rng))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 3))
        text = text[:at] + data.draw(st.text(max_size=2)) + text[at + cut :]
    assert_tree_or_refusal(text)

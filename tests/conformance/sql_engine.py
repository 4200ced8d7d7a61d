"""What both SQL engines must do; each supplies itself as `engine`, with a clock that always returns NOW_US."""

from __future__ import annotations

import math
import struct
import time
from itertools import product
from random import Random

import pytest

from headgate.check.engines import Question
from headgate.filters.builder import header, topic
from headgate.filters.logic import matches_filter
from headgate.filters.nodes import (
    COMPARE_OPS,
    And,
    Arith,
    Compare,
    Field,
    Filter,
    In,
    Like,
    Literal,
    Negate,
    Or,
    TopicMatch,
)
from headgate.filters.parser import parse
from headgate.filters.printer import to_text
from headgate.filters.topics import matches
from headgate.message import INT64_MAX, INT64_MIN, OPAQUE, Message
from tests.generate import FLOATS, INTS, NOW_US

HOSTILE = [
    "'", "''", "'; DROP TABLE message; --", '"', '""', "\\", "\\'", "$1", "$1::text", "?", "?1", ":x", "@x", "/* x */", "--", "%",
    "%s", "%(x)s", "_", "*", "[", "]", "{", "}", "{0}", "$.a", "$.\"a\"", "a.b", "a b", "a[0]", "#", "é😀", "\u2028", "0",
    "E'\\n'", "$$x$$", "x" * 63, "x" * 64, "x-y", "_", "ＡＢ", "\\u0061",
]  # fmt: skip


def ask(engine, tree: Filter, *messages: Message) -> list[bool]:
    return engine.answer([Question(tree, message) for message in messages])


def with_headers(**headers) -> Message:
    return Message(headers=headers)


def assert_agrees(engine, questions: list[Question]) -> None:
    for question, answer in zip(questions, engine.answer(questions), strict=True):
        expected = matches_filter(question.filter, question.message, NOW_US)
        assert answer is expected, f"{to_text(question.filter)} on {question.message}"


def random_doubles(rng: Random, count: int) -> list[float]:
    """Powers of two and ten with their neighbours, then random bits, subnormals and everyday numbers."""
    doubles = [
        0.0,
        -0.0,
        5e-324,
        2.2250738585072014e-308,
        1.7976931348623157e308,
        9007199254740993.0,
    ]
    for power in [
        *(math.ldexp(1.0, e) for e in range(-1074, 1024)),
        *(float(f"1e{e}") for e in range(-323, 309)),
    ]:
        doubles += [power, math.nextafter(power, 0), math.nextafter(power, math.inf)]
    while len(doubles) < count:
        bits = rng.getrandbits(rng.choice((64, 64, 52)))
        doubles.append(
            rng.choice((struct.unpack("<d", bits.to_bytes(8, "little"))[0], rng.uniform(-1e6, 1e6)))
        )
    return [value for value in doubles if math.isfinite(value)]


class SqlEngineConformance:
    def test_answers_come_in_the_order_of_the_questions(self, engine):
        eu, us = with_headers(region="EU"), with_headers(region="US")
        in_eu, in_us = parse("region = 'EU'"), parse("region = 'US'")
        questions = [
            Question(in_eu, eu),
            Question(in_us, eu),
            Question(in_eu, us),
            Question(in_us, us),
        ]
        assert engine.answer([*questions, questions[0]]) == [True, False, False, True, True]

    def test_no_question_has_no_answer(self, engine):
        assert engine.answer([]) == []

    def test_one_call_leaves_nothing_behind_for_the_next(self, engine):
        everything = parse("")
        assert ask(engine, everything, *map(Message, [b""] * 3)) == [True] * 3
        assert ask(engine, parse("a = 1"), with_headers(a=2)) == [False]

    def test_thousands_of_questions_take_seconds(self, engine):
        questions = [
            Question(
                parse(f"n = {i} AND region IN ('EU', 'US')"), with_headers(n=i % 2000, region="EU")
            )
            for i in range(4000)
        ]
        begin = time.perf_counter()
        assert sum(engine.answer(questions)) == 2000
        assert time.perf_counter() - begin < 30

    def test_utc_is_the_moment_of_the_call(self, engine):
        message = with_headers(at=NOW_US)
        assert ask(engine, parse("at = UTC()"), message) == [True]
        assert ask(engine, parse("at < UTC() - 1"), message) == [False]

    @pytest.mark.parametrize("name", ["a", *HOSTILE])
    def test_any_header_name_is_only_a_name(self, engine, name):
        held = Message(headers={name: "value", "other": 1})
        number = Message(headers={name: 7})
        absent = Message(headers={"other": "value"})
        opaque = Message(headers={name: OPAQUE})
        messages = (held, number, absent, opaque)
        assert ask(engine, (header(name) == "value").filter, *messages) == [
            True,
            False,
            False,
            False,
        ]
        assert ask(engine, (header(name) + 1 == 8).filter, *messages) == [False, True, False, False]
        assert ask(engine, header(name).exists().filter, *messages) == [True, True, False, True]
        assert ask(engine, header(name).is_null().filter, *messages) == [False, False, True, True]

    @pytest.mark.parametrize("value", HOSTILE)
    def test_any_value_is_only_a_value(self, engine, value):
        messages = [Message(headers={"a": text}) for text in (value, value + "x", "x" + value, "")]
        for op in COMPARE_OPS:
            tree = Compare(op, Field("header", "a"), Literal(value))
            assert_agrees(engine, [Question(tree, message) for message in messages])
        inside = Like(
            Field("header", "a"),
            "%" + value.replace("!", "!!").replace("%", "!%").replace("_", "!_"),
            "!",
        )
        assert_agrees(engine, [Question(inside, message) for message in messages])
        either = In(Field("header", "a"), (Literal(value), Literal(value + "x")))
        assert_agrees(engine, [Question(either, message) for message in messages])

    @pytest.mark.parametrize("pattern", [text for text in HOSTILE if text not in ("*", "#")])
    def test_any_topic_pattern_is_only_a_pattern(self, engine, pattern):
        topics = [Message(topic=t) for t in (pattern, "a." + pattern, "a.b." + pattern, "a", "")]
        for whole in (
            pattern,
            f"*.{pattern}",
            f"#.{pattern}",
            f"#.{pattern}.*",
            f"#.b.{pattern}.#",
        ):
            assert_agrees(engine, [Question(TopicMatch(whole), message) for message in topics])

    def test_all_short_topic_patterns_match_as_they_should(self, engine):
        longer = ["a.*.#.b", "#.a.#.b", "*.a.#.*", "a.#.*.#", "#.*.a.*"]
        patterns = [*_texts(("a", "", "*", "#"), 3), *longer]
        topics = [Message(topic=topic) for topic in _texts(("a", "b", ""), 4)]
        questions = [
            Question(TopicMatch(p, n), m) for p in patterns for n in (False, True) for m in topics
        ]
        for question, answer in zip(questions, engine.answer(questions), strict=True):
            tree = question.filter
            assert answer is (matches(tree.pattern, question.message.topic) is not tree.negated), (
                question
            )

    def test_kinds_never_mix(self, engine):
        values = ["5", 5, 5.0, True, False, 1, "true", OPAQUE, None, "", 0]
        messages = [with_headers(a=v, b=w) for v in values for w in values]
        trees = [
            Compare(op, Field("header", "a"), Literal(v))
            for op in COMPARE_OPS
            for v in ("5", 5, 5.0, True)
        ]
        trees += [Compare(op, Field("header", "a"), Field("header", "b")) for op in COMPARE_OPS]
        assert_agrees(engine, [Question(tree, message) for tree in trees for message in messages])

    def test_numbers_compare_exactly_as_ints_and_otherwise_as_doubles(self, engine):
        near = [2**53 + d for d in (-1, 0, 1, 2)] + [
            INT64_MIN,
            INT64_MIN + 1,
            INT64_MAX - 1,
            INT64_MAX,
        ]
        numbers = [*near, *map(float, near), 0, -0.0, 5e-324]
        messages = [with_headers(a=v) for v in numbers]
        fields = [with_headers(a=v, b=w) for v in numbers for w in numbers]
        questions = []
        for op in COMPARE_OPS:
            for v in numbers:
                questions += [
                    Question(Compare(op, Field("header", "a"), Literal(v)), m) for m in messages
                ]
            both = Compare(op, Field("header", "a"), Field("header", "b"))
            questions += [Question(both, m) for m in fields]
        among = In(Field("header", "a"), tuple(map(Literal, numbers[::3])))
        questions += [
            Question(In(among.value, among.items, n), m) for n in (False, True) for m in messages
        ]
        assert_agrees(engine, questions)

    def test_strings_are_ordered_by_code_point(self, engine):
        texts = [
            "",
            " ",
            "A",
            "Z",
            "_",
            "a",
            "aa",
            "b",
            "é",
            "e\u0301",
            "\ud7ff",
            "\ue000",
            "\uffee",
            "😀",
            "\U0010ffff",
        ]
        messages = [with_headers(a=v, b=w) for v in texts for w in texts]
        pairs = [Compare(op, Field("header", "a"), Field("header", "b")) for op in COMPARE_OPS]
        constants = [
            Compare(op, Field("header", "a"), Literal(t)) for op in COMPARE_OPS for t in texts
        ]
        prefixes = [Like(Field("header", "a"), t + "%") for t in texts]
        questions = [Question(tree, message) for tree in pairs for message in messages]
        questions += [Question(t, m) for t in constants + prefixes for m in messages[:: len(texts)]]
        assert_agrees(engine, questions)

    @pytest.mark.parametrize("op", "+-*/%")
    def test_arithmetic_on_the_edges_is_unknown_or_right_and_never_an_error(self, engine, op, seed):
        rng = Random(seed)
        numbers = (
            INTS + FLOATS + [1.5e150, 1e-150, 2.0**1022, -(2.0**1022), 2.0**970, 1e-300, math.pi]
        )
        rows = [with_headers(a=rng.choice(numbers), b=rng.choice(numbers)) for _ in range(60)]
        a, b = Field("header", "a"), Field("header", "b")
        operands = [Arith(op, a, b), Arith(op, Negate(a), b)]
        operands += [
            Arith(op, *pair)
            for c in rng.sample(numbers, 12)
            for pair in ((a, Literal(c)), (Literal(c), a))
        ]
        questions = []
        for operand in operands:
            for other in (0, 0.0, 1, 1e300, -(2**62), Arith("+", b, Literal(1))):
                right = other if isinstance(other, Arith) else Literal(other)
                tree = Compare(rng.choice(COMPARE_OPS), operand, right)
                questions += [Question(tree, message) for message in rng.sample(rows, 12)]
        assert_agrees(engine, questions)

    def test_long_and_deep_filters_are_answered(self, engine):
        deep = Field("header", "a")
        for _ in range(60):
            deep = Arith("+", deep, Field("header", "a"))
        many = tuple(Field("header", f"h{i}") for i in range(1024))
        wide = [Compare("=", Field("header", f"h{i}"), Literal(i)) for i in range(2000)]
        trees = [
            Compare("=", deep, Literal(61)),
            In(Field("header", "a"), many),
            In(Field("header", "a"), many, negated=True),
            In(Field("header", "a"), tuple(Literal(i) for i in range(1024))),
            Or(tuple(wide)),
            And((*wide, Compare("=", Field("header", "a"), Literal(1)))),
            Or(
                tuple(
                    And((term, Compare(">", Field("header", "b"), Field("header", "c"))))
                    for term in wide
                )
            ),
        ]
        messages = [
            with_headers(a=1),
            with_headers(a=1, h3=1, h7=7),
            with_headers(**{f"h{i}": i for i in range(2000)}, a=1),
        ]
        assert_agrees(engine, [Question(tree, message) for tree in trees for message in messages])

    def test_a_like_with_twenty_wildcards_over_ten_thousand_characters_is_quick(self, engine):
        text = with_headers(a="ab" * 5_000)
        hostile = [
            "%a" * 20 + "%c",
            "%a_a" * 20 + "%c",
            "%_" * 20 + "c",
            "%ab%ba" * 10 + "%bb",
            "%" + "ab" * 20 + "%c",
        ]
        begin = time.perf_counter()
        assert ask(engine, Or(tuple(Like(Field("header", "a"), p) for p in hostile)), text) == [
            False
        ]
        assert time.perf_counter() - begin < 2

    def test_topics_that_match_are_not_confused_by_the_empty_word(self, engine):
        trees = [topic.matches(p).filter for p in (".#", "#.", "*", ".", "#")]
        topics = [Message(topic=t) for t in ("", ".", "a", ".a", "a.")]
        assert [ask(engine, tree, *topics) for tree in trees] == [
            [False, True, False, True, False],
            [False, True, False, False, True],
            [False, False, True, False, False],
            [False, True, False, False, False],
            [True, True, True, True, True],
        ]

    def test_close_may_be_called_twice(self, new_engine):
        engine = new_engine()
        engine.close()
        engine.close()


def _texts(words: tuple[str, ...], longest: int) -> list[str]:
    joined = (".".join(chosen) for n in range(longest + 1) for chosen in product(words, repeat=n))
    return list(dict.fromkeys(joined))

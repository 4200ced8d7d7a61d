"""Text -> tree, and what is said when it is none."""

import pickle
import time

import pytest

from headgate.errors import FilterError, FilterLimitError, FilterSyntaxError, FilterTypeError
from headgate.filters.nodes import (
    MAX_DEPTH,
    TRUE,
    And,
    Arith,
    Compare,
    Constant,
    Exists,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Now,
    Or,
    TopicMatch,
    check_depth,
)
from headgate.filters.parser import parse, parse_stored
from headgate.filters.printer import to_text

A, B, C = (Field("header", name) for name in "abc")
ONE, TWO = Literal(1), Literal(2)
TOPIC = Field("sys", "topic")
TIME = Field("sys", "timestamp")
HOUR = 3_600_000_000

TREES = {
    "": TRUE,
    " \t\n\r\f ": TRUE,
    "TRUE": Constant(True),
    "a": Compare("=", A, Literal(True)),
    "NOT a": Not(Compare("=", A, Literal(True))),
    "a = 1": Compare("=", A, ONE),
    "a != 1": Compare("<>", A, ONE),
    "1 <> a": Compare("<>", ONE, A),
    "(((a))) = (1)": Compare("=", A, ONE),
    "a = 'it''s'": Compare("=", A, Literal("it's")),
    'a = "say ""hi"""': Compare("=", A, Literal('say "hi"')),
    "a = -1": Compare("=", A, Literal(-1)),
    "a = - -1": Compare("=", A, ONE),
    "a = -9223372036854775808": Compare("=", A, Literal(-(2**63))),
    "a = +1": Compare("=", A, ONE),
    "a = +b": Compare("=", A, Arith("+", Literal(0), B)),
    "a = -b": Compare("=", A, Negate(B)),
    "a = 1.": Compare("=", A, Literal(1.0)),
    "a = .5e1": Compare("=", A, Literal(5.0)),
    "a = 1e23": Compare("=", A, Literal(1e23)),
    "a + 1 * 2 = b": Compare("=", Arith("+", A, Arith("*", ONE, TWO)), B),
    "a - 1 - 2 = b": Compare("=", Arith("-", Arith("-", A, ONE), TWO), B),
    "(a - b) % 2 = 1": Compare("=", Arith("%", Arith("-", A, B), TWO), ONE),
    "a IN (1, 'x', b, 1+1)": In(A, (ONE, Literal("x"), B, Arith("+", ONE, ONE))),
    "a NOT IN (TRUE)": In(A, (Literal(True),), negated=True),
    "a LIKE 'x%'": Like(A, "x%"),
    "a NOT LIKE 'x!%' ESCAPE '!'": Like(A, "x!%", "!", negated=True),
    "a BETWEEN 1 AND 2 AND b": And(
        (Compare(">=", A, ONE), Compare("<=", A, TWO), Compare("=", B, Literal(True)))
    ),
    "a NOT BETWEEN 1 AND 2": Not(And((Compare(">=", A, ONE), Compare("<=", A, TWO)))),
    "a IS NULL": IsNull(A),
    "a IS NOT NULL": IsNull(A, negated=True),
    "EXISTS(a)": Exists(A),
    "NOT EXISTS(a)": Exists(A, negated=True),
    "sys.topic MATCHES 'a.#'": TopicMatch("a.#"),
    "sys.topic NOT MATCHES 'a.#'": TopicMatch("a.#", negated=True),
    "matches = 1": Compare("=", Field("header", "matches"), ONE),
    "NOT matches = 1": Not(Compare("=", Field("header", "matches"), ONE)),
    "timestamp = 1 AND interval = 2": And(
        (
            Compare("=", Field("header", "timestamp"), ONE),
            Compare("=", Field("header", "interval"), TWO),
        )
    ),
    "a = 1 OR b = 1 AND c = 1": Or(
        (Compare("=", A, ONE), And((Compare("=", B, ONE), Compare("=", C, ONE))))
    ),
    "a = 1 and (b = 1 And c = 1)": And(
        (Compare("=", A, ONE), Compare("=", B, ONE), Compare("=", C, ONE))
    ),
    "NOT a = 1 AND b = 1": And((Not(Compare("=", A, ONE)), Compare("=", B, ONE))),
    "UTC() > 1": Compare(">", Now(), ONE),
    "[a] = 1": Compare("=", A, ONE),
    "`a` = 1": Compare("=", A, ONE),
    "[x-y z] = 1": Compare("=", Field("header", "x-y z"), ONE),
    "[[[key]]] = 1": Compare("=", Field("header", "[key]"), ONE),
    "[] = 1": Compare("=", Field("header", ""), ONE),
    "[select] = 1 AND select = 1": And((Compare("=", Field("header", "select"), ONE),) * 2),
    "a.b = 1": Compare("=", B, ONE),  # a is short for application_properties
    "application_properties.b = 1": Compare("=", B, ONE),
    "p.subject = 'x'": Compare("=", Field("property", "subject"), Literal("x")),
    "properties.message_id = 'x'": Compare("=", Field("sys", "id"), Literal("x")),
    "header.priority > 1": Compare(">", Field("sys", "priority"), ONE),
    "sys.filter_value = 'x'": Compare("=", Field("sys", "filter_value"), Literal("x")),
    "sys.timestamp > TIMESTAMP '1970-01-01T01:00:00Z'": Compare(">", TIME, Literal(HOUR)),
    "sys.timestamp > timestamp '1970-01-01 01:00:00.000001'": Compare(">", TIME, Literal(HOUR + 1)),
    "sys.timestamp > TIMESTAMP '1970-01-01T03:00:00+02:00'": Compare(">", TIME, Literal(HOUR)),
    "sys.timestamp > INTERVAL '1h 30m'": Compare(">", TIME, Literal(HOUR * 3 // 2)),
    "sys.timestamp > INTERVAL '2 days'": Compare(">", TIME, Literal(HOUR * 48)),
}


@pytest.mark.parametrize("text", TREES)
def test_text_parses_to_its_tree(text):
    assert parse(text) == TREES[text]


@pytest.mark.parametrize(
    ("text", "at", "problem", "expected"),
    [
        ("a = ", 4, "ends too early", "a value"),
        ("a == 1", 3, "unexpected '='", "a value"),
        ("a = 1 b = 2", 6, "unexpected 'b'", "the end"),
        ("(a = 1", 6, "ends too early", "')'"),
        ("a = 1)", 5, "unexpected ')'", "the end"),
        ("a IN ()", 6, "unexpected ')'", "a value"),
        ("a IN (1", 7, "ends too early", "','"),
        ("a LIKE b", 7, "unexpected 'b'", "text in quotes"),
        ("a NOT 5", 6, "unexpected '5'", "LIKE"),
        ("a IS 5", 5, "unexpected '5'", "NULL"),
        ("a BETWEEN 1 OR 2", 12, "unexpected 'OR'", "AND"),
        ("AND a", 0, "unexpected 'AND'", "a value"),
        ("a AND", 5, "ends too early", "a value"),
        ("a = 'x", 4, "has no closing quote", None),
        ("[a = 1", 0, "has no closing quote", None),
        ("a = 1 && b", 6, "joined with AND and OR", None),
        ("a = 1; DROP TABLE x", 5, "unexpected character ';'", None),
        ("a = 0x1F", 4, "malformed number", None),
        ("a = 10L", 4, "malformed number", None),
        ("a = 9223372036854775808", 4, "does not fit into 64 bits", None),
        ("a = 1 - 9223372036854775808", 8, "does not fit into 64 bits", None),
        ("a = -9223372036854775809", 5, "does not fit into 64 bits", None),
        ("a = 1e999", 4, "too large for a float", None),
        ("a AND 5", 6, "a value where a condition is needed", None),
        ("5", 0, "a value where a condition is needed", None),
        ("'x' OR a", 0, "a value where a condition is needed", None),
        ("a + 1", 0, "a value where a condition is needed", None),
        ("NOT UTC()", 4, "a value where a condition is needed", None),
        ("(a = 1) = TRUE", 1, "a condition where a value is needed", None),
        ("a + (b = 1) = 2", 5, "a condition where a value is needed", None),
        ("a IN (b = 1)", 8, "unexpected '='", None),
        ("a + 'x' = 'y'", 4, "+ needs a number here", None),
        ("-'x' = 1", 1, "- needs a number here", None),
        ("5 IS NULL", 0, "IS NULL needs the name of a header or field", None),
        ("lower = 1", 0, "'lower' is a reserved word; write [lower]", None),
        ("my.key = 1", 0, "write [my.key] for the header", None),
        ("b = 1 AND my.own.key_2 = 1", 10, "write [my.own.key_2] for the header", None),
        ("sys.colour = 1", 0, "sys has topic, priority", None),
        ("p.colour = 1", 0, "p has absolute_expiry_time", None),
        ("header.ttl = 1", 0, "header has priority", None),
        ("a LIKE 'x!' ESCAPE '!'", 19, "ends with its escape character", None),
        ("a LIKE 'x' ESCAPE '%'", 18, "one character other than", None),
        ("a LIKE 'x' ESCAPE 'ab'", 18, "one character other than", None),
        ("a MATCHES 'x'", 0, "MATCHES compares sys.topic", None),
        ("sys.topic MATCHES '" + "x" * 256 + "'", 18, "256 bytes long", None),
        ("sys.timestamp > TIMESTAMP 'soon'", 16, "'soon' is not a valid timestamp", None),
        *(
            (
                f"sys.timestamp > TIMESTAMP '{text}'",
                16,
                "is not a valid timestamp; write it like",
                None,
            )
            for text in (
                "2026-01-31x12:00:00",
                "2026-01-31_12:00",
                "2026-01-31-12",
                "2026-01-31512",
                "2026-01-31é12:00",
                "2026-01-31 T12:00",
                "20260131W12",
                "2026-01-31T",
                "2026-01",
                "２026-01-31",
                "2026-01-31T12:00 +01:00 x",
                "",
            )
        ),
        ("sys.timestamp > INTERVAL '5 parsecs'", 16, "'5 parsecs' is not a valid interval", None),
        ("a = 'x\x00'", 4, "NUL", None),
        ("a = 'x\ud800'", 4, "surrogates", None),
        ("[a\nb] = 1", 0, "control characters", None),
        ("UTC(5) > 1", 4, "unexpected '5'", "')'"),
    ],
)
def test_bad_text_is_refused_where_it_is_wrong(text, at, problem, expected):
    with pytest.raises(FilterSyntaxError) as refused:
        parse(text)
    assert problem in refused.value.problem
    assert refused.value.at == at
    if expected is not None:
        assert expected in refused.value.expected


def test_an_error_shows_the_line_and_a_caret_under_the_column():
    with pytest.raises(FilterSyntaxError) as refused:
        parse("region = 'EU'\n  AND amount > > 5")
    assert (refused.value.line, refused.value.column) == (2, 16)
    assert str(refused.value) == (
        "unexpected '>' at line 2, column 16; expected a value\n    AND amount > > 5\n                 ^"
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a == 1", "equality is a single ="),
        ("a = NULL", "write IS NULL"),
        ("a ILIKE 'x%'", "upper and lower case differ"),
        ("STARTSWITH(a, 'x')", "write LIKE 'text%'"),
        ("trim(a) = 'x'", "there is no function trim"),
        ("lower (a) = 'x'", "there is no function lower"),
        ("a > NOW()", r"write UTC\(\)"),
    ],
)
def test_what_other_languages_write_is_refused_with_what_to_write_here(text, hint):
    with pytest.raises(FilterSyntaxError, match=hint):
        parse(text)


def test_an_error_survives_pickling():
    with pytest.raises(FilterSyntaxError) as refused:
        parse("a = ")
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


@pytest.mark.parametrize("value", [None, 5, b"a = 1"])
def test_a_value_that_is_not_text_is_refused(value):
    with pytest.raises(FilterTypeError):
        parse(value)


HOSTILE = {
    "parentheses": "(" * 10_000,
    "a long string": "a = '" + "x" * 100_000 + "'",
    "many tokens": "a " * 100_000,
    "commas": "a IN (" + "1," * 8_000 + "1)",
    "long IN list": "a IN (" + "1," * 1_024 + "1)",
    "minus signs": "a = " + "-" * 4_000 + "b",
    "nots": "NOT " * 2_000 + "a",
    "a sum": "a" + "+1" * 2_000 + " = 1",
    "open quotes": "'" * 16_383,
    "open brackets": "[" * 16_383,
    "dots": "." * 16_000,
}


def seconds_to_refuse(text: str, refusal: type[FilterError]) -> float:
    """The best of three: a collection of garbage may fall into any one of them."""

    def once() -> float:
        started = time.thread_time()
        with pytest.raises(refusal):
            parse(text)
        return time.thread_time() - started

    return min(once() for _ in range(3))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_at_once(name):
    assert seconds_to_refuse(HOSTILE[name], FilterError) < 0.2


@pytest.mark.parametrize("name", ["parentheses", "a long string", "many tokens"])
def test_text_beyond_a_limit_is_refused_before_it_is_parsed(name):
    assert seconds_to_refuse(HOSTILE[name], FilterLimitError) < 0.005


def test_a_limit_error_names_the_limit():
    with pytest.raises(FilterLimitError, match="16,385 characters, the limit is 16,384"):
        parse("a" * 16_385)
    with pytest.raises(FilterLimitError, match="16,385 characters, the limit is 16,384"):
        parse(" " * 16_385)
    with pytest.raises(FilterLimitError, match="65 open parentheses, the limit is 64"):
        parse("(" * 65 + "a" + ")" * 65)
    with pytest.raises(FilterLimitError, match="levels of nesting"):
        parse("NOT " * 70 + "a")


@pytest.mark.parametrize(
    ("inside", "levels"),
    [("a", 2), ("a = 1", 2), ("a BETWEEN 1 AND 2", 3), ("a NOT BETWEEN 1 AND +b", 5)],
)
def test_every_form_is_refused_from_the_first_level_too_many(inside, levels):
    most = MAX_DEPTH - levels
    check_depth(parse("NOT " * most + inside))
    with pytest.raises(FilterLimitError, match="65 levels of nesting"):
        parse("NOT " * (most + 1) + inside)


def test_text_within_the_limits_is_accepted():
    assert parse("(" * 64 + "a = 1" + ")" * 64) == Compare("=", A, ONE)
    assert len(parse("a IN (" + ",".join(map(str, range(1_024))) + ")").items) == 1_024
    assert len(parse(" AND ".join(f"h{i} = {i}" for i in range(1_000))).terms) == 1_000


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(f"f{n}" for n in range(1_500)),  # `f1 = TRUE` is three tokens
        "a " + "BETWEEN 1 AND 2 OR a " * 600 + "= 1",
    ],
)
def test_a_filter_that_prints_longer_than_one_may_write_is_read_where_it_is_stored(text):
    tree = parse(text)
    with pytest.raises(FilterLimitError):
        parse(to_text(tree))
    assert parse_stored(to_text(tree)) == tree


def test_more_digits_than_python_reads_are_refused_where_they_begin():
    with pytest.raises(FilterSyntaxError, match="does not fit into 64 bits") as refused:
        parse("a = " + "9" * 5000)
    assert refused.value.at == 4
    assert parse("a = " + "0" * 5000 + "7") == parse("a = 7")


@pytest.mark.parametrize("text", [[], {}, set(), ["a = 1"], None, 5, b"a = 1", bytearray()])
def test_text_of_another_type_is_refused(text):
    with pytest.raises(FilterTypeError, match=f"a filter is text, not {type(text).__name__}"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "1970-01-01T01:00:00Z", "1970-01-01 01:00", "1970-01-01T01:00:00.000000", "19700101T010000",
        "1970-01-01T03:00+02:00", "1970-W01-4T01:00", "  1970-01-01T01:00  ",
        "1970-01-01t01:00:00z",
    ],
)  # fmt: skip
def test_a_timestamp_is_written_as_in_iso_8601(text):
    assert parse(f"sys.timestamp > TIMESTAMP '{text}'") == Compare(">", TIME, Literal(HOUR))

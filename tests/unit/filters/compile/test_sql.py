"""The SQL a filter becomes: what is in the text, what is bound, what is left to Python."""

from __future__ import annotations

import struct
from random import Random

import apsw
import pytest

from headgate.check.engines import Question
from headgate.check.sql import open_sqlite
from headgate.errors import FilterTypeError
from headgate.filters.builder import header
from headgate.filters.compile.sql import (
    Layout,
    Sql,
    compile_sql,
    headers_json,
    index_expression,
    index_statement,
)
from headgate.filters.logic import matches_filter
from headgate.filters.nodes import (
    And,
    Arith,
    Compare,
    Field,
    In,
    Like,
    Literal,
    Now,
    Or,
    TopicMatch,
)
from headgate.filters.normal import normalize
from headgate.filters.parser import parse
from headgate.filters.printer import to_text
from headgate.message import OPAQUE
from tests import generate
from tests.conformance.sql_engine import HOSTILE, random_doubles

DIALECTS = ("sqlite", "postgres")
both_dialects = pytest.mark.parametrize("dialect", DIALECTS)


# ---- headers as JSON ---------------------------------------------------------------------------------


def test_headers_are_written_so_that_their_kinds_stay_apart():
    headers = {
        "s": 'it\'s "é"\n',
        "i": 1,
        "f": 1.0,
        "t": True,
        "n": False,
        "none": None,
        "list": OPAQUE,
    }
    assert (
        headers_json(headers)
        == r'{"s":"it' + "'" + r's \"é\"\n","i":1,"f":1.0,"t":true,"n":false,"list":null}'
    )
    assert headers_json({}) == "{}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e16, "10000000000000000.0"),
        (1e22, "10000000000000000000000.0"),
        (1e-7, "0.0000001"),
        (-0.0, "-0.0"),
        (5e-324, "0." + "0" * 323 + "5"),
        (1.5e300, "15" + "0" * 299 + ".0"),
    ],
)
def test_a_float_has_a_point_and_no_exponent(value, text):
    assert headers_json({"x": value}) == f'{{"x":{text}}}'


def test_every_double_comes_back_from_sqlite_as_it_was(seed):
    doubles = random_doubles(Random(seed), 40_000)
    rows = apsw.Connection(":memory:").execute(
        "SELECT json_extract(value, '$.x'), json_type(value, '$.x') FROM json_each(?)",
        ("[" + ",".join(headers_json({"x": value}) for value in doubles) + "]",),
    )
    for value, (found, kind) in zip(doubles, rows, strict=True):
        assert kind == "real"
        assert struct.pack("<d", found) == struct.pack("<d", value)


# ---- text and parameters -----------------------------------------------------------------------------


def test_fragments_join_with_their_parameters():
    a, b = Sql("a = ?", (1,)), Sql("b = ?", ("x",))
    assert a.and_also(b) == Sql("(a = ?) AND (b = ?)", (1, "x"))


def test_placeholders_are_question_marks_or_numbered_from_the_first_parameter():
    tree = parse("region = 'EU' AND sys.priority > 5")
    assert compile_sql(tree, "sqlite").where == Sql(
        "(json_extract(headers, '$.\"region\"') = ? AND priority > ?)", ("EU", 5)
    )
    assert compile_sql(tree, "postgres", first_parameter=4).where == Sql(
        "(((headers ->> 'region') COLLATE \"C\" = $4::text AND jsonb_typeof(headers -> 'region') = 'string') "
        "AND priority > $5::bigint)",
        ("EU", 5),
    )


@both_dialects
def test_a_layout_says_where_the_parts_of_a_message_are(dialect):
    layout = Layout.of("m")
    text = "a = 1 AND p.subject = 'x' AND sys.topic = 't' AND sys.key = 'k' AND sys.timestamp > 5"
    found = compile_sql(parse(text), dialect, layout=layout).where.text
    for column in ("m.headers", "m.properties", "m.topic", "m.key", "m.timestamp"):
        assert column in found


@both_dialects
@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_of_a_filter_becomes_part_of_the_text(dialect, hostile):
    mark = f"zqx {hostile} zqx"
    subject = header(mark)
    conditions = [
        subject == mark,
        subject >= mark,
        subject.is_in(mark, "y", 5),
        subject.like(f"{mark}%z"),
        subject.not_like(f"%{mark}"),
        subject + 1 > header("b") * 2.5,
        subject.exists(),
    ]
    tree = Or((*(condition.filter for condition in conditions), TopicMatch(f"{mark}.*")))
    where = compile_sql(tree, dialect).where
    assert "zqx" not in where.text
    assert sum("zqx" in str(value) for value in where.params) >= len(conditions)


@both_dialects
def test_only_names_from_a_strict_list_become_part_of_the_text(dialect):
    for name in ("region", "x-y", "_a1", "x" * 63):
        assert name in compile_sql((header(name) == 1).filter, dialect).where.text
    for name in ("", "1a", "-a", "é", "a b", "a.b", "a'", "x" * 64, "ＡＢ", "a\u2028"):
        plan = compile_sql(Compare("=", Field("header", name), Literal(1)), dialect)
        assert len(plan.where.params) > 1


# ---- the index ---------------------------------------------------------------------------------------


@pytest.fixture
def messages():
    """A table with an index on the header `region`."""
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE messages (id TEXT, headers TEXT NOT NULL)")
    connection.execute(index_statement("sqlite", "region"))
    return connection


def plan_of(connection: apsw.Connection, text: str) -> str:
    where = compile_sql(parse(text), "sqlite", layout=Layout.of("m")).where
    statement = f"EXPLAIN QUERY PLAN SELECT * FROM messages AS m WHERE {where.text}"
    return "\n".join(row[3] for row in connection.execute(statement, where.params))


@pytest.mark.parametrize(
    "text",
    [
        "region = 'EU'",
        "region IN ('EU', 'US')",
        "region LIKE 'EU%'",
        "region LIKE 'EU_x%'",
        "region > 'EU'",
        "region BETWEEN 'A' AND 'F'",
        "region = 5",
        "amount > 5 AND region = 'EU' AND name LIKE '%x'",
    ],
)
def test_conditions_on_a_header_use_its_index(messages, text):
    assert "USING INDEX messages_region" in plan_of(messages, text)


@pytest.mark.parametrize("text", ["amount = 5", "region <> 'EU'", "region LIKE '%EU'"])
def test_other_conditions_do_not_use_the_index(messages, text):
    assert "USING INDEX" not in plan_of(messages, text)


@both_dialects
def test_the_condition_holds_the_index_expression_word_for_word(dialect):
    expression = index_expression(dialect, "region", Layout.of("m"))
    for text in ("region = 'EU'", "region IN ('EU', 'US')", "region LIKE 'E%'", "region < 'F'"):
        found = compile_sql(parse(text), dialect, layout=Layout.of("m")).where.text
        assert expression in found


@both_dialects
def test_a_name_that_is_bound_cannot_be_indexed(dialect):
    with pytest.raises(FilterTypeError, match="cannot be indexed"):
        index_expression(dialect, "it's")
    assert index_statement(dialect, "it's").startswith("-- ")


# ---- what is left to Python --------------------------------------------------------------------------


@both_dialects
@pytest.mark.parametrize(
    "text",
    [
        "",
        "region = 'EU' AND amount > 1000 AND type IN ('a', 'b', 'c') AND name LIKE 'ord%'",
        "a = b OR NOT (c < 5 AND d LIKE '%x_')",
        "sys.topic MATCHES 'orders.*.created' OR sys.topic MATCHES 'orders.#'",
        "sys.topic NOT MATCHES '#.b'",
        "price * 0.9 - 1 >= 100 AND 1 / price < 3",
        "sys.priority + 1 > 5",
    ],
)
def test_common_filters_are_answered_by_sql_alone(dialect, text):
    plan = compile_sql(parse(text), dialect)
    assert (plan.residual, plan.reasons) == (None, ())


@pytest.mark.parametrize(
    ("dialect", "text", "word"),
    [
        ("sqlite", "a % 2 = 1", "remainder"),
        ("postgres", "a % 2 = 1", "remainder"),
        ("postgres", "a * b > 5", "overflows"),
        ("postgres", "a + b > 5", "overflows"),
        ("sqlite", "sys.topic MATCHES 'a.*.b.#'", "regular expressions"),
        ("sqlite", "sys.topic NOT MATCHES '#.a.*'", "regular expressions"),
        ("sqlite", "a > UTC()", "without now_us"),
        ("postgres", "a > UTC()", "without now_us"),
    ],
)
def test_a_term_that_sql_would_answer_differently_is_residual_with_a_reason(dialect, text, word):
    plan = compile_sql(parse(f"region = 'EU' AND {text}"), dialect)
    assert plan.residual == normalize(parse(text)).tree
    assert len(plan.reasons) == 1
    assert word in plan.reasons[0]
    assert "region" in plan.where.text


def test_each_term_of_a_residual_has_its_own_reason():
    plan = compile_sql(parse("a % 2 = 1 AND region = 'EU' AND sys.topic MATCHES '#.a.*'"), "sqlite")
    assert {to_text(term) for term in plan.residual.terms} == {
        "a % 2 = 1",
        "sys.topic MATCHES '#.a.*'",
    }
    assert len(plan.reasons) == 2


def test_a_pattern_longer_than_sqlite_accepts_is_left_to_python():
    tree = Like(Field("header", "a"), "ab%" + "x" * 50_001)
    plan = compile_sql(tree, "sqlite")
    assert plan.residual == tree
    assert plan.where.params == ("ab", "ac")
    assert compile_sql(tree, "postgres").residual is None


def test_with_a_moment_utc_is_a_number_like_any_other():
    plan = compile_sql(
        Compare(">", Field("header", "a"), Now()), "sqlite", now_us=1_750_000_000_000
    )
    assert plan.residual is None
    assert plan.where.params == (1_750_000_000_000,)


@both_dialects
def test_a_condition_too_long_for_a_database_is_left_to_python(dialect):
    fields = tuple(Field("header", f"h{i}") for i in range(1024))
    wide = In(Field("header", "a"), fields)
    plan = compile_sql(And((parse("region = 'EU'"), wide)), dialect)
    assert plan.residual == wide
    assert "longer than a database accepts" in plan.reasons[0]
    assert plan.where.params == ("EU",)


@both_dialects
def test_arithmetic_of_any_depth_compiles_to_text_of_bounded_length(dialect):
    chain, halves = Field("header", "a"), Field("header", "a")
    for _ in range(60):
        chain, halves = Arith("+", chain, Field("header", "b")), Arith("*", halves, Literal(0.5))
        for operand in (chain, halves):
            plan = compile_sql(Compare(">", operand, Field("header", "c")), dialect)
            assert len(plan.where.text) < 100_000
    plan = compile_sql(Compare(">", chain, Literal(1)), dialect)
    assert plan.residual == Compare(">", chain, Literal(1))
    assert plan.where.text.count(" AND ") == 1  # both are numbers, more is not said


def test_the_where_alone_lets_through_every_match_and_nothing_else_when_it_is_exact(seed):
    rng = Random(seed)
    rows = generate.messages(rng, 20)
    trees = [generate.filter(rng) for _ in range(300)]
    with open_sqlite(clock=lambda: generate.NOW_US) as engine:
        found = engine.candidates([Question(tree, message) for tree in trees for message in rows])
    for i, tree in enumerate(trees):
        residual = compile_sql(tree, "sqlite", now_us=generate.NOW_US).residual
        for message, let_through in zip(rows, found[i * 20 :], strict=False):
            expected = matches_filter(tree, message, generate.NOW_US)
            assert let_through >= expected, to_text(tree)
            assert residual is not None or let_through == expected, to_text(tree)

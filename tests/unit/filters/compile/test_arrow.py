"""The Arrow mask: TRUE exactly where the reference says so, however the columns are laid out."""

import random
import sys
import time

import numpy as np
import pyarrow as pa
import pytest

from headgate.check.engines import ROWS_PER_BATCH, ArrowCheck, Question
from headgate.columns.decode import BatchColumns
from headgate.columns.shred import shred_messages
from headgate.filters.compile.arrow import compile_mask
from headgate.filters.compile.arrow.text import (
    MAX_BYTES_OF_ONE,
    MAX_REGEX_PATTERN,
    SMALL,
    forget_dictionaries,
)
from headgate.filters.like import compile_like
from headgate.filters.logic import matches_filter
from headgate.filters.nodes import Field, Like, TopicMatch
from headgate.filters.parser import parse
from headgate.filters.printer import to_text
from headgate.filters.topics import matches
from headgate.message import INT64_MAX, INT64_MIN, OPAQUE, Message
from tests import generate

S = Field("header", "s")


def clock() -> int:
    return generate.NOW_US


def mask_of(text, batch, at=clock):
    return compile_mask(parse(text), at)(BatchColumns(batch)).tolist()


def strings(values, **fields) -> list[Message]:
    return [Message(headers={"s": value}, **fields) for value in values]


def reference(text, messages):
    return [matches_filter(parse(text), message, generate.NOW_US) for message in messages]


# ---- layouts -----------------------------------------------------------------------------------------


def as_plain(column):
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def with_codes(index_type):
    def encode(column):
        encoded = as_plain(column).dictionary_encode()
        indices = encoded.indices.cast(index_type)
        return pa.DictionaryArray.from_arrays(indices, encoded.dictionary)

    return encode


def nulls_in_the_dictionary(column):
    return as_plain(column).dictionary_encode(null_encoding="encode")


def repeated_and_unused_values(column):
    """Every value twice in the dictionary, among others that no row uses; some nulls are codes, some not."""
    values = as_plain(column).to_pylist()
    entries = [
        *dict.fromkeys(values),
        *(f"unused {i}" for i in range(50)),
        *dict.fromkeys(values),
        None,
    ]
    places = {value: [i for i, e in enumerate(entries) if e == value] for value in {*values, None}}
    codes = [
        None if value is None and row % 2 else places[value][row % len(places[value])]
        for row, value in enumerate(values)
    ]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.uint16()), pa.array(entries))


def sorted_dictionary(column):
    values = as_plain(column).to_pylist()
    entries = sorted({value for value in values if value is not None})
    codes = [None if value is None else entries.index(value) for value in values]
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, pa.int16()), pa.array(entries, pa.string())
    )


def slice_of_a_dictionary(column):
    encoded = as_plain(column).dictionary_encode()
    longer = pa.concat_arrays([pa.array(["cut", "off"]), encoded.dictionary, pa.array(["too"])])
    return pa.DictionaryArray.from_arrays(encoded.indices, longer.slice(2, len(longer) - 3))


LAYOUTS = {
    "plain": as_plain,
    "large_string": lambda column: as_plain(column).cast(pa.large_string()),
    "string_view": lambda column: as_plain(column).cast(pa.string_view()),
    "int8 codes": with_codes(pa.int8()),
    "int16 codes": with_codes(pa.int16()),
    "int32 codes": with_codes(pa.int32()),
    "uint8 codes": with_codes(pa.uint8()),
    "codes of string_view": lambda column: pa.DictionaryArray.from_arrays(
        (encoded := as_plain(column).dictionary_encode()).indices,
        encoded.dictionary.cast(pa.string_view()),
    ),
    "nulls in the dictionary": nulls_in_the_dictionary,
    "repeated and unused values": repeated_and_unused_values,
    "sorted dictionary": sorted_dictionary,
    "slice of a dictionary": slice_of_a_dictionary,
}


def relaid(batch, layout):
    """The batch with every column of strings in another layout."""
    columns = [
        layout(column) if pa.types.is_string(as_plain(column).type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


@pytest.fixture(scope="module")
def answered(seed):
    """A batch, and filters with the answer of the reference for each of its messages."""
    rng = random.Random(seed)
    messages = generate.messages(rng, 120)
    trees = [generate.filter(rng) for _ in range(40)]
    answers = [[matches_filter(tree, m, generate.NOW_US) for m in messages] for tree in trees]
    return shred_messages(messages), list(zip(trees, answers, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("rows", [(0, 120), (3, 117), (64, 65)], ids=str)
def test_every_layout_gives_the_reference_answer(layout, rows, answered):
    whole, questions = answered
    batch = relaid(whole, layout).slice(rows[0], rows[1] - rows[0])
    for tree, answers in questions:
        found = compile_mask(tree, clock)(BatchColumns(batch))
        assert found.dtype == np.bool_
        assert found.tolist() == answers[slice(*rows)], to_text(tree)


def test_left_and_right_may_be_laid_out_differently():
    words = ["a", "b", "c", None, "é", "z"]
    messages = [Message(headers={"s": a, "t": b}) for a in words for b in words] * 3
    batch = shred_messages(messages)
    texts = [f"s {op} t" for op in ("=", "<>", "<", "<=", ">", ">=")]
    expected = {text: reference(text, messages) for text in texts}
    for left in LAYOUTS.values():
        for right in LAYOUTS.values():
            columns = {"h.s.s": left(batch["h.s.s"]), "h.s.t": right(batch["h.s.t"])}
            mixed = pa.RecordBatch.from_pydict(columns)
            assert {text: mask_of(text, mixed) for text in texts} == expected


def test_no_rows_give_an_empty_mask():
    batch = shred_messages(strings("abc"))
    assert mask_of("s = 'a' AND sys.topic MATCHES 'x' OR amount > 1", batch.slice(0, 0)) == []
    assert mask_of("TRUE", shred_messages([])) == []


def test_a_missing_column_holds_no_value():
    batch = shred_messages([Message(), Message()])
    assert (
        mask_of("s = 'a' OR n <> 1 OR NOT b OR s LIKE '%' OR s = t OR n + 1 > 0", batch)
        == [False] * 2
    )
    assert mask_of("s IS NULL AND NOT EXISTS(n) AND sys.id IS NULL", batch) == [True, True]


@pytest.mark.parametrize(
    "empty",
    [
        pa.nulls(3),
        pa.nulls(3, pa.string()),
        pa.nulls(3, pa.dictionary(pa.int8(), pa.string())),
        pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int8()), pa.nulls(1, pa.string())),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 0], pa.int8()), pa.nulls(1)),
    ],
    ids=lambda array: str(array.type),
)
def test_a_column_of_nulls_holds_no_value(empty):
    batch = pa.RecordBatch.from_pydict(
        {"h.s.s": empty, "h.i.n": pa.nulls(3, pa.int64()), "h.f.n": pa.nulls(3)}
    )
    assert (
        mask_of("s = 'a' OR s <> 'a' OR n > 0 OR n <= 0 OR s NOT IN ('a', 'b')", batch)
        == [False] * 3
    )
    assert mask_of("s IS NULL AND n IS NULL", batch) == [True] * 3


def test_an_opaque_value_exists_and_compares_with_nothing():
    messages = strings([OPAQUE, "a", None, 1])
    batch = shred_messages(messages)
    assert mask_of("EXISTS(s)", batch) == [True, True, False, True]
    assert mask_of("s IS NULL", batch) == [True, False, True, False]
    assert mask_of("s = 'a' OR s <> 'a'", batch) == [False, True, False, False]


# ---- numbers -----------------------------------------------------------------------------------------

EDGES = [
    0,
    1,
    -1,
    2,
    3,
    -7,
    2**31,
    3_037_000_500,
    2**53,
    2**53 + 1,
    2**62,
    INT64_MAX,
    INT64_MIN,
    INT64_MIN + 1,
]
DOUBLES = [0.0, -0.0, 0.5, -2.5, 1e308, 5e-324, float(2**53), float(2**63), -float(2**63)]


@pytest.mark.parametrize("op", "+-*/%")
def test_arithmetic_is_exact_at_the_edges_of_int64_and_of_double(op):
    numbers = EDGES + DOUBLES
    messages = [Message(headers={"a": a, "b": b}) for a in numbers for b in numbers]
    batch = shred_messages(messages)
    for text in (
        f"a {op} b = c",
        f"a {op} b >= 0",
        f"a {op} b < 0",
        f"-(a {op} b) <> 1",
        f"a {op} b = b {op} a",
    ):
        assert mask_of(text, batch) == reference(text, messages)
    for constant in (*EDGES, *DOUBLES):
        text = f"a {op} {constant!r} >= b OR {constant!r} {op} a < b"
        assert mask_of(text, batch) == reference(text, messages)


@pytest.mark.parametrize("value", EDGES + DOUBLES, ids=repr)
def test_a_column_of_both_kinds_of_numbers_compares_with_a_constant(value):
    messages = [Message(headers={"a": a}) for a in [*EDGES, *DOUBLES, "1", True, None]]
    batch = shred_messages(messages)
    for op in ("=", "<>", "<", "<=", ">", ">="):
        assert mask_of(f"a {op} {value!r}", batch) == reference(f"a {op} {value!r}", messages)


@pytest.mark.parametrize("count", [2, 5, 20])
def test_in_finds_numbers_of_both_kinds_in_short_and_long_lists(count, seed):
    rng = random.Random(seed)
    messages = [Message(headers={"a": a}) for a in [*EDGES, *DOUBLES, "1", True, None]]
    for _ in range(20):
        listed = ", ".join(repr(rng.choice(EDGES + DOUBLES)) for _ in range(count))
        for text in (f"a IN ({listed})", f"a NOT IN ({listed})", f"a IN ('1', {listed}, TRUE)"):
            assert mask_of(text, shred_messages(messages)) == reference(text, messages)


def test_the_priority_compares_beyond_what_a_byte_holds():
    messages = [Message(priority=p) for p in (0, 1, 255)]
    batch = shred_messages(messages)
    for text in (
        "sys.priority < 256",
        "sys.priority > -1",
        "sys.priority + 1 = 256",
        "sys.priority IN (255, 511)",
    ):
        assert mask_of(text, batch) == reference(text, messages)


# ---- strings -----------------------------------------------------------------------------------------

PREFIXES = ["o", "or", "ord", "orde", "order", "é", "éo", "€", "😀", "0", "z"]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("last", ["", "o", "or", "ord", "orders", "é"])
def test_a_prefix_is_found_wherever_the_text_ends(layout, last):
    values = ["", *PREFIXES, *(f"{p}x" for p in PREFIXES), None, *map(str, range(SMALL)), last]
    batch = relaid(shred_messages(strings(values)), layout)
    for prefix in PREFIXES:
        expected = [value is not None and value.startswith(prefix) for value in values]
        assert mask_of(f"s LIKE '{prefix}%'", batch) == expected
        assert mask_of(f"s LIKE '{prefix}%'", batch.slice(3)) == expected[3:]
        others = [value is not None and not value.startswith(prefix) for value in values]
        assert mask_of(f"s NOT LIKE '{prefix}%'", batch) == others


def test_a_prefix_is_found_in_no_empty_string():
    for values in (["", "", None], ["", "o", ""]):
        batch = relaid(shred_messages(strings(values)), as_plain)
        assert mask_of("s LIKE 'or%'", batch) == [False] * 3
        assert mask_of("s NOT LIKE 'or%'", batch) == [value is not None for value in values]


WORDS = [f"{a}{b}" for a in generate.STRINGS for b in ("", "a", "%", "x\n")]


def test_the_kernels_match_patterns_as_the_reference_does():
    many = list(dict.fromkeys(WORDS))
    assert len(many) > SMALL
    batch = shred_messages(strings(many))
    patterns = [
        *generate.PATTERNS,
        "a%b%c",
        "%a_",
        "_a%",
        "%.%",
        "a",
        "(?i)A",
        "a|b",
        "\\A",
        "^a$",
        "a%" * 30,
        "%a_" * 9,
    ]
    for pattern in patterns:
        holds = compile_like(pattern, None)
        for column in ("plain", "int32 codes"):
            found = compile_mask(Like(S, pattern))(BatchColumns(relaid(batch, LAYOUTS[column])))
            assert found.tolist() == [holds(word) for word in many], pattern


@pytest.mark.parametrize("start", [0, 3, 8, 13])
@pytest.mark.parametrize("pattern", ["%", "a%", "%b", "%a%", "_%"])
def test_a_slice_is_tested_on_its_own_rows(start, pattern):
    messages = strings([None, "a", "ab", None, "b", "", "ba", None] * 5)
    batch = relaid(shred_messages(messages), as_plain).slice(start, 20)
    for text in (f"s LIKE '{pattern}'", f"s NOT LIKE '{pattern}'"):
        assert mask_of(text, batch) == reference(text, messages[start : start + 20])


def test_a_pattern_too_long_for_a_regular_expression_is_matched_in_python():
    pattern = "%" + "a_" * MAX_REGEX_PATTERN + "%"
    values = ["x" + "ab" * MAX_REGEX_PATTERN, "ab" * (MAX_REGEX_PATTERN - 1), None]
    assert compile_mask(Like(S, pattern))(
        BatchColumns(shred_messages(strings(values)))
    ).tolist() == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("wildcards", ["%a_", "_a%", "%a", "a%_b%"])
def test_a_hostile_pattern_takes_linear_time(wildcards):
    batch = shred_messages(strings(["ab" * 5_000 + "a", "a" * 10_000, "é" * 10_000]))
    started = time.process_time()
    compile_mask(Like(S, wildcards * 20 + "q"))(BatchColumns(batch))
    assert time.process_time() - started < 0.1


def test_topics_match_alike_for_few_and_for_many():
    few = generate.TOPICS
    many = [f"{topic}{tail}" for topic in few for tail in ("", ".x", ".b", "y", "..")]
    for topics in (few, list(dict.fromkeys(many))):
        batch = shred_messages([Message(topic=topic) for topic in topics])
        for pattern in generate.TOPIC_PATTERNS:
            for layout in (as_plain, with_codes(pa.int32())):
                found = compile_mask(TopicMatch(pattern))(BatchColumns(relaid(batch, layout)))
                assert found.tolist() == [matches(pattern, topic) for topic in topics], pattern


# ---- dictionaries that come back ---------------------------------------------------------------------


def encoded(values, rows):
    codes = pa.array(np.arange(rows) % len(values), pa.int32())
    return pa.RecordBatch.from_pydict(
        {"h.s.s": pa.DictionaryArray.from_arrays(codes, pa.array(values, pa.string()))}
    )


def test_a_dictionary_seen_again_gets_equal_answers():
    forget_dictionaries()
    values = [f"value {i}" for i in range(500)]
    answers = [mask_of("s LIKE '%7' OR s = 'value 3'", encoded(values, 2_000)) for _ in range(4)]
    assert answers == [[v.endswith("7") or v == "value 3" for v in values * 4]] * 4


def test_a_dictionary_with_an_equal_key_is_not_mistaken_for_another():
    forget_dictionaries()
    values = [f"value {i:04}" for i in range(500)]
    changed = [*values[:400], "value 9999", *values[401:]]
    for words in (values, values, values, changed, changed, values):
        assert mask_of("s = 'value 0400'", encoded(words, 500)) == [
            w == "value 0400" for w in words
        ]


def as_read_from_a_file(batch):
    """The same batch in one buffer, of which its dictionary is a part."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def test_a_cached_dictionary_keeps_no_batch_alive():
    forget_dictionaries()
    before = pa.total_allocated_bytes()
    for _ in range(3):
        mask_of(
            "s LIKE '%7'",
            as_read_from_a_file(encoded([f"value {i}" for i in range(1_000)], 1_000_000)),
        )
    assert pa.total_allocated_bytes() - before < 1_000_000


@pytest.mark.parametrize("rows", [10, 100_000])
def test_a_dictionary_too_large_for_the_cache_is_answered(rows):
    values = [f"{i:06} {'x' * 30}" for i in range(40_000)]
    batch = encoded(values, rows)
    assert batch["h.s.s"].dictionary.nbytes > MAX_BYTES_OF_ONE
    expected = [values[row % len(values)].startswith("00000") for row in range(rows)]
    for _ in range(3):
        assert mask_of("s LIKE '00000%'", batch) == expected


# ---- what is asked, and of which rows ----------------------------------------------------------------


class Watched(BatchColumns):
    """Columns that note what is read."""

    def __init__(self, batch):
        super().__init__(batch)
        self.read = []

    def view(self, field, view):
        self.read.append(field.name)
        return super().view(field, view)


def read_by(text, batch):
    columns = Watched(batch)
    compile_mask(parse(text))(columns)
    return set(columns.read)


def test_a_conjunction_stops_when_no_row_is_left():
    batch = shred_messages([Message(topic="a", headers={"n": 1, "s": "x"})] * 3)
    assert read_by("s LIKE '%y%z' AND n = 2", batch) == {"n"}
    assert read_by("s LIKE '%y%z' AND n = 1", batch) == {"n", "s"}


def test_a_disjunction_stops_when_every_row_is_in():
    batch = shred_messages([Message(topic="a", headers={"n": 1, "s": "x"})] * 3)
    assert read_by("s LIKE '%y%z' OR n = 1", batch) == {"n"}
    assert read_by("s LIKE '%y%z' OR n = 2", batch) == {"n", "s"}


def test_a_filter_that_is_always_true_reads_nothing():
    assert read_by("TRUE", shred_messages([Message()])) == set()


def test_picked_rows_get_the_reference_answer(seed):
    """Costly terms are asked of the undecided rows only; there must be enough rows for that to pay."""
    rng = random.Random(seed)
    messages = [
        Message(
            id=f"{rng.getrandbits(64):016x}",
            headers={
                "n": rng.choice((*range(50), None)),
                "m": rng.random() if row % 3 else "x",
                "s": rng.choice(WORDS),
            },
        )
        for row in range(20_000)
    ]
    batch = shred_messages(messages)
    for text in (
        "n < 3 AND sys.id LIKE '%a_b%'",
        "n < 3 AND sys.id LIKE '%a_b%' AND n * 2 + m > 1.5 AND s <> sys.id AND s LIKE '%a%'",
        "n >= 3 OR sys.id LIKE '%a_b%' OR n + m > 1 OR s = 'a'",
        "n < 9 AND (sys.id LIKE '%a_b%' OR m IS NULL OR s > 'b' AND sys.id < '8')",
    ):
        assert mask_of(text, batch) == reference(text, messages)


def test_the_clock_is_read_once_for_a_batch():
    ticks = iter([5, 10])
    batch = shred_messages([Message(headers={"n": n}) for n in (4, 6, 11)])
    ask = compile_mask(parse("n > UTC() AND UTC() + 0 < n"), ticks.__next__)
    assert ask(BatchColumns(batch)).tolist() == [False, True, True]
    assert ask(BatchColumns(batch)).tolist() == [False, False, True]


def calls_inside_headgate(work):
    """The number of our own functions that are called."""
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event == "call" and frame.f_globals["__name__"].startswith("headgate.")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_a_term_over_a_new_dictionary_costs_few_calls():
    """In small batches the layers between the filter and the kernels cost more than the kernels."""
    forget_dictionaries()
    terms = ["a = 'x'", "b IN ('1', '2', '3')", "c LIKE 'value%'", "n > 10"]
    for count in range(1, len(terms) + 1):
        rows = range(4_096)
        headers = (
            {"a": "xyz"[i % 3], "b": str(i % 9), "c": f"value {i % 500}", "n": i} for i in rows
        )
        batch = shred_messages([Message(headers=values) for values in headers])
        mask, columns = compile_mask(parse(" AND ".join(terms[:count]))), BatchColumns(batch)
        assert (
            calls_inside_headgate(lambda mask=mask, columns=columns: mask(columns))
            <= 6 + 12 * count
        )


def test_codes_of_every_width_are_compared_as_they_are_stored():
    for type_, words in (
        (pa.int8(), 127),
        (pa.uint8(), 255),
        (pa.int16(), 300),
        (pa.uint64(), 300),
    ):
        values = [f"value {i:03}" for i in range(words)]
        codes = pa.array([*range(words), None], type_)
        batch = pa.RecordBatch.from_pydict(
            {"h.s.s": pa.DictionaryArray.from_arrays(codes, pa.array(values))}
        )
        for text, passes in (
            (f"s = 'value {words - 1:03}'", lambda v, last=values[-1]: v == last),
            (f"s <> 'value {words - 1:03}'", lambda v, last=values[-1]: v != last),
            ("s >= 'value 100'", lambda v: v >= "value 100"),
            ("s LIKE '%7'", lambda v: v.endswith("7")),
        ):
            for _ in range(3):  # the third time, the answers of the words are kept
                assert mask_of(text, batch) == [*map(passes, values), False]
        assert mask_of("s = s", batch) == [True] * words + [False]


def test_a_mask_is_the_callers_own():
    batch = shred_messages([Message(headers={"b": True, "s": "a"})] * 3)
    for text in ("b", "b IS NOT NULL", "s = 'a'", "TRUE", "s IN ('a', 'b')", "s = s"):
        found = compile_mask(parse(text))(BatchColumns(batch))
        found[:] = False
        assert mask_of(text, batch) == [True] * 3


def test_a_filter_is_compiled_once():
    assert compile_mask(parse("s = 'a'")) is compile_mask(parse("s   =   'a'"))


# ---- the engine of `headgate filter check` -----------------------------------------------------------


def test_the_engine_answers_in_the_order_of_the_questions(seed):
    rng = random.Random(seed)
    messages = generate.messages(rng, ROWS_PER_BATCH + 50)
    questions = [
        Question(generate.filter(rng), message) for message in rng.sample(messages, 60) * 2
    ] + [Question(parse("a > 1 OR region = 'EU'"), message) for message in messages]
    expected = [
        matches_filter(q.filter, q.message, now) for now in [generate.NOW_US] for q in questions
    ]
    answered = ArrowCheck().answer(questions)
    undated = [at for at, q in enumerate(questions) if "UTC()" not in to_text(q.filter)]
    assert [answered[at] for at in undated] == [expected[at] for at in undated]


def test_no_questions_have_no_answers():
    assert ArrowCheck().answer([]) == []

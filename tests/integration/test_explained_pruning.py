"""What `explain` says about skipped chunks is what a scan does, on hot and on sealed chunks."""

from __future__ import annotations

import pytest

from headgate.clock import now_us
from headgate.filters import explain, parse
from headgate.filters.explanation import EVERY_TERM
from headgate.filters.pruning import NOTHING
from headgate.message import Message
from headgate.streams import Stream
from headgate.streams.read import measure

CHUNKS, ROWS = 12, 64
HOUR = 3_600_000_000
EMPTY = 0  # this chunk has no headers


def make_messages() -> list[list[Message]]:
    """Chunks that differ in everything a filter can ask for, so that each fact has something to skip."""
    now = now_us()
    return [
        [
            Message(
                b"x",
                topic=f"{'orders' if chunk % 2 else 'alerts'}.{chunk}.{row % 8}",
                priority=chunk,
                timestamp=now - (CHUNKS - chunk) * HOUR,
                filter_value=f"fv{chunk}" if chunk != 3 else None,
                headers={}
                if chunk == EMPTY
                else {
                    "region": f"r{chunk:02}",
                    "other": f"o{chunk:02}",
                    "listed": "yes" if chunk < 6 else "no",
                    "amount": chunk * 100 + row % 7,
                    "price": chunk * 10 + 0.5,
                    "id": f"{chunk:02}-{row:04}",
                    "flag": chunk > 5,
                    **({"rare": row} if chunk == 4 else {}),
                },
                properties={"subject": f"s{chunk:02}"},
            )
            for row in range(ROWS)
        ]
        for chunk in range(CHUNKS)
    ]


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    """The same chunks, hot and sealed; `region` is indexed, `listed` restricted."""
    place = tmp_path_factory.mktemp("pruning")
    opened = {}
    for tier in ("hot", "sealed"):
        stream = Stream.create(
            place / tier,
            indexed=["region"],
            restrict_same_values={"listed": ["yes", "no"]},
            chunk_messages=ROWS,
            filter_size=256,
        )
        for messages in make_messages():
            with stream.producer() as producer:
                producer.publish_many(messages)
            if tier == "sealed":  # one segment with one chunk: sealing would join them
                stream.seal(all=True)
        opened[tier] = stream
    yield opened
    for stream in opened.values():
        stream.close()


# Each matches something in few chunks, or in none, so that a scan which can skip does.
FILTERS = [
    "region = 'r03'",
    "region IN ('r03', 'r99')",
    "other = 'o03'",
    "other <> 'o03' AND other = 'o03'",
    "amount > 1000",
    "amount BETWEEN 100 AND 105",
    "amount = 305",
    "price > 105.0",
    "flag = FALSE",
    "flag",
    "id LIKE '03-%'",
    "id LIKE '%-0003-x'",
    "other LIKE '%03'",
    "other NOT LIKE 'o0%'",
    "other NOT IN ('o03') AND other < 'o02'",
    "rare IS NOT NULL",
    "EXISTS(rare)",
    "NOT EXISTS(region)",
    "rare > 5",
    "amount + price > 1100",
    "rare + 1 > 3",
    "rare > amount",
    "price < amount - 2000",
    "sys.timestamp + 1 > 5000000000000000",
    "sys.timestamp > UTC() - INTERVAL '90m'",
    "sys.timestamp < UTC() - INTERVAL '11h'",
    "sys.timestamp > UTC() + INTERVAL '1h'",
    "sys.priority = 7",
    "sys.priority > 9",
    "sys.priority * 2 > 20",
    "sys.topic MATCHES 'orders.3.#'",
    "sys.topic MATCHES '#.3.nothing'",
    "sys.topic = 'orders.3.5'",
    "sys.filter_value = 'fv5'",
    "sys.filter_value IS NULL",
    "sys.filter_value LIKE 'fv_'",
    "p.subject = 's03'",
    "p.subject > 's08'",
    "p.subject IS NULL",
    "listed = 'yes'",
    "listed <> 'yes'",
    "region = 'r03' OR region = 'r05'",
    "region = 'r03' OR sys.priority = 5",
    "region = 'r03' OR amount > 1000",
    "region = 'r03' OR amount + price > 2000",
    "region = 'r03' OR sys.timestamp > UTC() - INTERVAL '90m'",
    "amount > 1000 OR rare > 60",
    "amount > 1000 OR sys.priority * 2 > 40",
    "(amount + price > 9999 AND region = 'r03') OR sys.priority = 2",
    "(amount + price > 9999 AND sys.priority * 2 > 3) OR sys.priority = 2",
]
# Facts that are there only for headers that were chosen: `region` is indexed, `listed` is restricted.
CHOSEN = {"Bloom filter if indexed": {"region"}, "the value if restricted": {"listed"}}


@pytest.mark.parametrize("tier", ["hot", "sealed"])
@pytest.mark.parametrize("text", FILTERS)
def test_a_scan_skips_chunks_exactly_if_explain_says_so(streams, text, tier):
    tree = parse(text)
    plan = explain(tree, now_us=now_us())
    stats = measure(streams[tier], tree).stats
    said = [getattr(term, tier) for term in plan.terms if not term.within_or]
    if any(fact in getattr(term, tier) for term in plan.terms for fact in CHOSEN):
        return  # depends on the stream: the next test
    assert (stats.chunks_none > 0) == any(part != NOTHING for part in said), said


@pytest.mark.parametrize("tier", ["hot", "sealed"])
@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        ("region = 'r03'", {"hot": True, "sealed": True}),
        ("region IN ('r03', 'r05')", {"hot": True, "sealed": True}),
        ("region > 'r09'", {"hot": False, "sealed": True}),
        ("other = 'o03'", {"hot": False, "sealed": True}),
        ("listed = 'yes'", {"hot": True, "sealed": True}),
        ("listed <> 'yes'", {"hot": True, "sealed": True}),
        ("region = 'r03' OR region = 'r05'", {"hot": True, "sealed": True}),
        ("region = 'r03' OR listed = 'yes'", {"hot": True, "sealed": True}),
        ("region = 'r03' OR other = 'o05'", {"hot": False, "sealed": True}),
        ("region = 'r03' OR sys.priority = 5", {"hot": True, "sealed": True}),
    ],
)
def test_facts_about_chosen_headers_skip_where_these_are_chosen(streams, text, skipped, tier):
    stats = measure(streams[tier], text).stats
    assert (stats.chunks_none > 0) == skipped[tier]
    plan = explain(parse(text), now_us=now_us())
    for term in plan.terms:
        facts = getattr(term, tier)
        assert facts != NOTHING
        if tier == "hot":
            assert all(fact in ("min/max", EVERY_TERM, *CHOSEN) for fact in facts.split(", "))


def test_an_or_is_explained_term_by_term(streams):
    plan = explain(parse("amount > 5 AND (region = 'EU' OR sys.priority * 2 > 4)"), now_us=1)
    shown = [(term.text, term.within_or, term.hot, term.sealed) for term in plan.terms]
    assert shown == [
        ("amount > 5", False, "the value if restricted", "null counts, min/max, distinct values if few"),
        ("region = 'EU' OR sys.priority * 2 > 4", False, NOTHING, NOTHING),
        ("region = 'EU'", True, "Bloom filter if indexed, the value if restricted",
         "null counts, Bloom filter if indexed, min/max, distinct values if few"),
        ("sys.priority * 2 > 4", True, NOTHING, NOTHING),
    ]  # fmt: skip


def test_an_or_skips_by_all_of_its_terms_together():
    plan = explain(parse("region = 'EU' OR sys.priority = 3"), now_us=1)
    assert [term.hot for term in plan.terms] == [
        EVERY_TERM,
        "Bloom filter if indexed, the value if restricted",
        "min/max",
    ]


def test_a_time_filter_skips_by_the_bounds_of_timestamps():
    (term,) = explain(parse("sys.timestamp > UTC() - INTERVAL '1h'"), now_us=now_us()).terms
    assert term.hot == term.sealed == "min/max"

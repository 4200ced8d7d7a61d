"""The plans of claims, as the databases explain them: an index in the order of the queue, no sort, no full scan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headgate.check.postgres import private_server
from headgate.filters.parser import parse
from headgate.queues.database import Database, connect
from headgate.queues.engine import State, Statement
from headgate.queues.postgres.dialect import index_name, probe_key
from headgate.queues.queue import Queue
from headgate.queues.sql.lease import ClaimRequest
from headgate.queues.sql.search import Search

ROWS = 20_000
SCHEMA = "plans"
BY_TYPE, BY_REGION, IN_ORDER = index_name("type"), index_name("region"), "delivery_ready"
# As publishing would, but in one statement of the server's own.
FILL = f"""
WITH given AS MATERIALIZED (
    SELECT nextval(pg_get_serial_sequence('message', 'id')) AS id,
        jsonb_build_object('type', 't' || g % 100, 'region', (ARRAY['EU', 'US', 'APAC'])[1 + g % 3], 'n', g) AS headers,
        abs(hashint4(g)) % 10 AS priority
    FROM generate_series(1, {ROWS}) g
), stored AS (
    INSERT INTO message (id, topic, headers, properties, priority, timestamp, payload) OVERRIDING SYSTEM VALUE
    SELECT id, 'orders', headers, '{{}}', priority, 0, '' FROM given
)
INSERT INTO delivery (message, queue, state, rank, visible_at, keys)
SELECT id, 1, 0, -priority, 0, headers - 'n' FROM given
"""


@pytest.fixture(scope="module", params=["newest", "16"])
def server_url(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[str]:
    """The planner of PostgreSQL 18 sorts where sorting is switched off and the rest is cheap; older ones never do."""
    if request.param == "newest":
        yield postgres_url
        return
    with private_server(int(request.param)) as url:
        yield url


@pytest.fixture(scope="module", params=["no statistics", "statistics"])
def db(request: pytest.FixtureRequest, server_url: str) -> Iterator[Database]:
    with connect(server_url, schema=SCHEMA) as database:
        database.queue("orders", filter_headers=["type", "region"])
        database.engine.run(_run_statement(Statement(FILL)))
        if request.param == "statistics":
            database.engine.run(_run_statement(Statement("ANALYZE delivery, message")))
        yield database
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


@pytest.fixture
def orders(db: Database) -> Queue:
    return db.find("orders")


def _run_statement(statement: Statement) -> Any:
    return (yield statement)


def plan_of(
    db: Database, orders: Queue, filter: str | None, *, analyze: bool = False, generic: bool = False
) -> Any:
    """The plan of the whole claim, as JSON: for its values, or the one that serves all values, as our sessions want it."""
    operations = db.engine.operations
    plan = operations.planner.plan(orders.info, None if filter is None else parse(filter))
    search = Search(orders.info, plan)
    claim = operations.claimer.statement(search, ClaimRequest(10, 30_000_000, False))
    how = "ANALYZE, TIMING OFF, " if analyze else "GENERIC_PLAN, " if generic else ""
    explain = f"EXPLAIN ({how}FORMAT JSON) {claim.text}"
    [(document,)] = db.engine.run(
        _run_statement(Statement(explain, () if generic else claim.params))
    )
    return document[0]["Plan"]


def nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def candidates(plan: Any) -> list[Any]:
    """The nodes of the plan that read candidates."""
    names = {"CTE taken", "CTE heads", "CTE locked", "CTE found"}
    parts = [node for node in nodes(plan) if node.get("Subplan Name") in names]
    return [node for part in parts for node in nodes(part)]


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("filter", "indexes"),
    [
        (None, {IN_ORDER}),
        ("type = 't7'", {BY_TYPE}),
        ("type = 'nothing has this'", {BY_TYPE}),
        ("type = 5", {BY_TYPE}),
        ("type = TRUE", {BY_TYPE}),
        ("type IN ('t7', 't8', 'x', 5)", {BY_TYPE}),
        ("type = 't7' AND sys.priority > 3", {BY_TYPE}),
        ("type = 't7' OR region = 'nowhere'", {BY_TYPE, BY_REGION}),
        ("type <> 't7'", {IN_ORDER}),
        ("type LIKE 't7%'", {IN_ORDER}),
        ("type IS NULL", {IN_ORDER}),
    ],
)
@pytest.mark.parametrize("generic", [False, True])
def test_a_claim_reads_the_index_that_answers_it_in_order(db, orders, filter, indexes, generic):
    plan = plan_of(db, orders, filter, generic=generic)
    reads = candidates(plan)
    used = {node["Index Name"] for node in reads if "Index Name" in node}
    assert used - {"delivery_at_work", "delivery_pkey"} == indexes
    sorts = [
        node
        for node in reads
        if "Sort" in node["Node Type"] and node["Plans"][0]["Node Type"] != "Subquery Scan"
    ]
    if len(indexes) == 1 and filter is not None and "IN" not in filter and indexes != {IN_ORDER}:
        assert not sorts
    # Otherwise what several parts have found is sorted, and a limited number of members of groups, never all that an index holds.
    below = {part.get("Index Name", "delivery_pkey") for node in sorts for part in node["Plans"]}
    assert below <= {"delivery_pkey"}
    scans = [node for node in nodes(plan) if node["Node Type"] in ("Seq Scan", "Bitmap Heap Scan")]
    assert {node["Relation Name"] for node in scans} <= {"queue"}  # which has a row or two


@pytest.mark.postgres
@pytest.mark.parametrize(
    "filter", ["type = 'nothing'", "type IN ('no', 'thing')", "type = 't7'", None]
)
def test_a_claim_reads_few_rows_whatever_it_matches(db, orders, filter):
    reads = candidates(plan_of(db, orders, filter, analyze=True))
    touched = sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in reads
        if "Index Name" in node
    )
    assert touched <= 40
    assert len(orders.peek(1, filter="type = 't7'")) == 1


@pytest.mark.postgres
def test_a_claim_is_planned_once_although_its_queue_was_nearly_empty(db):
    few = db.queue("few")
    for _ in range(3):
        few.publish_many([b""] * 3)
        db.engine.run(_run_statement(Statement("ANALYZE delivery, message")))
        for _ in range(8):
            few.ack_and_claim(few.claim(1), 1)
    plans = """
    SELECT sum(generic_plans)::bigint, sum(custom_plans)::bigint FROM pg_prepared_statements
    WHERE statement LIKE $1::text
    """
    [(generic, custom)] = db.engine.run(_run_statement(Statement(plans, ("WITH queue_state%",))))
    assert (generic >= 48, custom) == (True, 0)


@pytest.mark.postgres
def test_delayed_and_leased_deliveries_are_not_in_the_index_of_ready_ones(db, orders):
    query = "SELECT indexdef FROM pg_indexes WHERE schemaname = $1 AND tablename = 'delivery'"
    found = db.engine.run(_run_statement(Statement(query, (SCHEMA,))))
    claimable = [
        text for (text,) in found if "rank, message" in text and "delivery_aside" not in text
    ]
    assert len(claimable) == 3
    assert all("WHERE (state = 0)" in text or "WHERE ((state = 0)" in text for text in claimable)


def explained(db: Database, statement: Statement) -> list[Any]:
    """The nodes of the statement's plan, after it has run."""
    text = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement.text}"
    [(document,)] = db.engine.run(_run_statement(Statement(text, statement.params)))
    return list(nodes(document[0]["Plan"]))


def rows_read(plan: list[Any], table: str) -> int:
    """How many rows of a table the plan has read, those that it left out included."""
    reads = [node for node in plan if node.get("Relation Name") == table]
    left_out = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    return sum(
        (node["Actual Rows"] + sum(node.get(name, 0) for name in left_out)) * node["Actual Loops"]
        for node in reads
    )


@pytest.mark.postgres
@pytest.mark.parametrize("filter", ["n = -1", "type IS NULL"])
def test_a_scan_reads_only_new_deliveries_by_their_key(db, orders, filter):
    operations = db.engine.operations
    search = Search(orders.info, operations.planner.plan(orders.info, parse(filter)))
    found = explained(db, operations.scan_memory.page_statement(search, 19_990))
    assert rows_read(found, "delivery") == 10
    assert rows_read(found, "message") == (10 if "n" in filter.split() else 0)
    assert not [node for node in found if "Sort" in node["Node Type"]]


@pytest.mark.postgres
def test_a_scan_of_a_small_queue_does_not_read_the_messages_of_others(db):
    small = db.queue("small")
    small.publish(b"", headers={"n": 1})
    db.engine.run(_run_statement(Statement(FILL)))
    small.publish(b"", headers={"n": 1})
    operations = db.engine.operations
    search = Search(small.info, operations.planner.plan(small.info, parse("n = -1")))
    found = explained(db, operations.scan_memory.page_statement(search, 0))
    assert rows_read(found, "message") == 2
    db.delete("small")


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["lease", "leased", "claimable_among"])
def test_named_deliveries_are_read_by_their_key_and_no_others(db, orders, name):
    ids = list(range(19_000, 19_010))
    params = {
        "lease": (orders.info.id, ids, None, 1, 0),
        "leased": (orders.info.id, ids),
        "claimable_among": (orders.info.id, 10, ids),
    }
    statement = db.engine.operations.dialect.statement(name, *params[name], columns="m.topic")
    assert rows_read(explained(db, statement), "delivery") <= 3 * len(ids)  # found, updated


@pytest.mark.postgres
@pytest.mark.parametrize("filter", ["type <> 't7'", "type LIKE 't7%'", "n > 0", "m IS NULL"])
def test_a_filter_that_many_match_is_answered_by_the_first_deliveries(db, orders, filter):
    operations = db.engine.operations
    search = Search(orders.info, operations.planner.plan(orders.info, parse(filter)))
    [look] = statements_of(operations.scan_memory.find(search, 10), [[(0,) * 4] * 10])
    found = explained(db, look)
    assert rows_read(found, "delivery") <= 200
    assert rows_read(found, "message") <= 200
    assert not [node for node in found if "Sort" in node["Node Type"]]


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("filter", "header", "keys"),
    [
        ("type LIKE 't7%'", "type", 11),
        ("type LIKE 'nothing%'", "type", 0),
        ("region LIKE '%' AND region LIKE 'E%' AND n > 0", "region", 1),
        ("region IS NOT NULL AND n > 0", "region", 3),
    ],
)
def test_a_prefix_or_the_existence_of_a_declared_header_is_looked_up(
    db, orders, filter, header, keys
):
    operations = db.engine.operations
    search = Search(orders.info, operations.planner.plan(orders.info, parse(filter)))
    find = operations.scan_memory.find(search, 10)
    _, by_key, few = statements_of(find, [[], [(200, 0, None, 0)]])
    for statement, most in ((by_key, 40 * (keys + 1)), (few, 500)):
        found = explained(db, statement)
        used = {node["Index Name"] for node in found if node.get("Relation Name") == "delivery"}
        assert used - {"delivery_at_work"} == {index_name(header)}
        assert rows_read(found, "delivery") <= most
    [[count, *_], *rows] = db.engine.run(_run_statement(by_key))
    assert (count, len(rows)) == (keys, 10 * keys)


@pytest.mark.postgres
def test_claims_by_a_prefix_come_in_the_order_of_the_queue(db):
    queue = db.queue("prefixes", filter_headers=["name"])
    names = [f"a{at % 7}" for at in range(30)] + [f"b{at}" for at in range(250)]
    for at, name in enumerate(names):
        queue.publish(str(at).encode(), headers={"name": name}, priority=at % 3)
    in_order = sorted(range(len(names)), key=lambda at: (-(at % 3), at))
    for prefix in ("a", "b"):
        expected = [str(at).encode() for at in in_order if names[at].startswith(prefix)]
        claimed = queue.claim(1_000, filter=f"name LIKE '{prefix}%'")
        assert [delivery.message.payload for delivery in claimed] == expected
    db.delete("prefixes")


def statements_of(operation: Any, replies: list[Any]) -> list[Statement]:
    """The statements of an operation that gets these replies."""
    asked = [next(operation)]
    for reply in replies:
        try:
            asked.append(operation.send(reply))
        except StopIteration:
            break
    return asked


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["delete_deliveries", "purge_waiting"])
def test_deliveries_that_are_deleted_in_pieces_are_found_by_their_key(db, orders, name):
    delete = db.engine.operations.dialect.statement(name, orders.info.id)
    text = f"EXPLAIN (FORMAT JSON) {delete.text}"
    [(document,)] = db.engine.run(_run_statement(Statement(text, delete.params)))
    found = list(nodes(document[0]["Plan"]))
    assert not [
        node for node in found if "Join" in node["Node Type"] or "Loop" in node["Node Type"]
    ]
    assert not [node for node in found if node["Node Type"] in ("Seq Scan", "Sort")]


@pytest.mark.postgres
def test_dead_letters_are_purged_by_their_index(db, orders):
    dialect = db.engine.operations.dialect
    statement = dialect.statement("purge_state", orders.info.id, state=str(int(State.DEAD)))
    text = f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {statement.text}"
    [(document,)] = db.engine.run(_run_statement(Statement(text)))
    found = [node.get("Index Name") for node in nodes(document[0]["Plan"])]
    assert "delivery_dead" in found


@pytest.mark.postgres
def test_advice_tells_that_a_filter_scans_and_which_header_to_declare(orders):
    advice = orders.index_advise("n = 5")
    assert advice.scans
    assert advice.suggestions == ("n",)
    assert any(IN_ORDER in line for line in advice.plan)
    assert orders.index_advise("m LIKE 'a%'").suggestions == ("m",)
    assert orders.index_advise("m IS NOT NULL").suggestions == ("m",)
    assert orders.index_advise("m IS NULL").suggestions == ()
    assert not orders.index_advise("type = 't1'").scans
    assert not orders.index_advise("type LIKE 't%'").scans


@pytest.mark.postgres
@pytest.mark.parametrize(
    "value", ["", "x", "ü" * 300, 0, -0.0, 5, 5.0, -7, 0.1, 1e-7, 123456.75, 2**52, True, False]
)
def test_the_key_of_a_value_is_its_key_in_the_index(db, value):
    text, param = (
        ("to_jsonb($1::text)", value) if isinstance(value, str) else ("$1::text::jsonb", None)
    )
    if param is None:
        from headgate.filters.compile.sql import headers_json

        text, param = "($1::text::jsonb -> 'v')", headers_json({"v": value})
    [(key,)] = db.engine.run(_run_statement(Statement(f"SELECT probe_key({text})", (param,))))
    assert key == probe_key(value)

"""What needs a hand."""

from threading import Event
from types import SimpleNamespace

from headgate.insights import find_sql_attention
from headgate.insights.attention import MANY_GROWING, SAMPLE_S, SAMPLES, UnackedHistory
from headgate.queues import Usage, connect


def holding(count):
    """A consumer that holds so many messages."""
    connection = SimpleNamespace(name="c")
    return SimpleNamespace(connection=connection, channel=1, tag="t", unacknowledged=count)


def looked(*counts, apart=SAMPLE_S):
    history = UnackedHistory()
    for number, count in enumerate(counts):
        history.add([holding(count)], number * apart)
    return history.is_growing(("c", 1, "t"))


def test_a_consumer_that_holds_more_with_every_look_is_growing():
    growing = range(MANY_GROWING, MANY_GROWING + SAMPLES)
    assert looked(*growing)
    assert looked(5, 900, 5, *growing)  # the last looks count


def test_a_consumer_that_holds_much_but_not_more_or_little_is_not_growing():
    assert not looked(*[MANY_GROWING * 5] * SAMPLES)
    assert not looked(1, 2, 3, 4)
    assert not looked(MANY_GROWING, MANY_GROWING + 1)  # too few looks to tell


def test_looks_at_the_same_moment_count_once():
    assert not looked(*range(MANY_GROWING, MANY_GROWING + SAMPLES), apart=0.01)


def test_a_consumer_on_sql_whose_predicate_refuses_most_of_what_it_claims_is_named():
    with connect("memory://") as database:
        queue = database.queue("orders")
        usage = Usage(claims=10, rows=10, unmatched=5_000)
        queue._engine.run(queue._operations.add_usage(queue.info, "eu", usage))
        [found] = find_sql_attention(database)
    assert (found.kind, found.name) == ("sql", "orders")
    assert "5,000 messages" in found.problem


def test_a_consumer_on_sql_whose_filter_no_index_answers_misses_one(tmp_path):
    url = f"sqlite:///{tmp_path}/queue.db"
    with connect(url) as database:
        queue = database.queue("orders", filter_headers=["region"])
        for name, filter in (
            ("eu", "region = 'EU'"),
            ("large", "amount = 5000"),
            ("large-2", "amount = 5000"),
        ):
            took = Event()
            queue.publish(b"x", headers={"region": "EU", "amount": 5000})
            with queue.consumer(lambda _, took=took: took.set(), name=name, filter=filter):
                assert took.wait(20)
        assert queue.stats().usage["eu"].filter == "region = 'EU'"
    with connect(url, access="look") as database:
        [found] = find_sql_attention(database)
    assert found.name == "orders"
    assert found.problem.startswith("claims of large and 1 more read everything that is ready")
    assert found.advice == "headgate queue index add orders amount"
    with connect(url) as database:
        database.find("orders").index_add("amount")
        assert find_sql_attention(database) == []

"""What a running pipeline has done, as plain values."""

from headgate.insights import pipeline_facts
from headgate.pipelines import Account, Batch, Counters


def account() -> Account:
    counted = Counters(
        scanned=1000, read=90, routed=80, unroutable=10, chunks_skipped=4, bytes_read=1024, bytes_total=10240,
        queues={"b": 30, "a": 30, "c": 50},
    )  # fmt: skip
    return Account("p", 3, counted, 7, Batch(2, 0.5, counted, 7))


def test_the_facts_of_a_run_have_rates_and_what_was_skipped():
    facts = pipeline_facts(account(), 2.0)
    assert (facts.scanned, facts.messages_per_second, facts.lag) == (1000, 500, 7)
    assert (facts.passed, facts.routed, facts.unroutable) == (90, 80, 10)
    assert (facts.chunks_skipped, facts.bytes_skipped, facts.bytes_total) == (4, 9216, 10240)


def test_queues_are_ranked_by_their_messages_and_then_by_name():
    assert pipeline_facts(account(), 2.0).queues == (("c", 50), ("a", 30), ("b", 30))


def test_the_last_batch_has_its_own_rate():
    last = pipeline_facts(account(), 2.0).last
    assert (last.number, last.seconds, last.messages_per_second) == (2, 0.5, 2000)


def test_a_run_without_a_batch_has_no_last_one_and_divides_by_no_zero():
    facts = pipeline_facts(Account("p"), 0.0)
    assert (facts.last, facts.messages_per_second, facts.queues) == (None, 0.0, ())

"""How a filter is understood, and measured on a stream."""

import pytest

from headgate.errors import FilterSyntaxError
from headgate.insights import explain_filter
from headgate.testing import MessageFactory


def test_a_filter_is_explained_for_every_engine():
    facts = explain_filter("region = 'EU' AND amount > 1000")
    assert facts.plan.probes == ("region='EU'",)
    assert set(facts.plan.sql) == {"sqlite", "postgres"}
    assert "headers['region'].s = 'EU'" in facts.spark
    assert facts.measured is None


def test_a_filter_is_measured_on_a_stream(temporary_stream):
    messages = MessageFactory(headers={"region": "EU"})
    with temporary_stream.producer() as producer:
        producer.publish_many(messages.make_many(5))
    measured = explain_filter("region = 'EU'", temporary_stream.path).measured
    assert (measured.chunks, measured.stats.rows_matched) == (1, 5)


def test_a_filter_that_cannot_be_parsed_is_refused():
    with pytest.raises(FilterSyntaxError):
        explain_filter("region =")

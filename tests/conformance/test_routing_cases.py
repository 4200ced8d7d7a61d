"""What RabbitMQ 4.0.5 did, recorded, and what its routing tests expect of topic patterns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.matching.trie import TopicTrie
from headgate.routing.topology import Topology
from tests.conformance.amqp_replay import replay, without_words

DATA = Path(__file__).parent.parent / "data"
SHARED = DATA.parent.parent.parent / "shared" / "cases"
CATEGORIES = ("headers", "topic", "e2e", "ae", "routing", "binding")


def recorded() -> list[dict]:
    cases = json.loads((DATA / "amqp_behaviours.json").read_text())["cases"]
    if (SHARED / "amqp_behaviours.json").is_file():
        cases = json.loads((SHARED / "amqp_behaviours.json").read_text())["cases"]
    return [case for case in cases if case["category"] in CATEGORIES]


def patterns() -> list[dict]:
    tables = [DATA / "routing_topics.json", SHARED / "topic_patterns.json"]
    return [case for table in tables if table.is_file() for case in json.loads(table.read_text())]


@pytest.mark.parametrize("case", recorded(), ids=lambda case: case["case"])
def test_a_topology_answers_what_rabbitmq_answered(case):
    assert without_words(replay(case["input"])) == without_words(case["expected"])


def test_every_category_was_recorded():
    assert {case["category"] for case in recorded()} == set(CATEGORIES)


def test_a_topic_exchange_matches_each_pattern_as_expected():
    wrong = []
    for case in patterns():
        topology = Topology()
        topology.declare_exchange("x", "topic")
        topology.declare_queue("q")
        topology.bind("x", queue="q", key=case["pattern"])
        if ("q" in topology.route("x", (case["topic"], {})).queues) is not case["expect"]:
            wrong.append(case)
    assert wrong == []


def test_all_patterns_in_one_trie_match_as_they_do_alone():
    cases = patterns()
    trie = TopicTrie(frozenset)
    for pattern in {case["pattern"] for case in cases}:
        trie.add(pattern, pattern)
    wrong = [c for c in cases if (c["pattern"] in trie.match(c["topic"])) is not c["expect"]]
    assert wrong == []

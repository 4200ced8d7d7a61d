"""What `explain` says about routing is what the index of filters does."""

import pytest

from headgate.filters import explain, parse
from headgate.filters.explanation import CHECKED
from headgate.matching.paths import paths

PRESENCE = "index by presence, then checked"


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("region = 'EU'", ["index key"]),
        ("sys.priority = 5 AND amount > 3", ["index key", CHECKED]),
        ("region = 'EU' AND type IN ('a', 'b')", ["index key", "index key, one entry a value"]),
        (
            "region IN ('EU', 'US', 'AS') AND type IN ('a', 'b')",
            [CHECKED, "index key, one entry a value"],
        ),
        ("sys.topic MATCHES 'a.*'", ["topic trie"]),
        ("sys.topic MATCHES 'a.*' AND region = 'EU'", [CHECKED, "index key"]),
        ("sys.topic MATCHES 'a.b'", ["index key"]),
        ("region = 'EU' OR type = 'a'", ["index, one entry a term"]),
        ("amount > 5 AND price > 3", [PRESENCE, CHECKED]),
        ("sys.priority > 5", [CHECKED]),
        ("region = 'EU' OR amount > 5", ["index, one entry a term, some by presence"]),
        ("region = 'EU' OR sys.priority > 5", [CHECKED]),
        ("(region = 'EU' AND amount > 5) OR sys.topic MATCHES 'a.#'", ["index, one entry a term"]),
        ("x > 1 AND (region = 'EU' OR type = 'a')", [CHECKED, "index key, one entry a value"]),
        ("x = 1 AND (region = 'EU' OR type = 'a')", ["index key", CHECKED]),
        ("x = 1 AND (region = 'EU' OR region = 'US')", ["index key", "index key, one entry a value"]),
        ("FALSE", ["decided"]),
    ],
)  # fmt: skip
def test_routing_is_explained_as_the_index_does_it(text, answers):
    tree = parse(text)
    terms = [term for term in explain(tree).terms if not term.within_or]
    assert [term.routing for term in terms] == answers
    keyed = [path for path in paths(tree) if path.pairs or path.pattern is not None]
    assert bool(keyed) == any(answer not in (CHECKED, "decided") for answer in answers)
    if CHECKED not in answers and PRESENCE not in answers and len(terms) > 1:
        assert all(path.rest == parse("TRUE") for path in keyed)

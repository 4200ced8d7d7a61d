"""A batch that is matched as a whole reaches whom its messages would reach one by one."""

from __future__ import annotations

from random import Random

import pytest

from headgate.filters import batches
from headgate.filters.columns import shred
from headgate.filters.matcher import Matcher
from tests import generate


@pytest.mark.parametrize("worth_a_mask", [1, 5, 1_000])
def test_a_batch_is_matched_as_its_messages_are(seed, monkeypatch, worth_a_mask):
    monkeypatch.setattr(batches, "WORTH_A_MASK", worth_a_mask)
    rng = Random(seed)
    matcher = Matcher((n, generate.timeless(rng)) for n in range(80))
    messages = generate.messages(rng, 100)
    found = matcher.match_batch(shred(messages))
    wanted = [matcher.match(message) for message in messages]
    for handle in range(80):
        rows = [at for at, handles in enumerate(wanted) if handle in handles]
        assert found.rows_of(handle).tolist() == rows
    assert found.reached.tolist() == [bool(handles) for handles in wanted]

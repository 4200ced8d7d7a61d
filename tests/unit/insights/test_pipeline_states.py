"""How far pipelines have come, from their files and checkpoints."""

import json

from headgate.insights import list_pipelines
from headgate.streams import Stream

FILE = """
[pipeline]
name = "shop"
checkpoint = "checkpoint"

[source]
stream = "orders"

[[exchange]]
name = "shop"
type = "topic"

[[binding]]
queue = "eu"
key = "orders.#"

[[sink]]
queue = "eu"
to = "stream:eu"
"""


def test_the_lag_of_a_pipeline_is_what_its_checkpoint_has_not_read(tmp_path):
    with Stream.create(tmp_path / "orders") as stream, stream.producer() as producer:
        for _ in range(10):
            producer.publish(b"x", topic="orders.new")
    (tmp_path / "shop.toml").write_text(FILE)
    [state] = list_pipelines(tmp_path)
    assert (state.problem, state.batches, state.lag) == (None, 0, 10)
    for name in ("offsets", "commits"):
        (tmp_path / "checkpoint" / name).mkdir(parents=True, exist_ok=True)
    offset = json.dumps({str(tmp_path / "orders"): 7})
    (tmp_path / "checkpoint" / "offsets" / "3").write_text(f"v1\n{{}}\n{offset}")
    (tmp_path / "checkpoint" / "commits" / "3").write_text("v1\n{}")
    [state] = list_pipelines(tmp_path)
    assert (state.problem, state.name, state.batches, state.lag) == (None, "shop", 4, 3)
    assert state.last_commit_us is not None
    assert state.drawing


def test_a_file_that_is_no_pipeline_says_why(tmp_path):
    (tmp_path / "bad.toml").write_text("[pipeline]\nnmae = 1\n")
    (tmp_path / "other.toml").write_text("[tool]\n")
    [state] = list_pipelines(tmp_path)
    assert state.problem

"""How far pipelines have come, from their files and checkpoints."""

import json

from headgate.insights import list_pipelines, list_spark_queries
from headgate.pipelines import Account, Counters, write_account
from headgate.spark.pipeline.lock import CheckpointLock
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


def test_a_pipeline_with_a_driver_is_running(tmp_path):
    (tmp_path / "shop.toml").write_text(FILE)
    [state] = list_pipelines(tmp_path)
    assert not state.is_running
    lock = CheckpointLock(tmp_path / "checkpoint")
    [state] = list_pipelines(tmp_path)
    assert state.is_running
    lock.release()
    [state] = list_pipelines(tmp_path)
    assert not state.is_running


def test_a_file_that_is_no_pipeline_says_why(tmp_path):
    (tmp_path / "bad.toml").write_text("[pipeline]\nnmae = 1\n")
    (tmp_path / "other.toml").write_text("[tool]\n")
    [state] = list_pipelines(tmp_path)
    assert state.problem


def write_checkpoint(path, stream, offset):
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True)
    positions = json.dumps({str(stream): offset})
    (path / "offsets" / "0").write_text(f"v1\n{{}}\n{positions}")
    (path / "commits" / "0").write_text("v1\n{}")


def test_queries_of_spark_are_found_by_their_checkpoints_with_their_lag(tmp_path):
    with Stream.create(tmp_path / "orders") as stream, stream.producer() as producer:
        producer.publish_many([b"x"] * 10)
    Stream.create(tmp_path / "other").close()
    write_checkpoint(tmp_path / "queries" / "large", tmp_path / "orders", 4)
    [query] = list_spark_queries(tmp_path, tmp_path / "orders")
    assert (query.name, query.position, query.lag, query.batches) == ("queries/large", 4, 6, 1)
    assert list_spark_queries(tmp_path, tmp_path / "other") == []


def test_what_the_last_run_of_a_pipeline_routed_is_kept_beside_its_checkpoint(tmp_path):
    Stream.create(tmp_path / "orders").close()
    (tmp_path / "shop.toml").write_text(FILE)
    [state] = list_pipelines(tmp_path)
    assert state.counters is None
    (tmp_path / "checkpoint").mkdir()
    counted = Counters(read=9, routed=8, queues={"eu": 8})
    write_account(Account("shop", counters=counted), tmp_path / "checkpoint")
    [state] = list_pipelines(tmp_path)
    assert state.counters == counted
    (tmp_path / "checkpoint" / "headgate-account.json").write_text("{")
    [state] = list_pipelines(tmp_path)
    assert (state.problem, state.counters) == (None, None)

"""What is said of a query that failed, without the Java and the plan that Spark prints around it."""

from __future__ import annotations

import pytest

from headgate.spark.pipeline.run import failure_of

AROUND = """  SQLSTATE: KD001
=== Streaming Query ===
Identifier: p [id = 8e53b4b1, runId = 010344f6]

Logical Plan:
WriteToMicroBatchDataSource headgate
"""


class Failure(Exception):
    """As Spark's errors are: a text, and the error that caused it."""

    def __init__(self, text: str, cause: Failure | None = None) -> None:
        super().__init__(text)
        self._cause = cause


@pytest.mark.parametrize("around", [AROUND, "\n\tat org.apache.spark.Some$thing(S.scala:1)\n", ""])
def test_an_error_of_headgate_is_shown_unchanged(around: str) -> None:
    text = f"[PYTHON_EXCEPTION] Traceback\n  File x\nheadgate.errors.DataLost: offsets 1 to 9 are gone{around}"
    problem = Failure(text, Failure(f"org.apache.spark.api.python.PythonException: {text}"))
    assert str(failure_of(problem)) == "the pipeline failed: offsets 1 to 9 are gone"


def test_a_file_that_cannot_be_read_is_named_with_the_reason_and_what_to_do() -> None:
    text = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/a.json.gz."
    reason = Failure("java.io.IOException: not in gzip format\n\tat java.base")
    problem = Failure(text + AROUND, Failure(f"org.apache.spark.SparkException: {text}", reason))
    said = str(failure_of(problem))
    assert said.startswith(f"the pipeline failed: {text} java.io.IOException: not in gzip format;")
    assert said.endswith("options = { ignoreCorruptFiles = true } in [source]")


def test_a_cause_without_words_is_named() -> None:
    problem = Failure("[STREAM_FAILED] terminated with exception:", Failure("java.io.EOFException"))
    assert str(failure_of(problem)).endswith("terminated with exception: java.io.EOFException")


def test_a_cause_that_the_message_contains_is_not_repeated() -> None:
    text = "[PYTHON_EXCEPTION] An exception was thrown: Traceback\n  File x\nKeyError: 'a'"
    problem = Failure(
        text + AROUND, Failure(f"org.apache.spark.api.python.PythonException: {text}")
    )
    assert str(failure_of(problem)) == f"the pipeline failed: {text}"
    assert str(failure_of(Failure("plain"))) == "the pipeline failed: plain"

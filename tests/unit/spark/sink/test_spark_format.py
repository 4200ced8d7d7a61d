"""What is said of a format that Spark lacks."""

from __future__ import annotations

import pytest

from headgate.spark.sink.spark_format import package_hint


@pytest.mark.parametrize(
    ("format", "said"),
    [
        ("delta", "io.delta:delta-spark_4.3_2.13:VERSION"),
        ("Iceberg", "org.apache.iceberg:iceberg-spark-runtime-4.3_2.13:VERSION"),
        ("mongodb", "add its jar with --conf spark.jars.packages="),
    ],
)
def test_the_package_of_a_format_is_named_for_the_running_spark(format, said):
    assert said in package_hint(format, "4.3.0")

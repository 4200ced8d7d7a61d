"""Spark schemas from text, without a Spark session."""

from __future__ import annotations

import re

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from headgate.spark.schema import TEXTS, VALUES

_STRUCT = (
    StructType()
    .add("s", StringType())
    .add("i", LongType())
    .add("f", DoubleType())
    .add("b", BooleanType())
)
_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "smallint": ShortType(),
    "tinyint": ByteType(),
    "double": DoubleType(),
    "float": FloatType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "decimal(10,2)": DecimalType(10, 2),
    "map<string,int>": MapType(StringType(), IntegerType()),
    TEXTS: MapType(StringType(), StringType()),
    VALUES: MapType(StringType(), _STRUCT),
}


def struct(ddl: str) -> StructType:
    """The schema; of types only those that some test asks for."""
    schema = StructType()
    for name, type_, constraint in re.findall(
        r"([^ ,]+) ((?:[^ ,<(]+(?:<.*?>+|\(.*?\))?))( NOT NULL)?(?:, |$)", ddl
    ):
        schema.add(name.strip("`"), _TYPES[type_], nullable=not constraint)
    return schema

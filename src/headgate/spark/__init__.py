"""The data pipeline: Headgate as a source, a sink and a router inside Spark."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.spark.datasource import HeadgateSource as HeadgateSource
    from headgate.spark.filter_column import map_views as map_views
    from headgate.spark.filter_column import to_column as to_column
    from headgate.spark.filter_column import to_expression_text as to_expression_text
    from headgate.spark.java import find_java as find_java
    from headgate.spark.sessions import LEAST_PYSPARK as LEAST_PYSPARK
    from headgate.spark.sessions import command_session as command_session
    from headgate.spark.sessions import running_session as running_session
    from headgate.spark.sessions import session as session
    from headgate.spark.startup import stop_session as stop_session
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "datasource": ["HeadgateSource"],
            "filter_column": ["map_views", "to_column", "to_expression_text"],
            "java": ["find_java"],
            "sessions": ["LEAST_PYSPARK", "command_session", "running_session", "session"],
            "startup": ["stop_session"],
        },
    )

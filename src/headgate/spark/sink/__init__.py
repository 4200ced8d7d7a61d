"""Where Spark writes messages: streams, queues in SQL databases, Parquet files."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.spark.sink.parquet import compact_table as compact_table
    from headgate.spark.sink.table_compaction import Merged as Merged
else:
    __getattr__, __dir__ = front_door(
        __name__, {"parquet": ["compact_table"], "table_compaction": ["Merged"]}
    )

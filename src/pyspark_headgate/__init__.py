"""Found by Spark: it looks into every installed module whose name begins with `pyspark_`."""

from headgate.spark import HeadgateSource as DefaultSource

__all__ = ["DefaultSource"]

"""Where Spark looks: it imports every top-level module named pyspark_* and takes its DefaultSource."""

from harebell.spark.source import AmqpDataSource as DefaultSource

__all__ = ["DefaultSource"]

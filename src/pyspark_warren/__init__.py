"""Where Spark looks: it imports every top-level module named pyspark_* and takes its DefaultSource."""

from warren.spark.source import AmqpDataSource as DefaultSource

__all__ = ["DefaultSource"]

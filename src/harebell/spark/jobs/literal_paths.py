"""Reads files by their names: to `spark.read`, `[`, `]`, `{`, `}`, `*`, `?` and `\\` are patterns of many names.

Hadoop's way to quote such a letter is understood too, but Spark then looks for the quoted name as well, and logs that
there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

__all__ = ["literal_paths"]


def literal_paths(spark: SparkSession) -> DataFrameReader:
    """`spark.read`, whose paths mean what they say."""
    return spark.read.option("__globPaths__", "false")

"""Spark over AMQP: the data source and sink format("amqp"), and a session that has what it needs.

    from warren.spark import session
    spark = session("flights")
    rows = spark.read.format("amqp").option("queue", "flights.log").load()

Importing this package imports neither PySpark nor pyarrow.
"""

from __future__ import annotations

from warren.spark.java import JavaHome, find_java
from warren.spark.session import session

__all__ = ["JavaHome", "find_java", "session"]

"""Spark over AMQP: the data source and sink format("amqp"), and a session that is set up for them.

    from harebell.spark import session
    spark = session("flights")
    rows = spark.read.format("amqp").option("queue", "flights.log").load()

Importing this package imports neither PySpark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import harebell.logs  # noqa: F401  log records are one line each
from harebell.lazy import lazy_names
from harebell.spark.runtime.java import JavaHome, find_java
from harebell.spark.runtime.queries import start_query
from harebell.spark.runtime.session import session
from harebell.spark.streams.lag import lag, lost
from harebell.spark.streams.tap import Tap, tap

if TYPE_CHECKING:
    from harebell.spark.sampling import infer_schema
else:
    __getattr__ = lazy_names(__name__, {"sampling": ("infer_schema",)})  # its module imports PySpark

__all__ = ["JavaHome", "Tap", "find_java", "infer_schema", "lag", "lost", "session", "start_query", "tap"]

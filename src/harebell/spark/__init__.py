"""Spark over AMQP: the data source and sink format("amqp"), and a session that has what it needs.

    from harebell.spark import session
    spark = session("flights")
    rows = spark.read.format("amqp").option("queue", "flights.log").load()

Importing this package imports neither PySpark nor pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from harebell.spark.runtime.java import JavaHome, find_java
from harebell.spark.runtime.session import session
from harebell.spark.streams.lag import lag, lost
from harebell.spark.streams.tap import Tap, tap

if TYPE_CHECKING:
    from harebell.spark.payload.infer import infer_schema as infer_schema

__all__ = ["JavaHome", "Tap", "find_java", "infer_schema", "lag", "lost", "session", "tap"]

# Names whose modules import PySpark: loaded at the first use.
_LATER: Final = {"infer_schema": "harebell.spark.payload.infer"}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)

"""Selects the messages of a stream that a reader wants by key and filter value, before any other column is made.

Rules: the selection is exact. The pattern of routing keys and the values of x-stream-filter are checked in the task,
once for each different value. Filters of Spark's queries are not used: PySpark 4.3 stores the filters pushed for the
first use of a DataFrame, and gives the rows of that to its other uses, whose filters differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from harebell.routing.exchanges.topic_matcher import TopicMatcher
from harebell.spark.options.streams import StreamOptions
from harebell.spark.schema import row_schema
from harebell.spark.streams.columns import Columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harebell.client.messages import Delivery
    from harebell.spark.streams.blocks import Block, Int64Array

    Mask = NDArray[np.bool_]

__all__ = ["Selection", "selection"]

FILTER_VALUE: Final = "x-stream-filter-value"


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages that are wanted; all when nothing is given. It is pickled into tasks."""

    key_pattern: str | None = None
    filter_values: tuple[str, ...] = ()
    match_unfiltered: bool = False

    def chooser(self) -> Callable[[str, Block | list[Delivery], Int64Array], Int64Array]:
        """A function that gives those of the rows of a chunk that are wanted; made once per task."""
        names = set()
        if self.key_pattern is not None:
            names.add("routing_key")
        if self.filter_values:
            names.add("headers")
        if not names:
            return lambda queue, chunk, rows: rows
        columns = Columns(StructType([field for field in row_schema().fields if field.name in names]))
        matcher = TopicMatcher([(self.key_pattern, True)]) if self.key_pattern is not None else None

        def choose(queue: str, chunk: Block | list[Delivery], rows: Int64Array) -> Int64Array:
            if not len(rows):
                return rows
            batch = columns.batch(queue, chunk, rows)
            keep: Mask = np.ones(len(rows), np.bool_)
            if matcher is not None:
                keep &= _by_value(batch.column("routing_key"), lambda key: bool(matcher.match(key or "")))
            if self.filter_values:
                keep &= _by_value(batch.column("headers"), self._wants)
            return rows[keep]

        return choose

    def _wants(self, headers: str | None) -> bool:
        value = None if headers is None else json.loads(headers).get(FILTER_VALUE)
        return value in self.filter_values if isinstance(value, str) else self.match_unfiltered


def selection(options: StreamOptions) -> Selection:
    """The selection that the options describe."""
    return Selection(
        key_pattern=options.key_pattern,
        filter_values=options.filter_values,
        match_unfiltered=options.match_unfiltered,
    )


def _by_value(column: pa.Array, wanted: Callable[[str | None], bool]) -> Mask:
    """`wanted` of every value, asked once for each different one."""
    coded = column.dictionary_encode()
    answers = np.array([wanted(value) for value in coded.dictionary.to_pylist()] + [wanted(None)], np.bool_)
    found: Mask = answers[coded.indices.fill_null(len(answers) - 1).to_numpy(zero_copy_only=False)]
    return found

"""Errors of Harebell as Spark shows them: their own line first, and no traceback of Python's before it.

PySpark sends the text of a Python exception to the JVM, which puts it into an exception of its own. The text is the
whole traceback, unless the environment of the process says SPARK_HIDE_TRACEBACK; and a process that has sent one ends.
So the variable is set when an error leaves this package whose text says it all: any HarebellError.

Rules learned from PySpark 4.3: an error in DataSource.streamReader ends in an UnboundLocalError of the process that
plans a stream (`finally: reader.stop()`), so it is raised by the reader's first method in its place (`Refused`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from harebell.errors import HarebellError

__all__ = ["Refused", "shown", "shown_rows"]

P = ParamSpec("P")
T = TypeVar("T")

HIDE: Final = "SPARK_HIDE_TRACEBACK"


def shown(function: Callable[P, T]) -> Callable[P, T]:
    """The function, whose HarebellErrors Spark shows without a traceback."""

    @functools.wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except HarebellError:
            os.environ[HIDE] = "1"
            raise

    return called


def shown_rows(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """As `shown`, for a generator."""

    @functools.wraps(function)
    def iterated(*arguments: P.args, **named: P.kwargs) -> Iterator[T]:
        try:
            yield from function(*arguments, **named)
        except HarebellError:
            os.environ[HIDE] = "1"
            raise

    return iterated


class Refused(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """In place of a reader that cannot be made: raises the error as soon as it is asked anything."""

    def __init__(self, error: HarebellError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        os.environ[HIDE] = "1"
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()

    def stop(self) -> None:
        """Nothing was begun."""

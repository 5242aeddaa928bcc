"""Runs a `harebell spark` command in this process, on the tests' own Spark session."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import harebell.spark
from harebell.cli.main import application
from harebell.errors import InvalidArgument
from harebell.spark.jobs.archive.table import find_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PATIENCE: Final = 240.0  # seconds; what takes that long hangs


def wait_for_rows(archive: Path, count: int, failure: Callable[[], str | None]) -> None:
    """Wait until an archive has so many rows. `failure` gives the text of a job that has ended before that."""
    deadline = time.monotonic() + PATIENCE
    while _rows_in(archive) < count:
        text = failure()
        assert text is None, text
        assert time.monotonic() < deadline, f"{archive} has {_rows_in(archive)} of {count} rows"
        time.sleep(0.1)  # another process writes them


def _rows_in(archive: Path) -> int:
    try:
        return sum(each.rows for each in find_table(archive).files())
    except InvalidArgument:
        return 0  # not begun


class Kept:
    """The session, but that `stop` leaves it for the next test."""

    def __init__(self, spark: SparkSession) -> None:
        """The session becomes the active one of this thread, as one that is started in it would."""
        self._spark = spark
        java = spark._jvm
        assert java is not None
        spark._get_j_spark_session_class(java).setActiveSession(spark._jsparkSession)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


class Command:
    """`command("spark", "deadletters", ...)` gives its exit status."""

    def __init__(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(harebell.spark, "session", lambda *args, **conf: Kept(spark))

    def __call__(self, *arguments: object) -> int:
        status = application()([str(each) for each in arguments], exit_on_error=False, result_action="return_value")
        assert isinstance(status, int)
        return status

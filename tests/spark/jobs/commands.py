"""Runs a `harebell spark` command in this process, on the tests' own Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import harebell.spark
from harebell.cli.main import application

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

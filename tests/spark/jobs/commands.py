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
        self._spark = spark

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

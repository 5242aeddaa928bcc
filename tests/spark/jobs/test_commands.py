"""`harebell spark archive` and `replay` from end to end, in the tests' own session: what is printed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from harebell.cli.spark.spark_job import Cluster
from harebell.cli.terminal.display import Display
from tests.cli.administering import runner
from tests.cli.command import TIMEOUT, environment
from tests.spark.conftest import Broker
from tests.spark.jobs.commands import wait_for_rows
from tests.spark.jobs.filling import archive_of
from tests.spark.preloaded import Interpreters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_there_and_back(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def job(name: str, cluster: Cluster, work: Callable[[SparkSession, Display], int], **more: object) -> int:
        return work(spark, Display(Console(stderr=True)))

    monkeypatch.setattr("harebell.cli.spark.archive.run_job", job)
    monkeypatch.setattr("harebell.cli.spark.replay.run_job", job)
    run = runner(monkeypatch, capsys, broker.url)
    queue, again, box = broker.queue("classic"), broker.queue("classic"), tmp_path / "box"
    broker.numbered(queue, 120)

    result = run("spark", "archive", box, queue, "--verify")
    assert result.status == 0, result.error
    lines = [line.rstrip() for line in result.output.splitlines()]
    assert [part.strip() for part in lines[2].split("│")] == [queue, "drained", "1", "120"]
    assert lines[3:] == [
        "120 messages archived; the archive has 120 in 1 file",
        "120 rows in the files, 120 in the archive's log",
    ]
    result = run("spark", "replay", box, "--dry-run", "--where", "cast(message_id AS int) < 20")
    assert result.status == 0, result.error
    assert result.output.startswith("20 messages, 30 bytes, ")
    assert [part.strip() for part in result.output.splitlines()[3].split("│")] == ["(default)", queue, "20"]

    result = run("spark", "replay", box, "--to-exchange", "", "--to-key", again, "--name", "one", "--rate", "100000")
    assert (result.status, result.output) == (0, "120 messages published and confirmed, 120 in all\n")
    assert "replay one: 120 messages; should it be interrupted, go on with --resume one" in result.error
    assert broker.ready(again) == 120
    result = run("spark", "replay", box, "--resume", "one")
    assert (result.status, result.output) == (0, "0 messages published and confirmed, 120 in all\n")

    old = archive_of(tmp_path / "old", [{}], [{}]).root
    result = run("spark", "archive", old, "--compact")
    assert result.output.startswith(
        "2 small files of past days are 1 now (2 rows, 0.0 MiB to 0.0); 0 old files deleted"
    )
    assert run("spark", "replay", old, "--key", "nothing", "--dry-run").output == "no messages\n"
    assert run("spark", "replay", tmp_path / "none").error.startswith("harebell: there is no archive in")


COMMAND = """
import sys
from harebell.cli.main import main
sys.executable = sys.argv.pop(1)  # starts Spark's workers
main(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_signal_ends_an_archive_in_the_making_after_its_batch(
    broker: Broker, interpreters: Interpreters, tmp_path: Path
) -> None:
    queue, box = broker.queue("classic"), tmp_path / "box"
    broker.numbered(queue, 50)
    command = [
        sys.executable,
        "-c",
        COMMAND,
        str(interpreters.executable),
        "spark",
        "archive",
        str(box),
        queue,
        "--every",
        "1s",
        "--url",
        broker.url,
    ]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            wait_for_rows(box, 50, lambda: output_of(process))
            broker.numbered(queue, 20, 50)
            wait_for_rows(box, 70, lambda: output_of(process))
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert process.returncode == 0, output
    assert "70 messages archived; the archive has 70 in " in output


@pytest.mark.slow
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_signal_ends_a_job_and_leaves_no_files(broker: Broker, tmp_path: Path) -> None:
    """Whatever Spark does by then."""
    queue = broker.queue("classic")
    command = [sys.executable, "-m", "harebell", "spark", "traffic", queue, "--take", "--url", broker.url]
    with subprocess.Popen(
        command, env=environment(TMPDIR=str(tmp_path)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            end = time.monotonic() + TIMEOUT
            while not list(tmp_path.glob("harebell-*")) and process.poll() is None:
                assert time.monotonic() < end
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert process.returncode == 143, output
    assert list(tmp_path.iterdir()) == []


def output_of(process: subprocess.Popen[str]) -> str | None:
    """What a process has printed that has ended; None while it runs."""
    return None if process.poll() is None else process.communicate()[0]

"""`archive` through Spark, against a real broker: exact counts, restarts, what is there read back."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harebell.errors import DataLoss, InvalidArgument, NotFound
from harebell.spark.jobs.archive import Archived, ArchivedQueue, Verified, archive, read, verify
from tests.spark.conftest import RABBITMQ, Broker
from tests.spark.jobs.filling import DAY, archive_of
from tests.spark.preloaded import Interpreters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ids(spark: SparkSession, path: Path) -> list[int]:
    return sorted(int(row.message_id) for row in read(spark, path).select("message_id").collect())


def checkpoint(path: Path, queue: str) -> Path:
    return path / "_archive" / "checkpoints" / "%2F" / queue.replace(".", "%2E")


def forget(path: Path, queue: str, number: int, *logs: str) -> None:
    """Takes a batch out of a checkpoint's logs, as if Spark had not come so far."""
    for log in logs:
        for name in (f"{number}", f".{number}.crc"):
            (checkpoint(path, queue) / log / name).unlink()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("broker", "table"),
    [pytest.param(*RABBITMQ.values, "parquet", marks=RABBITMQ.marks), ("harebell_server", "delta")],
    indirect=["broker"],
)
def test_a_stream_and_a_work_queue_in_one_archive(
    spark: SparkSession, broker: Broker, tmp_path: Path, table: Any
) -> None:
    stream, work = broker.queue("stream"), broker.queue("classic")
    broker.numbered(stream, 3000)
    broker.numbered(work, 2000, start=3000)
    path = tmp_path / "archive"
    told: list[int] = []
    options = {"maxMessagesPerTrigger": "1500"}
    done = archive(spark, broker.url, [stream, work], path, table=table, options=options, progress=told.append)
    assert done.queues == (ArchivedQueue(stream, "stream", 3000, 2), ArchivedQueue(work, "drained", 2000, 2))
    assert (done.added, done.rows, told[-1]) == (5000, 5000, 5000)
    assert broker.ready(work) == 0
    broker.numbered(stream, 100, start=5000)
    again = archive(spark, broker.url, [stream, work], path, table=table)
    assert again.queues == (ArchivedQueue(stream, "stream", 100, 1), ArchivedQueue(work, "drained", 0, 0))
    assert again.rows == 5100
    assert ids(spark, path) == list(range(5100))
    assert verify(spark, path) == Verified(5100, 5100, 0, 0)


@pytest.mark.spark
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_batch_that_is_made_again_counts_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Killed after the archive's commit and before Spark's: Spark makes the batch again."""
    stream, work = broker.queue("stream"), broker.queue("classic")
    path = tmp_path / "archive"
    for queue in (stream, work):
        broker.numbered(queue, 300)
    archive(spark, broker.url, [stream, work], path)
    for queue in (stream, work):
        forget(path, queue, 0, "commits")
        broker.numbered(queue, 50, start=300)
    with ThreadPoolExecutor(1) as pool:  # a thread that did not make the session
        done = pool.submit(archive, spark, broker.url, [stream, work], path).result()
    assert done == Archived(
        (ArchivedQueue(stream, "stream", 50, 2), ArchivedQueue(work, "drained", 50, 2)), 700, done.files
    )
    assert ids(spark, path) == sorted([*range(350), *range(350)])
    # An older checkpoint, on the other hand, would make Spark count other messages under numbers that are taken.
    forget(path, stream, 1, "commits", "offsets")
    with pytest.raises(DataLoss, match=r"is older than the archive: .* ends at batch 0, the archive has 1"):
        archive(spark, broker.url, [stream], path)
    assert verify(spark, path) == Verified(700, 700, 0, 0)


@pytest.mark.spark
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_on_and_on_until_told_to_stop(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    stream, work = broker.queue("stream"), broker.queue("classic")
    path = tmp_path / "archive"
    broker.numbered(stream, 100)
    stop = threading.Event()

    def progress(rows: int) -> None:
        if rows == 100:
            broker.numbered(work, 100, start=100)
        if rows >= 200:
            stop.set()

    done = archive(spark, broker.url, [stream, work], path, every=0.1, stop=stop, progress=progress)
    assert done.added == done.rows >= 200
    again = archive(spark, broker.url, [stream, work], path)
    assert again.rows == done.rows + again.added
    assert set(ids(spark, path)) == set(range(200))


@pytest.mark.spark
def test_what_verify_finds(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"offset": n, "message_id": "same", "timestamp": DAY + timedelta(days=n)} for n in range(3)]
    drained = [{"message_id": name, "queue": "drained"} for name in ("a", "a", "b", None, None)]
    table = archive_of(tmp_path / "archive", rows, rows[:2], drained)
    assert verify(spark, table.root) == Verified(10, 10, 2, 1)
    assert not verify(spark, table.root).sound
    sound = archive_of(tmp_path / "sound", rows, drained)
    assert verify(spark, sound.root).sound
    assert verify(spark, archive_of(tmp_path / "empty").root) == Verified(0, 0, 0, 0)
    assert read(spark, tmp_path / "empty").schema == read(spark, sound.root).schema


def refused(broker: Broker, path: Path, *queues: str, **options: Any) -> None:
    """Without a session: what is refused is refused before Spark is asked for anything."""
    archive(None, broker.url, queues, path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_what_cannot_be_archived(broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("classic")
    path = tmp_path / "archive"
    with pytest.raises(NotFound, match="no queue 'nothere'"):
        refused(broker, path, queue, "nothere")
    with pytest.raises(InvalidArgument, match="at least one queue"):
        refused(broker, path)
    with pytest.raises(InvalidArgument, match="named twice"):
        refused(broker, path, queue, queue)
    with pytest.raises(InvalidArgument, match="not the name of one queue"):
        refused(broker, path, f"{queue},{queue}2")
    with pytest.raises(InvalidArgument, match="key_words is -1"):
        refused(broker, path, queue, key_words=-1)
    with pytest.raises(InvalidArgument, match="option 'failOnDataLoss'"):
        refused(broker, path, queue, options={"failOnDataLoss": "false"})
    assert not path.exists()


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_one_process_at_a_time(broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("classic")
    place = checkpoint(tmp_path, queue)
    place.mkdir(parents=True)
    (tmp_path / "_archive" / "log").mkdir()
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InvalidArgument, match="is being archived there by another process"):
            archive(object(), broker.url, [queue], tmp_path)  # type: ignore[arg-type]


CHILD = """
import sys
from harebell.spark import session
from harebell.spark.jobs.archive import archive

sys.executable, url, path, *queues = sys.argv[1:]  # the first starts Spark's workers
spark = session("child", **{"spark.ui.enabled": "false"})
print("ready", flush=True)
archive(spark, url, queues, path, options={"maxMessagesPerTrigger": "500"})
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_killed_in_the_middle(spark: SparkSession, interpreters: Interpreters, broker: Broker, tmp_path: Path) -> None:
    stream, work = broker.queue("stream"), broker.queue("classic")
    path = tmp_path / "archive"
    broker.numbered(stream, 4000)
    broker.numbered(work, 4000, start=4000)
    log = path / "_archive" / "log"
    for commits in (3, 11):  # while the stream is read, while the queue is drained
        with (tmp_path / "child.log").open("a") as output:
            child = subprocess.Popen(
                [sys.executable, "-c", CHILD, str(interpreters.executable), broker.url, str(path), stream, work],
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 240
        while len(list(log.glob("0*[0-9].json"))) < commits and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)  # nothing tells when the child is there; only its files do
        os.killpg(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, (tmp_path / "child.log").read_text()[-2000:]
    done = archive(spark, broker.url, [stream, work], path)
    assert done.rows == 8000
    assert ids(spark, path) == list(range(8000))
    assert verify(spark, path) == Verified(8000, 8000, 0, 0)

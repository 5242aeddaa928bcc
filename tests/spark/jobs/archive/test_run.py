"""`archive` through Spark, against a real broker: exact counts, restarts, what is there read back."""

from __future__ import annotations

import fcntl
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

from harebell.errors import ArchiveIncomplete, InvalidArgument, NotFound
from harebell.spark.jobs.archive import (
    Archived,
    ArchivedQueue,
    Verified,
    archive,
    prepare,
    read,
    run as run_module,
    verify,
)
from harebell.spark.jobs.archive.iceberg import Iceberg
from harebell.spark.jobs.archive.layout import Table, queue_folder
from harebell.spark.jobs.archive.manifest import Manifest
from harebell.spark.jobs.archive.tasks import Done
from tests.spark.conftest import RABBITMQ, Broker
from tests.spark.jobs.archive.inline import run, stored
from tests.spark.jobs.filling import DAY, archive_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ids(spark: SparkSession, path: Path) -> list[int]:
    return sorted(int(row.message_id) for row in read(spark, path).select("message_id").collect())


@pytest.mark.spark
@pytest.mark.parametrize(
    ("broker", "table"),
    [
        pytest.param(*RABBITMQ.values, "parquet", marks=RABBITMQ.marks),
        ("harebell_server", "delta"),
        ("harebell_server", "iceberg"),
    ],
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
    with ThreadPoolExecutor(1) as pool:  # a thread that did not make the session
        again = pool.submit(archive, spark, broker.url, [stream, work], path, table=table).result()
    assert again.queues == (ArchivedQueue(stream, "stream", 100, 1), ArchivedQueue(work, "drained", 0, 0))
    assert again.rows == 5100
    assert ids(spark, path) == list(range(5100))
    assert verify(spark, path) == Verified(5100, 5100, 0, 0)


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
@pytest.mark.parametrize("crash", ["before the commit", "after the commit"])
@pytest.mark.parametrize("kind", [Manifest, Iceberg], ids=["parquet", "iceberg"])
def test_a_batch_that_is_made_again_counts_once(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: str, kind: type[Manifest | Iceberg]
) -> None:
    stream, work = broker.queue("stream"), broker.queue("classic")
    path = tmp_path / "archive"
    for queue in (stream, work):
        broker.numbered(queue, 300)

    class Crash(BaseException):
        """As a kill: no handler of errors sees it."""

    add: Any = kind.add

    def crashing(table: Table, *arguments: Any) -> bool:
        if crash == "after the commit":
            add(table, *arguments)
        raise Crash

    for _ in range(2):  # of both queues
        with monkeypatch.context() as patch, pytest.raises(Crash):
            patch.setattr(kind, "add", crashing)
            run(broker, path, stream, work, table=kind.format)
    for queue in (stream, work):
        broker.numbered(queue, 50, start=300)
    done = run(broker, path, stream, work, table=kind.format)
    assert done.rows == 700
    assert stored(path) == sorted([*range(350), *range(350)])
    assert run(broker, path, stream, work, table=kind.format).added == 0


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_many_queues_are_few_jobs_and_a_large_one_is_cut(broker: Broker, tmp_path: Path, inline: list[int]) -> None:
    queues = [broker.queue("stream") for _ in range(6)]
    for number, queue in enumerate(queues):
        broker.numbered(queue, 50 if number else 250)
    done = run(broker, tmp_path / "archive", *queues, options={"maxMessagesPerTrigger": "100"})
    assert [(each.rows, each.batches) for each in done.queues] == [(250, 3), *[(50, 1)] * 5]
    assert inline == [1, 2, 2, 1, 1, 1]


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
@pytest.mark.parametrize("kind", ["stream", "classic"])
def test_queues_of_any_name(broker: Broker, tmp_path: Path, kind: str) -> None:
    queues = [broker.queue(kind, name=f"{kind}{name}") for name in (",a", " ", '"', "[]", "\\", "%2F", "/..")]
    queues.append(broker.queue(kind, name=f'["{kind}"]'))
    for number, queue in enumerate(queues):
        broker.numbered(queue, 1, start=number)
    done = run(broker, tmp_path / "archive", *queues)
    assert [(each.queue, each.rows, each.error) for each in done.queues] == [(queue, 1, None) for queue in queues]
    assert stored(tmp_path / "archive") == list(range(len(queues)))


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_options_for_any_queue(broker: Broker, tmp_path: Path) -> None:
    queues = [broker.queue(kind) for kind in ("stream", "classic")]
    for queue in queues:
        broker.numbered(queue, 10)
    options = {"failOnDataLoss": "false", "spool": str(tmp_path / "spool")}
    assert run(broker, tmp_path / "archive", *queues, options=options).added == 20
    assert (tmp_path / "spool").is_dir()


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_on_and_on_until_told_to_stop(broker: Broker, tmp_path: Path) -> None:
    stream, work = broker.queue("stream"), broker.queue("classic")
    path = tmp_path / "archive"
    broker.numbered(stream, 100)
    stop = threading.Event()

    def progress(rows: int) -> None:
        if rows == 100:
            broker.numbered(work, 100, start=100)
        if rows >= 200:
            stop.set()

    done = run(broker, path, stream, work, every=0.1, stop=stop, progress=progress)
    assert done.added == done.rows == 200
    assert run(broker, path, stream, work).rows == 200
    assert stored(path) == list(range(200))


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_session_that_is_gone_ends_the_run(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = broker.queue("classic")
    broker.numbered(queue, 5)

    class Gone(Exception):
        pass

    class Session:
        def range(self, count: int) -> None:
            raise Gone

    def failing(*arguments: object) -> list[Done]:
        raise RuntimeError("the JVM is gone")

    monkeypatch.setattr(run_module, "run_tasks", failing)
    with pytest.raises(Gone):
        archive(Session(), broker.url, [queue], tmp_path)  # type: ignore[arg-type]


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
    with pytest.raises(NotFound, match="name several queues as several arguments"):
        refused(broker, path, f"{queue},{queue}2")
    with pytest.raises(InvalidArgument, match="key_words is -1"):
        refused(broker, path, queue, key_words=-1)
    with pytest.raises(InvalidArgument, match="option 'startingOffsets' means nothing for a classic"):
        refused(broker, path, queue, options={"startingOffsets": "latest"})
    assert not path.exists()


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_one_process_at_a_time(broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("classic")
    place = tmp_path / "_archive" / "checkpoints" / queue_folder("/", queue)
    place.mkdir(parents=True)
    (tmp_path / "_archive" / "log").mkdir()
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InvalidArgument, match="is being archived there by another process"):
            prepare(broker.url, [queue], tmp_path)  # before there is a Spark


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_queue_that_another_process_archives_ends_no_other(broker: Broker, tmp_path: Path) -> None:
    busy, stale, free = broker.queue("classic"), broker.queue("classic"), broker.queue("stream")
    for queue in (busy, stale, free):
        broker.numbered(queue, 5)
    assert run(broker, tmp_path, stale).added == 5
    checkpoints = tmp_path / "_archive" / "checkpoints"
    (checkpoints / queue_folder("/", stale) / "plan").unlink()  # older than the archive
    place = checkpoints / queue_folder("/", busy)
    place.mkdir(parents=True)
    told: list[str] = []
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ArchiveIncomplete, match="2 of 3 queues are not archived to their end") as caught:
            run(broker, tmp_path, busy, stale, free, notice=told.append)
    found = caught.value.archived
    assert isinstance(found, Archived)
    assert [each.rows for each in found.queues] == [0, 0, 5]
    assert "is being archived there by another process" in told[0]
    assert "is older than the archive" in told[1]
    assert run(broker, tmp_path, busy, free).added == 5


CHILD = """
import sys
from tests.spark.jobs.archive import inline
from harebell.spark.jobs.archive import archive, run

run.run_tasks = inline.run_tasks
url, path, *queues = sys.argv[1:]
archive(inline.Session(), url, queues, path, options={"maxMessagesPerTrigger": "200"})
"""


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_killed_in_the_middle(broker: Broker, tmp_path: Path) -> None:
    """kill -9 of the process that plans, reads, writes and commits, at some moment of its work."""
    stream, work = broker.queue("stream"), broker.queue("classic")
    path = tmp_path / "archive"
    broker.numbered(stream, 4000)
    broker.numbered(work, 4000, start=4000)
    log = path / "_archive" / "log"
    for commits in (3, 11, 21):
        with (tmp_path / "child.log").open("a") as output:
            child = subprocess.Popen(
                [sys.executable, "-c", CHILD, broker.url, str(path), stream, work], stdout=output, stderr=output
            )
        deadline = time.monotonic() + 240
        while len(list(log.glob("0*[0-9].json"))) < commits and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)  # nothing tells when the child is there; only its files do
        child.kill()
        assert child.wait() == -signal.SIGKILL, (tmp_path / "child.log").read_text()[-2000:]
    assert run(broker, path, stream, work).rows == 8000
    assert stored(path) == list(range(8000))

"""One queue of an archive that fails: what becomes of it, and that its neighbours do not notice. Without Spark."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harebell.client.messages import Message
from harebell.client.recovery.policy import Backoff
from harebell.errors import ArchiveIncomplete, ConnectionLost, HarebellError
from harebell.protocol.v091.fields import Table
from harebell.spark.jobs.archive import Archived, queue_run, run as run_module
from harebell.spark.jobs.archive.queue_run import Batch, QueueRun
from harebell.spark.jobs.archive.tasks import Done, Work
from tests.spark.conftest import Broker
from tests.spark.jobs.archive.inline import run, run_tasks, stored


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
@pytest.mark.parametrize("every", [None, 0.05])
@pytest.mark.parametrize("fault", ["deleted", "lost", "disk", "worker", "broker away"])
def test_one_queue_that_fails_ends_no_other(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, every: float | None
) -> None:
    """A queue fails while its neighbours are archived, and recovers where that is possible."""
    monkeypatch.setattr(queue_run, "_PAUSES", Backoff(0.01, 0.05))
    arguments: Table | None = (
        {"x-max-length-bytes": 20_000, "x-stream-max-segment-size-bytes": 5_000} if fault == "lost" else None
    )
    bad, good, other = broker.queue("stream", arguments), broker.queue("stream"), broker.queue("classic")
    path, stop, whole = tmp_path / "archive", threading.Event(), threading.Event()
    for queue in (bad, good, other):
        broker.numbered(queue, 10)
    assert run(broker, path, bad, good, other).added == 30
    for queue in (bad, good, other):
        broker.numbered(queue, 20, start=10)
    faults = {
        "disk": HarebellError("the archive cannot be written: No space left on device"),
        "worker": RuntimeError("Python worker exited unexpectedly (crashed)"),
        "broker away": ConnectionLost("the broker is away"),
    }
    if fault == "lost":
        broker.publish(bad, (Message(bytes(500), message_id=str(n)) for n in range(30, 300)))

    def failing(spark: object, root: Path, words: int, work: Sequence[Work]) -> list[Done]:
        theirs = [number for number, each in enumerate(work) if each.options.queues == (bad,)]
        if theirs and fault in faults and not whole.is_set():
            error = faults[fault]
            if not isinstance(error, HarebellError):
                raise error
            done = run_tasks(spark, root, words, [each for each in work if each.options.queues != (bad,)])
            for number in theirs:
                done.insert(number, Done(error=error))
            return done
        return run_tasks(spark, root, words, work)

    monkeypatch.setattr(run_module, "run_tasks", failing)
    given: dict[str, Any] = {"options": {"retryTimeout": "0.2"}}
    if fault == "deleted":
        gone = QueueRun.next_batch

        def deleting(self: QueueRun) -> Batch | None:
            if self.queue == bad and not whole.is_set():
                broker.delete(bad)
            return gone(self)

        monkeypatch.setattr(QueueRun, "next_batch", deleting)
    if every is not None:

        def progress(rows: int) -> None:
            if rows >= 40 and not whole.is_set():  # the others' messages are there: the fault ends
                if fault == "deleted":
                    broker.queue("stream", name=bad)
                whole.set()
            if rows >= 60 or (whole.is_set() and fault in ("deleted", "lost")):
                stop.set()

        given |= {"every": every, "stop": stop, "progress": progress}

    recovers = every is not None and fault in faults
    if recovers:
        done = run(broker, path, bad, good, other, **given)
        assert [each.rows for each in done.queues] == [20, 20, 20]
        assert stored(path) == sorted([*range(30)] * 3)
        return
    with pytest.raises(ArchiveIncomplete) as caught:
        run(broker, path, bad, good, other, **given)
    assert f"1 of 3 queues are not archived to their end ('{bad}': " in str(caught.value)
    found = caught.value.archived
    assert isinstance(found, Archived)
    assert [each.rows for each in found.queues] == [0, 20, 20]
    assert [each.error is None for each in found.queues] == [False, True, True]


@pytest.mark.parametrize(
    "end",
    [
        {"drain": "ab" * 16, "n": 3, "parts": 1, "rows": {"rows": 4, "n": 3}},
        {"drain": {"base": 10, "next": 14}, "rows": {"base": -1, "next": 2}},
    ],
)
def test_the_size_of_a_batch(end: dict[str, Any]) -> None:
    assert queue_run._size(end) == 7

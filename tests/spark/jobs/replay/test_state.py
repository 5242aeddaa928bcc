"""The stored state of a replay where two want it at once: processes that run it, attempts at one of its tasks."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from harebell.errors import InvalidArgument
from harebell.spark.jobs.archive.selection import Selection
from harebell.spark.jobs.replay import publish as replay_publish, run as replay_run
from harebell.spark.jobs.replay.state import Pace, QueuePlan, ReplayPlan, State, Target
from tests.spark.jobs.filling import DAY, archive_of, batch

PLAN = ReplayPlan("box", Selection(), Target(), Pace(), 1, {"q": QueuePlan(3, 17, 0)})


def test_a_replay_that_runs_is_not_resumed(tmp_path: Path) -> None:
    root = archive_of(tmp_path / "box", [{"queue": "q", "offset": 0}]).root
    state = State(root, "one")
    state.create(PLAN)
    told: list[str] = []
    with state.held(), pytest.raises(InvalidArgument, match="'one' is running in another process: wait for its end"):
        replay_run.resume(
            cast(Any, None), "amqp://h/", root, "one", planned=lambda name, rows: told.append(name)
        )  # it is refused before it needs Spark
    assert told == []
    with state.held():
        pass


@pytest.mark.pure
def test_of_two_attempts_at_a_task_the_later_one_goes_on_behind_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State(tmp_path, "one")
    state.create(PLAN)
    published: list[bytes] = []
    rows = batch([{"queue": "q", "offset": n, "exchange": "", "routing_key": "q", "body": b"%d" % n} for n in range(3)])
    for name in ("archived_at", replay_publish.DUE):
        rows = rows.append_column(name, pa.array([DAY] * 3, pa.timestamp("us", "UTC")))
    for name in ("archived_row", replay_publish.TASK):
        rows = rows.append_column(name, pa.array([0] * 3, pa.int32()))
    work = replay_run._work("amqp://h/", state, PLAN)

    def attempt() -> list[int]:
        return [count for done in work([rows]) for count in done.column("published").to_pylist()]

    with ThreadPoolExecutor(1) as pool:
        second: list[Future[list[int]]] = []

        class FirstBegins:
            """A connection over which the second attempt begins while the first one publishes."""

            def __init__(self, url: object, timeout: float) -> None: ...
            def confirm_select(self) -> None: ...
            def close(self) -> None: ...

            def publish(self, chunk: list[Any], window: int, timeout: float) -> int:
                published.extend(each.message.body for each in chunk)
                if not second:
                    second.append(pool.submit(attempt))
                    with pytest.raises(TimeoutError):
                        second[0].result(0.2)
                return len(chunk)

        monkeypatch.setattr(replay_publish, "Link", FirstBegins)
        assert attempt() == [3]
        assert second[0].result(60) == [0]
    assert published == [b"0", b"1", b"2"]
    assert state.confirmed(1) == 3

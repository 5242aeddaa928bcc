"""A query that is started although Python is late, and what a query's progress says about the rows that it has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harebell.spark.runtime.queries import rows_read, start_query

LATE = RuntimeError("[STREAM_FAILED] ... Python worker failed to connect back. ... Current State: INITIALIZING")


class FakeQuery:
    """A query whose status goes through these messages, one a look, and that then has ended with the error, if any."""

    def __init__(self, messages: list[str], error: Exception | None = None) -> None:
        self.messages = messages
        self.error = error
        self.stopped = False

    @property
    def isActive(self) -> bool:
        return bool(self.messages)

    @property
    def status(self) -> dict[str, Any]:
        return {"message": self.messages.pop(0)}

    @property
    def recentProgress(self) -> Sequence[Any]:
        return []

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        return None

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harebell.spark.runtime.queries.START_POLL_SECONDS", 0.0)


def starting(*queries: FakeQuery, seconds: float = 60.0) -> int:
    """How many of the queries were started until one was given back, which is the last of these."""
    left = list(queries)
    found = start_query(lambda: left.pop(0), seconds)
    started = len(queries) - len(left)
    assert found is queries[started - 1]
    return started


def test_a_query_is_started_again_while_python_is_late() -> None:
    late = [FakeQuery(["Initializing StreamExecution", "Initializing sources"], LATE) for _ in range(2)]
    running = FakeQuery(["Initializing sources", "Initializing sources", "Waiting for data to arrive", "more"])
    assert starting(*late, running, FakeQuery([])) == 3
    assert running.isActive


def test_a_query_that_ended_or_failed_otherwise_is_not_started_again() -> None:
    assert starting(FakeQuery([]), FakeQuery([])) == 1
    assert starting(FakeQuery(["Initializing sources"], RuntimeError("no queue")), FakeQuery([])) == 1


def test_after_a_while_the_failure_is_given_back() -> None:
    assert starting(FakeQuery([], LATE), FakeQuery([]), seconds=-1.0) == 1


def test_an_interrupt_stops_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    query = FakeQuery(["Initializing sources", "Initializing sources"])
    with pytest.raises(KeyboardInterrupt):
        start_query(lambda: query)
    assert query.stopped


def test_rows_of_a_batch_in_this_process_and_over_connect() -> None:
    sources = [{"numInputRows": 3}, {"numInputRows": 4}]
    assert rows_read({"numInputRows": 8, "sources": sources}) == 8
    assert rows_read({"numInputRows": 0, "sources": sources}) == 0
    assert rows_read({"numInputRows": None, "sources": sources}) == 7

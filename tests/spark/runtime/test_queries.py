"""A query that is started although Python is late, and what a query's progress says about the rows that it has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harebell.spark.runtime import queries
from harebell.spark.runtime.queries import follow, rows_read, start_query
from tests.replaced_time import replace_time

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

    replace_time(monkeypatch, queries, sleep=interrupt)
    query = FakeQuery(["Initializing sources", "Initializing sources"])
    with pytest.raises(KeyboardInterrupt):
        start_query(lambda: query)
    assert query.stopped


def test_rows_of_a_batch_in_this_process_and_over_connect() -> None:
    sources = [{"numInputRows": 3}, {"numInputRows": 4}]
    assert rows_read({"numInputRows": 8, "sources": sources}) == 8
    assert rows_read({"numInputRows": 0, "sources": sources}) == 0
    assert rows_read({"numInputRows": None, "sources": sources}) == 7


class FollowedQuery(FakeQuery):
    """A query that ends after these looks; Spark remembers the last two batches of each look only."""

    def __init__(self, looks: list[list[tuple[int, int]]], error: Exception | None = None) -> None:
        super().__init__([], error)
        self.looks = looks

    @property
    def isActive(self) -> bool:
        return len(self.looks) > 1

    @property
    def recentProgress(self) -> Sequence[Any]:
        look = self.looks.pop(0)
        return [{"batchId": number, "numInputRows": rows} for number, rows in look[-2:]]


def test_a_query_is_followed_to_its_end() -> None:
    told: list[int] = []
    looks = [[], [(0, 5)], [(0, 5), (1, 7)], [(1, 7), (2, 1)], [(2, 1), (3, 0)]]
    assert follow(FollowedQuery(looks), told.append) == 13
    assert told == [0, 5, 12, 13, 13]


def test_a_query_that_ended_before_it_was_followed() -> None:
    told: list[int] = []
    assert follow(FollowedQuery([[(0, 5), (1, 7)]]), told.append) == 12
    assert told == [12]


def test_a_query_that_failed_raises_its_error_after_its_rows_were_told() -> None:
    told: list[int] = []
    with pytest.raises(RuntimeError, match="no queue"):
        follow(FollowedQuery([[(0, 5)], [(0, 5), (1, 2)]], RuntimeError("no queue")), told.append)
    assert told == [5, 7]

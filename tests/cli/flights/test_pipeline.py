"""What can be said of the steps without Spark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harebell.cli.flights.pipeline import Pipeline


def test_the_archive_reads_once_more_when_the_log_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    there, complete = iter([3, 0, 4]), iter([False, False, True])
    told: list[int] = []

    def read(self: Pipeline, progress: Callable[[int], None]) -> int:
        rows = next(there)
        progress(rows)
        return rows

    monkeypatch.setattr(Pipeline, "_archive_what_is_there", read)
    assert Pipeline.__new__(Pipeline).archive(told.append, lambda: next(complete)) == 7
    assert told == [3, 3, 7]

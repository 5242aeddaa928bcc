"""Fixtures of the archive's tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harebell.spark.jobs.archive import run as run_module
from harebell.spark.jobs.archive.tasks import Done, Work
from tests.spark.jobs.archive.inline import run_tasks


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs the tasks of archives in this process; the list has how many tasks each job had."""
    jobs: list[int] = []

    def counted(spark: object, root: Path, words: int, work: Sequence[Work]) -> list[Done]:
        jobs.append(len(work))
        return run_tasks(spark, root, words, work)

    monkeypatch.setattr(run_module, "run_tasks", counted)
    return jobs

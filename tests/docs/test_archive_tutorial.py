"""docs/tutorials/archive.md, followed: the job is killed, and what it has written holds each order once.

The first job is a process of its own. What follows it runs in the tests' own Spark session.
"""

from __future__ import annotations

import contextlib
import io
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.lesson import Lesson
from tests.spark.jobs.commands import Command, wait_for_rows
from tests.torture.server import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_lesson(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = str(free_port())
    url = f"amqp://guest:guest@127.0.0.1:{port}/"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAREBELL_URL", url)
    monkeypatch.setenv("COLUMNS", "120")
    command = Command(spark, monkeypatch)

    def here(words: list[str]) -> str:
        """What the command prints, which runs in this process and session."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            if words[0] == "python":
                runpy.run_path(words[1])
            else:
                assert command(*words[1:]) == 0
        return printed.getvalue()

    with Lesson("archive.md", tmp_path, {"5672": port}, {"HAREBELL_PORT": port, "HAREBELL_URL": url}) as lesson:
        lesson.start("harebell serve")
        lesson.run("python orders.py 2026-01-05")
        lesson.run("python orders.py 2026-01-06")
        job = lesson.start("harebell spark archive")
        wait_for_rows(tmp_path / "shop", 1, lambda: None if job.runs else job.output())
        lesson.kill()
        assert not job.runs
        lesson.run("python orders.py 2026-01-07")
        lesson.run("harebell spark archive", within=here)
        lesson.run("python days.py", within=here)
        lesson.run("harebell spark replay", within=here)
        lesson.run("harebell spark replay", within=here)
        lesson.run("python again.py")
        lesson.finish()

"""The checkpoint of one queue: plans before and after crashes, Spark's plans, those that do not fit. Files only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harebell.errors import DataLoss, InvalidArgument
from harebell.spark.jobs.archive.checkpoint import NOT_BEGUN, Checkpoint, Plan


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "orders", "orders")


def end(number: int) -> dict[str, dict[str, int]]:
    return {"orders": {"base": 0, "next": number}}


def test_a_plan_is_there_again(checkpoint: Checkpoint) -> None:
    with checkpoint.held():
        writer = checkpoint.writer()
        assert checkpoint.plan(NOT_BEGUN) is None
        checkpoint.save(Plan(NOT_BEGUN, end(0)))
        assert checkpoint.plan(NOT_BEGUN) == Plan(NOT_BEGUN, end(0))
        for batch in (0, 1):
            checkpoint.save(Plan(batch, end(batch)))
    with checkpoint.held():
        assert checkpoint.writer() == writer
        assert checkpoint.plan(0) == checkpoint.plan(1) == Plan(1, end(1))  # written or not


@pytest.mark.parametrize("saved", [None, NOT_BEGUN, 1])
def test_a_plan_that_is_older_than_the_log_is_refused(checkpoint: Checkpoint, saved: int | None) -> None:
    with checkpoint.held():
        checkpoint.writer()
        if saved is not None:
            checkpoint.save(Plan(saved, end(0)))
        with pytest.raises(DataLoss, match=rf"ends at batch {-1 if saved is None else saved}, the archive has 2"):
            checkpoint.plan(2)


@pytest.mark.parametrize("written", [NOT_BEGUN, 0, 1])
def test_the_checkpoint_of_a_streaming_query_is_taken_over(checkpoint: Checkpoint, written: int) -> None:
    spark = checkpoint.folder / "offsets"
    spark.mkdir(parents=True)
    for batch in (0, 1):
        (spark / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(end(batch))}')
        (spark / f".{batch}.crc").touch()
    (checkpoint.folder / "writer").write_text("w")
    with checkpoint.held():
        assert checkpoint.writer() == "w"
        assert checkpoint.plan(written) == Plan(1, end(1))
        with pytest.raises(DataLoss):
            checkpoint.plan(2)


def test_what_is_no_checkpoint(checkpoint: Checkpoint) -> None:
    with checkpoint.held():
        checkpoint.save(Plan(0, end(0)))
        with pytest.raises(InvalidArgument, match="the file 'writer' is gone"):
            checkpoint.writer()
        (checkpoint.folder / "plan").write_text("{")
        with pytest.raises(InvalidArgument, match=r"plan is damaged; delete .*orders to read the queue anew"):
            checkpoint.plan(NOT_BEGUN)

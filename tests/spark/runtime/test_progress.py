"""What a query's progress says about the rows that it has read."""

from __future__ import annotations

from harebell.spark.runtime.progress import rows_read


def test_rows_of_a_batch_in_this_process_and_over_connect() -> None:
    sources = [{"numInputRows": 3}, {"numInputRows": 4}]
    assert rows_read({"numInputRows": 8, "sources": sources}) == 8
    assert rows_read({"numInputRows": 0, "sources": sources}) == 0
    assert rows_read({"numInputRows": None, "sources": sources}) == 7

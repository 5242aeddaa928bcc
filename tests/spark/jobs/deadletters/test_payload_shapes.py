"""The pattern that payloads of one kind share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harebell.spark.jobs.deadletters.payload_shapes import shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SHAPES = [
    (b"user 3f2504e0-4f89-11d3-9a0c-0305e82c3301 gone", "user <uuid> gone"),
    (b"mail to a.b+c@example.org  bounced\n", "mail to <email> bounced"),
    (b"commit deadbeef01 by x", "commit <hex> by x"),
    (b"took 1,234.5 ms, facade left", "took <n> ms, facade left"),
    (b'[{"a": 1}, {"a": null}]', "ARRAY<OBJECT<a: NUMBER>>"),
    (b"{not json", "{not json"),
    (b'"text"', '"text"'),
]


def test_shapes(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(n, bytearray(body)) for n, (body, _) in enumerate(SHAPES)], "n INT, body BINARY")
    found = frame.orderBy("n").selectExpr(shape("body")).collect()
    assert [row[0] for row in found] == [pattern for _, pattern in SHAPES]

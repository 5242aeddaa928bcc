"""Where a job's messages come from: peeked at, drained, streamed, archived."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harebell.client.messages import Message
from harebell.errors import InvalidArgument
from harebell.spark.jobs import archive as archives
from harebell.spark.jobs.peek import Peeked
from harebell.spark.jobs.sources import Origin, messages
from tests.spark.conftest import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_every_origin(harebell_server: Any, spark: SparkSession, tmp_path: Path) -> None:
    broker = Broker(harebell_server.url)
    try:
        queue, stream = broker.queue("classic"), broker.queue("stream")
        broker.publish(queue, [Message(b"%d" % n) for n in range(7)])
        broker.numbered(stream, 3)

        seen = messages(spark, Origin(broker.url, queue), tmp_path / "peeked")
        assert (seen.what, seen.peeked) == (f"queue {queue}, browsed", Peeked(queue, 7, True))
        assert sorted(bytes(row.body) for row in seen.frame.collect()) == [b"%d" % n for n in range(7)]
        assert messages(spark, Origin(broker.url, queue), tmp_path / "part", limit=2).frame.count() == 2

        taking = Origin(broker.url, queue, take=True, ticket="monday", spool=str(tmp_path / "spool"))
        for _ in range(2):  # the same ticket, the same messages
            taken = messages(spark, taking, tmp_path)
            assert (taken.what, taken.peeked) == (f"queue {queue}, drained as ticket monday", None)
            assert taken.frame.count() == 7
        assert broker.ready(queue) == 0

        streamed = messages(spark, Origin(broker.url, stream), tmp_path)
        assert streamed.what == f"stream queue {stream}"
        archive = str(tmp_path / "archive")
        streamed.frame.write.parquet(archive)
        assert messages(spark, Origin("", archive=archive), tmp_path, limit=2).frame.count() == 2
        kept = str(tmp_path / "kept")
        archives.archive(spark, broker.url, [stream], kept)
        assert messages(spark, Origin("", archive=kept), tmp_path).frame.count() == 3
        with pytest.raises(InvalidArgument, match="there is no folder"):
            messages(spark, Origin("", archive=str(tmp_path / "nothing")), tmp_path)
        for name in ("empty", "others"):
            (tmp_path / name).mkdir()
        with pytest.raises(InvalidArgument, match="is empty: `harebell spark archive` puts messages into one"):
            messages(spark, Origin("", archive=str(tmp_path / "empty")), tmp_path)
        (tmp_path / "others" / "letter.parquet").write_text("Dear Sir or Madam, this is not Parquet")
        with pytest.raises(InvalidArgument, match="is no archive, and has no Parquet files that Spark can read"):
            messages(spark, Origin("", archive=str(tmp_path / "others")), tmp_path)
        unused = messages(spark, Origin(broker.url, stream, take=True, spool=str(tmp_path / "unused")), tmp_path)
        assert unused.what == f"stream queue {stream}, of which reading takes nothing: --take is unused"
        assert not (tmp_path / "unused").exists()
        with pytest.raises(InvalidArgument, match="leave out --ticket"):
            messages(spark, Origin(broker.url, stream, take=True, ticket="monday"), tmp_path)
        with pytest.raises(InvalidArgument, match="without a limit"):
            messages(spark, taking, tmp_path, limit=2)
    finally:
        broker.close()

"""`replay` through Spark, against a real broker: what was archived comes back as it was, as often as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import DRAINED, Broker
from warren.client.blocking import connect
from warren.client.records import Delivery, Message
from warren.spark.jobs.archive import archive
from warren.spark.jobs.replay import Preview, Replayed, Route, Selection, Target, preview, replay, resume

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def drained(broker: Broker, queue: str, count: int) -> list[Delivery]:
    """Exactly so many messages of a queue, which is empty then."""
    with connect(broker.url, timeout=30.0) as connection:
        channel = connection.channel()
        got = [channel.get(queue, no_ack=True) for _ in range(count)]
        assert channel.get(queue, no_ack=True) is None
    assert all(got)
    return [delivery for delivery in got if delivery is not None]


EVERYTHING = Message(
    bytes(range(256)),
    content_type="application/octet-stream",
    content_encoding="identity",
    headers={
        "text": "grüße",
        "int": 7,
        "big": 2**40,
        "float": 0.5,
        "yes": True,
        "nothing": None,
        "bytes": b"\x00\xff",
        "decimal": Decimal("12.34"),
        "at": datetime(2026, 1, 5, 12, 0, tzinfo=UTC),
        "table": {"inner": [1, "two", {"three": 3}]},
    },
    delivery_mode=2,
    priority=3,
    correlation_id="c",
    reply_to="r",
    expiration="3600000",
    message_id="m",
    timestamp=datetime(2026, 1, 5, 12, 0, tzinfo=UTC),
    type="t",
    user_id="guest",
    app_id="a",
)


@pytest.mark.parametrize(("broker", "kind"), DRAINED, indirect=["broker"])
def test_a_message_comes_back_as_it_was(spark: SparkSession, broker: Broker, kind: str, tmp_path: Path) -> None:
    source, destination = broker.queue(kind), broker.queue("classic")
    broker.publish(source, [EVERYTHING, Message(b"")])
    path = tmp_path / "box"
    archive(spark, broker.url, [source], path)
    done = replay(spark, broker.url, path, target=Target("", destination), name="once")
    assert done == Replayed("once", 2, 2, 0)
    first, second = drained(broker, destination, 2)
    origin = json.loads(str(first.headers.pop("x-replayed-from")))
    assert (origin["archive"], origin["queue"], origin["archived_row"]) == ("box", source, 0)
    assert (first.body, first.properties) == (EVERYTHING.body, EVERYTHING.properties)
    assert (second.body, list(second.headers)) == (b"", ["x-replayed-from"])
    assert resume(spark, broker.url, path, "once") == Replayed("once", 2, 0, 0)

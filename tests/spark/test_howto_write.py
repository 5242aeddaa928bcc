"""The examples of docs/how-to/spark-write.md run, one after the other, and do what the page says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harebell.client.blocking import connect
from harebell.testing import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark-write.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.spark


def test_the_examples_of_the_page(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker() as server, connect(server.url) as connection, connection.channel() as channel:
        for exchange in ("shops", "lost"):
            channel.exchange_declare(exchange, "topic", durable=True)
            channel.queue_declare(exchange, durable=True)
        channel.queue_declare("orders", durable=True)
        channel.queue_declare("orders.log", durable=True, arguments={"x-queue-type": "stream"})
        for shop in range(3):
            channel.queue_bind("shops", "shops", f"shop.{shop}")
        channel.queue_bind("lost", "lost", "#")
        names: dict[str, object] = {"spark": spark, "url": server.url}
        for example in EXAMPLE.findall(PAGE.read_text()):
            exec(compile(example, str(PAGE), "exec"), names)
        assert capsys.readouterr().out == "1000 messages\n"
        counts = {name: channel.message_count(name) for name in ("orders", "shops", "lost")}
        assert counts == {"orders": 3000, "shops": 1000 + 667, "lost": 333}
        found = [channel.get("shops", no_ack=True) for _ in range(1000)]
        told = Counter((d.properties.priority, d.properties.app_id, d.headers["shop"]) for d in found if d is not None)
        assert told[(5, "orders job", "0")] + told[(5, "orders job", "1")] + told[(5, "orders job", "2")] == 66
        assert sum(told.values()) == 1000

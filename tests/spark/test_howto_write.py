"""The examples of docs/how-to/spark-write.md and spark-copy.md run, one after the other, and do what the pages say."""

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

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.spark


def run(page: str, **names: object) -> None:
    examples = EXAMPLE.findall((PAGES / page).read_text())
    assert examples
    for example in examples:
        exec(compile(example, page, "exec"), names)


def test_the_examples_of_the_page(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker() as server, connect(server.url) as connection, connection.channel() as channel:
        for exchange in ("shops", "lost"):
            channel.exchange_declare(exchange, "topic", durable=True)
            channel.queue_declare(exchange, durable=True)
        channel.queue_declare("orders", durable=True)
        channel.queue_declare("invoices", durable=True)
        channel.queue_declare("orders.log", durable=True, arguments={"x-queue-type": "stream"})
        for shop in range(3):
            channel.queue_bind("shops", "shops", f"shop.{shop}")
        channel.queue_bind("lost", "lost", "#")
        run("spark-write.md", spark=spark, url=server.url)
        assert capsys.readouterr().out == "1000 messages\n"
        counts = {name: channel.message_count(name) for name in ("orders", "shops", "lost", "invoices")}
        assert counts == {"orders": 3000, "shops": 1000 + 667, "lost": 333, "invoices": 1000}
        found = [channel.get("shops", no_ack=True) for _ in range(1000)]
        told = Counter((d.properties.priority, d.properties.app_id, d.headers["shop"]) for d in found if d is not None)
        assert told[(5, "orders job", "0")] + told[(5, "orders job", "1")] + told[(5, "orders job", "2")] == 66
        assert sum(told.values()) == 1000


def test_the_examples_of_copies(spark: SparkSession, tmp_path: Path) -> None:
    with EmbeddedBroker() as server, connect(server.url) as connection, connection.channel() as channel:
        channel.exchange_declare("orders.by-country", "topic", durable=True)
        channel.exchange_declare("shop", "topic", durable=True)
        for queue, kind in (("orders.log", "stream"), ("refunds.log", "stream"), ("work", "classic")):
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        for queue in ("orders.copy", "all", "eu", "archive"):
            channel.queue_declare(queue, durable=True)
        channel.queue_bind("orders.log", "shop", "*.eu")
        for queue, key in (("eu", "*.eu"), ("archive", "archive.#")):
            channel.queue_bind(queue, "orders.by-country", key)
        channel.confirm_select()
        for number in range(10):
            channel.publish(b"order %d" % number, "shop", "new.eu")
            channel.publish(b"refund %d" % number, "", "refunds.log")
            channel.publish(b"work %d" % number, "", "work")
        run("spark-copy.md", spark=spark, url=server.url, folder=str(tmp_path))
        wanted = {
            "orders.copy": 10,
            "all": 20,
            "eu": 10,
            "archive": 10,
            "work": 10,
            "orders.log": 10,
            "refunds.log": 10,
        }
        assert {queue: channel.message_count(queue) for queue in wanted} == wanted

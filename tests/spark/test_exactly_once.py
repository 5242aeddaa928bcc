"""Writes with exactlyOnce through Spark: batches that are made again, a write that is complete, a broker without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harebell.client.blocking import sessions
from harebell.testing.rabbitmq import RabbitMQ
from tests.spark.conftest import Broker, cause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def held(broker: Broker, queue: str) -> list[bytes]:
    with sessions.connect(broker.url) as connection, connection.session() as session:
        return sorted(copy.body for copy in session.copies(queue, timeout=60))


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_batch_that_is_made_again_is_there_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """With a shuffle in the query; and the next batch forgets it."""
    target = broker.queue("classic")
    (tmp_path / "in").mkdir()
    frame = spark.readStream.format("text").load(str(tmp_path / "in")).repartition(2)
    commits = tmp_path / "checkpoint" / "commits"

    def run() -> str:
        query = (
            frame.writeStream.format("amqp")
            .options(url=broker.url, exchange="", routingKey=target, exactlyOnce="sessions")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return str(query.id)

    (tmp_path / "in" / "1.txt").write_text("".join(f"{n}\n" for n in range(1000)))
    query = run()
    assert held(broker, target) == sorted(b"%d" % n for n in range(1000))
    for file in commits.iterdir():
        file.unlink()  # as if the driver had died before it wrote this down
    (tmp_path / "in" / "2.txt").write_text("".join(f"{n}\n" for n in range(1000, 1500)))
    run()
    assert held(broker, target) == sorted(b"%d" % n for n in range(1500))
    with sessions.connect(broker.url) as connection:
        for batch, there in ((0, False), (1, True)):
            with connection.session(f"harebell.spark/{query}/{batch}/0", force=True) as session:
                assert session.resumed is there
    for partition in range(2):
        broker.forget_later(f"harebell.spark.{query}.{partition}")


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_a_write_of_a_dataframe(spark: SparkSession, broker: Broker) -> None:
    target = broker.queue("classic")
    frame = spark.range(0, 2000, numPartitions=2).selectExpr("cast(id as string) body")
    frame.write.format("amqp").mode("append").options(
        url=broker.url, exchange="", routingKey=target, exactlyOnce="auto"
    ).save()
    assert held(broker, target) == sorted(b"%d" % n for n in range(2000))


@pytest.mark.rabbitmq
def test_a_broker_that_has_no_sessions(spark: SparkSession, rabbitmq: RabbitMQ) -> None:
    with pytest.raises(Exception) as caught:
        spark.sql("select 'x' body").write.format("amqp").mode("append").options(
            url=rabbitmq.url, exchange="", routingKey="q", exactlyOnce="sessions"
        ).save()
    assert "exactlyOnce=sessions needs a broker that speaks AMQP 0-10" in cause(caught.value)

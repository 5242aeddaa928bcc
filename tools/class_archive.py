"""Write the archive of Java classes that the tests of Spark start from: `python -m tools.class_archive FILE`.

A Java that maps its classes from an archive starts Spark in half the CPU time; it passes over an archive that another
Java or other jars have made. Archived are the classes that a short work of each kind loads: a stream and a batch that
read from a broker and write to one, Parquet, SQL.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harebell.broker import Broker
from harebell.client import blocking
from harebell.client.messages import Publication
from harebell.errors import MissingDependency
from harebell.spark import session, start_query
from harebell.testing import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"  # classes that cannot be archived are many, and no matter
MESSAGES: Final = 100


def main(archive: Path) -> None:
    """Write the archive, where there is a Java."""
    unfinished = archive.with_name(f"{archive.name}.unfinished")
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={unfinished} {QUIET}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            spark = session("classes", **{"spark.sql.warehouse.dir": f"{folder}/warehouse"})
        except MissingDependency as error:
            print(f"class archive: none, {error}")
            return
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        spark.sparkContext.setLogLevel("ERROR")
        with EmbeddedBroker(partial(Broker, data=f"{folder}/broker")) as broker:
            work(spark, broker.url, Path(folder))
        spark.stop()
        gateway.proc.stdin.close()  # then it ends, and writes
        gateway.proc.wait()
    unfinished.replace(archive)
    print(f"class archive: {archive}, {archive.stat().st_size >> 20} MiB")


def work(spark: SparkSession, url: str, folder: Path) -> None:
    """Load the classes."""
    with blocking.connect(url) as connection, connection.channel() as channel:
        channel.queue_declare("in", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare("out", durable=True)
        channel.confirm_select()
        channel.publish_many(Publication(b"%d" % n, "", "in") for n in range(MESSAGES))
    stream = spark.readStream.format("amqp").option("url", url).option("queue", "in").load()
    files = stream.writeStream.format("parquet").option("path", f"{folder}/parquet").trigger(availableNow=True)
    start_query(files.option("checkpointLocation", f"{folder}/checkpoint").start).awaitTermination()
    rows = spark.read.parquet(f"{folder}/parquet")
    rows.createOrReplaceTempView("messages")
    numbers = spark.sql(
        "select int(string(body)) % 10 ten, count(*) n, max(offset) last, min(timestamp) first "
        "from messages join (select explode(sequence(0, 9)) each) on int(string(body)) % 10 = each "
        "group by 1 order by 1"
    )
    assert [row.n for row in numbers.collect()] == [MESSAGES // 10] * 10
    batch = spark.read.format("amqp").option("url", url).option("queue", "in").load()
    batch.select("body", "routing_key").toPandas()
    sink = batch.selectExpr("body", "'' exchange", "'out' routing_key").write.format("amqp").mode("append")
    sink.option("url", url).save()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""format("amqp") on a standalone cluster with two executors, brought there by what `harebell spark package` says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from harebell import __version__
from harebell.broker import Broker as HarebellBroker
from harebell.errors import MissingDependency
from harebell.spark.runtime.java import find_java
from tests.cli.command import harebell
from tests.spark.bad_days.evidence import sink_files
from tests.spark.cluster import QUICK_START, SparkCluster, bare_environment, spark_home
from tests.spark.conftest import Broker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 2000

JOB = """
import json, os, sys
from pyspark.sql import SparkSession
from harebell.spark import start_query

queue, out, folder = sys.argv[1:]
settings = {
    "spark.ui.enabled": "false", "spark.executor.memory": "512m", "spark.executor.cores": "1",
    # No task begins before both executors are there.
    "spark.cores.max": "2", "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
    "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
}
spark = SparkSession.builder.config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
url, columns = {"urlFile": folder + "/url"}, "offset bigint, body string"
batch = spark.read.format("amqp").options(**url, queue=queue, minPartitions=2).schema(columns).load()
batch.select("body").write.format("amqp").mode("append").options(**url, exchange="", routingKey=out).save()
stream = spark.readStream.format("amqp").options(**url, queue=queue).schema(columns).load()
files = stream.writeStream.format("parquet").option("path", folder + "/out")
files = files.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True)
start_query(files.start).awaitTermination()


def where(batches):
    import pyarrow
    import harebell.spark.source
    for batch in batches:
        place = {"file": [harebell.spark.source.__file__], "executor": [os.getcwd()]}
        yield pyarrow.RecordBatch.from_pydict(place)


places = spark.range(4, numPartitions=4).mapInArrow(where, "file string, executor string").distinct().collect()
import harebell
print("RESULT", json.dumps({
    "driver": harebell.__file__,
    "executors": sorted({row.executor for row in places}),
    "files": sorted({row.file for row in places}),
}))
spark.stop()
"""


@pytest.fixture
def broker(harebell_server: HarebellBroker) -> Broker:
    return Broker(harebell_server.url)


def test_the_line_of_harebell_spark_package(broker: Broker, tmp_path: Path) -> None:
    queue, out = broker.queue("stream"), broker.queue("classic")
    broker.numbered(queue, ROWS)
    (tmp_path / "url").write_text(broker.url)
    (tmp_path / "job.py").write_text(JOB)
    try:
        java = find_java()
    except MissingDependency as error:
        pytest.skip(str(error))
    with SparkCluster(tmp_path / "cluster", workers=1, cores=2, memory="1400m") as cluster:
        said = harebell("spark", "package", tmp_path / "to", "--master", cluster.master, "--job", tmp_path / "job.py")
        line = next(line for line in said.stdout.splitlines() if "spark-submit" in line)
        done = subprocess.run(
            f"{line} {queue} {out} {tmp_path}", shell=True, capture_output=True, text=True, timeout=800, cwd=tmp_path,
            env=bare_environment() | {
                "PATH": f"{spark_home() / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "PYSPARK_PYTHON": sys.executable,
                "JAVA_HOME": str(java.path),
                "SPARK_SUBMIT_OPTS": QUICK_START,
            },
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout[done.stdout.index("RESULT") :].split(maxsplit=1)[1])
    assert sum(parquet.read_metadata(path).num_rows for path in sink_files(tmp_path / "out")) == ROWS
    assert broker.ready(out) == ROWS
    assert ".zip/" in result["driver"]
    assert len(result["executors"]) == 2
    # From what Spark carried into the executors' working folders, not from a source tree or the folder it was made in.
    assert result["files"] == [f"./harebell-{__version__}.zip/harebell/spark/source.py"]
    broker.close()

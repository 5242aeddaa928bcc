"""format("amqp") and the jobs over Spark Connect: a server with a JVM, a client process without one."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harebell.broker import Broker as HarebellBroker
from harebell.errors import MissingDependency
from harebell.spark import session
from harebell.spark.runtime.java import find_java
from tests.spark.cluster import ConnectServer
from tests.spark.conftest import Broker
from tests.spark.preloaded import Interpreters

CLIENT = """
import json, sys
from harebell.spark import session, start_query

remote, url, queue, out, folder = sys.argv[1:]
spark = session("client", remote)
columns = "offset bigint, body string"
batch = spark.read.format("amqp").options(url=url, queue=queue).schema(columns).load()
batch.select("body").write.format("amqp").mode("append").options(url=url, exchange="", routingKey=out).save()
stream = spark.readStream.format("amqp").options(url=url, queue=queue).schema(columns).load()
files = stream.writeStream.format("parquet").option("path", folder + "/out")
files = files.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True)
start_query(files.start).awaitTermination()
from harebell.spark.jobs import archive
from harebell.spark.jobs import replay
from harebell.spark.jobs.simulate.simulation import simulate, topology_of
from harebell.spark.jobs.traffic.event_tables import events, talkers
from harebell.errors import InvalidArgument

kept = folder + "/archive"
done = archive.archive(spark, url, [queue, out], kept)
rows = archive.read(spark, kept)
topology = topology_of(json.dumps({"queues": [{"name": queue, "vhost": "/"}]}))
try:
    refused = replay.preview(spark, kept, replay.Selection(where="nothere = 1"))
except InvalidArgument as error:
    refused = str(error)
sent = replay.replay(
    spark, url, kept, selection=replay.Selection(queues=(queue,), limit=50), target=replay.Target("", out)
)
print("RESULT", json.dumps({
    "archived": [[each.kind, each.rows] for each in done.queues],
    "sound": archive.verify(spark, kept).sound,
    "talkers": {row["name"]: row["messages"] for row in talkers(events(rows), "queue", 9).collect()},
    "copies": simulate(rows, topology).copies,
    "refused": refused,
    "sent": sent.published,
    "rows": spark.read.parquet(folder + "/out").selectExpr("sum(cast(body as bigint))", "count(*)").first(),
    "java": "py4j" in sys.modules,
    "zone": spark.conf.get("spark.sql.session.timeZone"),
}))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_source_sink_and_jobs(harebell_server: HarebellBroker, interpreters: Interpreters, tmp_path: Path) -> None:
    if importlib.util.find_spec("grpc_status") is None:
        pytest.skip("Spark Connect needs grpcio-status and more: pip install 'harebell[connect]'")
    try:
        find_java()
    except MissingDependency as error:
        pytest.skip(str(error))
    broker = Broker(harebell_server.url)
    queue, out = broker.queue("stream"), broker.queue("classic")
    broker.numbered(queue, 3000)
    paths = os.pathsep.join(path for path in sys.path if path)
    with ConnectServer(tmp_path / "server", paths, str(interpreters.executable)) as server:
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, server.remote, broker.url, queue, out, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:] + server.log()[-3000:]
    result = json.loads(done.stdout[done.stdout.index("RESULT") :].split(maxsplit=1)[1])
    assert result["rows"] == [sum(range(3000)), 3000]
    assert result["zone"] == "UTC"
    assert result["archived"] == [["stream", 3000], ["drained", 3000]]
    assert result["sound"]
    assert result["talkers"] == {queue: 3000, out: 3000}
    assert result["copies"] == 3000  # the queue `out` is not in the topology
    assert result["refused"].startswith("condition 'nothere = 1': ")
    assert result["sent"] == 50
    assert broker.ready(out) == 50
    broker.close()


def test_what_connect_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc_status", None)
    with pytest.raises(MissingDependency, match=r"pip install 'harebell\[connect\]'"):
        session(master="sc://localhost")

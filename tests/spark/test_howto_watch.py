"""The example of docs/how-to/spark-watch.md runs, and its metrics are what the page says."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark-watch.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_the_metrics_of_a_query(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    from prometheus_client import REGISTRY

    names: dict[str, Any] = {"spark": spark, "__name__": "example"}
    exec(compile(EXAMPLE.findall(PAGE.read_text())[0], str(PAGE), "exec"), names)
    watch = names["watch"]
    told = threading.Event()
    listen = watch.onQueryProgress
    try:
        queue = broker.queue("stream")
        broker.numbered(queue, 100)

        def heard(event: Any) -> None:
            listen(event)
            if sample("lag", queue) == 0:
                told.set()

        def sample(what: str, of: str) -> float | None:
            return REGISTRY.get_sample_value(f"amqp_query_{what}_messages", {"query": "watched", "queue": of})

        watch.onQueryProgress = heard
        rows = spark.readStream.format("amqp").options(url=broker.url, queue=queue, maxMessagesPerTrigger=60).load()
        writer = rows.writeStream.format("noop").queryName("watched").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        query.awaitTermination()
        assert told.wait(120)
        assert sample("lost", queue) is None
        rate = REGISTRY.get_sample_value("amqp_query_rows_per_second", {"query": "watched"})
        assert rate is not None
        assert rate > 0
        listen(SimpleNamespace(progress=query.recentProgress[0]))
        assert sample("lag", queue) == 40
    finally:
        spark.streams.removeListener(watch)
        for name in ("LAG", "LOST", "RATE"):
            REGISTRY.unregister(names[name])

"""Puts the scene together: a broker, a Spark program, on a cluster of its own or in one process."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from harebell.spark.runtime.packaging import package
from tests.spark.bad_days.brokers import server
from tests.spark.bad_days.days import Scene
from tests.spark.bad_days.torment import HERE, Driver
from tests.spark.cluster import SparkCluster

__all__ = ["EVENTS", "setting"]

EVENTS: Final = "events"  # the folder, inside the scene's, of the event log of Spark on a cluster


def setting(stack: ExitStack, broker: str, folder: Path, cluster: bool, python: str = sys.executable) -> Scene:
    """A broker and a Spark program, on a cluster of its own or in one process, whose Python workers `python` starts."""
    running = stack.enter_context(server(broker, folder / "broker"))
    if not cluster:
        return Scene(running, stack.enter_context(Driver(folder, python=python)), folder)
    spark = stack.enter_context(SparkCluster(folder / "cluster"))
    return Scene(running, stack.enter_context(cluster_driver(spark, folder)), folder, cluster=spark)


def cluster_driver(spark: SparkCluster, folder: Path) -> Driver:
    """The program on that cluster, whose executors get the package as one zip."""
    (folder / EVENTS).mkdir(parents=True)
    return Driver(
        folder,
        spark.master,
        **{
            "spark.submit.pyFiles": f"{package(folder)},{HERE / 'faults.py'}",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (folder / EVENTS).as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.task.maxFailures": "8",
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "1",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.minTaskRuntime": "100ms",
            "spark.speculation.task.duration.threshold": "300ms",  # for a stage of a single task
        },
    )

"""Starts a SparkSession that is set up for Harebell: Java found or brought, this Python, Arrow, UTC, small and quiet.

It decides nothing about clusters: with a master other than local[...] it sets only what is true everywhere.
PySpark is imported inside the call, so importing this module costs nothing.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from harebell.errors import MissingDependency
from harebell.spark.options.address import HIDDEN_NAMES
from harebell.spark.runtime.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

__all__ = ["SMALL_HEAP", "activate", "check_packages", "session"]

EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

# What Spark hides, by name or value, on its web page and in its event log. A server of Spark Connect decides it itself.
REDACTED: Final = {"spark.redaction.regex": f"{HIDDEN_NAMES.pattern}|amqps?://"}

# The C1 compiler and the serial collector start 2 s sooner and take 100 MB less; a job of minutes does not miss C2.
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.daemon.module": "harebell.spark.runtime.worker_daemon",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    # What Spark remembers of finished work for its web UI, which a job of months would fill up.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "100",
}

SMALL_HEAP: Final = {
    "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Xms64m -Xmn24m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=20"
}
"""For a job whose rows do not go through the JVM: 120 MB less than Java takes by itself on a machine of 24 GB."""


def session(app_name: str = "harebell", master: str = "local[2]", **conf: str) -> SparkSession:
    """A SparkSession in which format("amqp") is found without registration.

    `app_name` and `master` are Spark's own. `conf` are further Spark settings, which win over the ones here:
    `session("job", **{"spark.driver.memory": "2g"})`. Sets JAVA_HOME, PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON in
    this process: Spark looks for data sources with PYSPARK_PYTHON, and without it would ask the first python3 of
    PATH. A session that is already running in this process is returned as it is, as getOrCreate does.

    A master of sc://host:15002 is a Spark Connect server: then no Java is needed here, nothing in this process is set,
    and the package must be installed in the Python of the server.

    Raises MissingDependency when PySpark, pyarrow, gRPC (for Connect) or a Java of at least 17 is missing; the text
    says how to get it.
    """
    spark = _started(app_name, master, conf)
    activate(spark)
    return spark


def activate(spark: SparkSession) -> None:
    """Makes it the session of the calling thread: only there does Spark find what was registered with it.

    A thread that did not make the session has none, and Spark says DATA_SOURCE_NOT_FOUND.
    """
    if type(spark).getActiveSession() is None:
        # It is the only public method that does that; and it loads Spark SQL, which a job without it need not have.
        spark.createDataFrame([], "n int")


def _started(app_name: str, master: str, conf: Mapping[str, str]) -> SparkSession:
    check_packages()
    from pyspark.sql import SparkSession as SparkSession

    if master.startswith("sc://"):
        return _connected(app_name, master, conf)
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.path)
    local = master.startswith("local")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if local:
            os.environ[name] = sys.executable
        else:
            os.environ.setdefault(name, sys.executable)
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in {**EVERYWHERE, **REDACTED, **(LOCAL if local else {}), **conf}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def check_packages() -> None:
    """Raises MissingDependency when PySpark or pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            f"{error.name} is not installed, which Spark needs: pip install 'harebell[spark]'"
        ) from error


def _connected(app_name: str, remote: str, conf: Mapping[str, str]) -> SparkSession:
    """A session of a Spark Connect server, which has its own Java and Python."""
    for module in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        try:
            there = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:  # its parent is not there
            there = False
        if not there:
            raise MissingDependency(
                f"{module} is not installed, which Spark Connect needs: pip install 'harebell[connect]'"
            )
    from pyspark.sql import SparkSession as SparkSession

    builder = SparkSession.builder.appName(app_name).remote(remote)
    for key, value in {**EVERYWHERE, **conf}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()

"""The process that forks Python workers: which modules it has imported, and that it is PySpark's for the rest."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from harebell.spark.runtime import worker_daemon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASK = """
import os, sys
import pyspark.daemon
from harebell.spark.runtime import worker_daemon

pyspark.daemon.manager = lambda: print([name in sys.modules for name in worker_daemon.MODULES])
worker_daemon.main()
print(len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 1)
"""


@pytest.mark.parametrize("kind, there", [("pyspark.worker", True), ("pyspark.sql.worker.create_data_source", False)])
def test_the_daemon_of_tasks_has_imported_what_they_use(kind: str, there: bool) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", ASK, kind]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    modules, threads = run.stdout.splitlines()
    assert (modules == str([True] * len(worker_daemon.MODULES))) == there
    assert int(threads) <= 2  # jemalloc's own may be one of them: it survives forks


def test_what_cannot_be_imported_is_left_to_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_daemon, "MODULES", ("no.such.module", "json"))
    monkeypatch.setattr(gc, "freeze", lambda: None)
    worker_daemon.preload()


@pytest.mark.spark
def test_workers_are_its_forks(spark: SparkSession) -> None:
    def program(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"program": [sys.argv[0]]})

    [row] = spark.range(1).mapInArrow(program, "program string").collect()
    assert row.program.endswith("worker_daemon.py")

"""What Spark starts in place of `pyspark.daemon`: the process that forks Python workers, with their modules imported.

A worker of PySpark's own daemon imports pyarrow and this package after its fork: in each that takes half a second of
processor time, and memory for what is the same in all. Here they are imported once, before. Spark starts such a process
for each kind of worker; those that run tasks are worth it, those that plan are few and end soon.

Rules: nothing here starts a thread that a worker needs, for a fork has none but its own; what cannot be imported is
left to the worker, which says why. `session()` names this module in spark.python.daemon.module, for local masters.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from typing import Final

__all__ = ["main"]

TASKS: Final = "pyspark.worker"  # the argument of the daemon whose workers run tasks
MODULES: Final = (
    TASKS,
    "pandas",  # pyarrow imports it when an array is made of a list
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.sql.streaming.datasource",
    "harebell.spark.source",
    "harebell.spark.jobs.archive.tasks",
)


def preload() -> None:
    """Imports what the workers of tasks use, and has the collector leave it alone, so that forks share its memory."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start threads that a fork has not
    for name in MODULES:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def main() -> None:
    """Runs PySpark's daemon."""
    if sys.argv[1:] == [TASKS]:
        preload()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()

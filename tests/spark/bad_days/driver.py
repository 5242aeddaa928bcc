"""The Spark program of the bad days: runs streaming queries as told on standard input, one line of JSON a request.

A request is a list of cells; they run at the same time, each to the end of what is there (availableNow), and the answer
is one line of JSON: for each cell its rows and its error, null for none. Run as a process of its own, to be killed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    plan = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is no answer
    from harebell.spark import session

    sys.executable = plan["python"]
    spark = session("bad day", plan["master"], **plan["conf"])
    spark.sparkContext.setLogLevel("WARN")
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(spark, json.loads(line))), file=answers, flush=True)


def run(spark: Any, cells: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    queries: dict[str, Any] = {}
    results = {}
    for cell in cells:
        try:
            before = written(cell)
            query = queries[cell["name"]] = start(spark, cell)
            # Each starts Python processes: not all of them at the same moment.
            deadline = time.monotonic() + 20
            while query.isActive and written(cell) == before and time.monotonic() < deadline:
                time.sleep(0.05)
        except Exception as error:
            results[cell["name"]] = {"error": str(error), "rows": 0, "progress": ""}
    for name, query in queries.items():
        failure = ended(query)
        progress = query.recentProgress
        results[name] = {
            "error": failure,
            "rows": sum(one.numInputRows for one in progress),
            "progress": " ".join(one.json for one in progress),
        }
    return results


def ended(query: Any) -> str | None:
    """Waits for a query's end: its error, None for none."""
    try:
        query.awaitTermination()
    except Exception as failure:
        return str(failure)
    return None


def written(cell: dict[str, Any]) -> int:
    """How many files there are of begun and complete micro-batches."""
    return len(list(Path(cell["folder"], "checkpoint").glob("[oc]*/[0-9]*")))


def start(spark: Any, cell: dict[str, Any]) -> Any:
    from harebell.spark import start_query

    frame = spark.readStream.format(cell["format"]).options(**cell["source"]).schema(cell["schema"]).load()
    if cell.get("slow"):
        from faults import Slow

        frame = frame.mapInArrow(Slow(cell["slow"]), frame.schema)
    writer = frame.selectExpr(*cell["select"]).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{cell['folder']}/checkpoint")
    if cell["sink"] == "parquet":
        return start_query(writer.format("parquet").option("path", f"{cell['folder']}/out").start)
    return start_query(writer.format(cell["format"]).options(**cell["target"]).start)


if __name__ == "__main__":
    main()

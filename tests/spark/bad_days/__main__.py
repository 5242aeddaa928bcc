"""Runs the bad days and prints a table: `python -m tests.spark.bad_days --help`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.spark.bad_days.brokers import server
from tests.spark.bad_days.days import CLUSTER_DAYS, DAYS, Scene
from tests.spark.bad_days.torment import HERE, KINDS, Driver
from tests.spark.cluster import SparkCluster
from warren.spark.packaging import package


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.bad_days", description=__doc__)
    parser.add_argument("--rabbitmq", action="store_true", help="on RabbitMQ too")
    parser.add_argument("--only", default="", metavar="DAY,...", help="days whose names hold one of these words")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="KIND,...", help="of source queues")
    parser.add_argument("--messages", type=int, default=3000, help="in each queue")
    options = parser.parse_args()
    words = [word.strip() for word in options.only.split(",") if word.strip()]
    rows: list[tuple[str, str, str, float]] = []
    with tempfile.TemporaryDirectory(prefix="warren-bad-days-") as name:
        for broker in ("warren", "rabbitmq") if options.rabbitmq else ("warren",):
            folder = Path(name) / broker
            for days, cluster in ((DAYS, False), (CLUSTER_DAYS, True)):
                chosen = {day: run for day, run in days.items() if not words or any(word in day for word in words)}
                if not chosen:
                    continue
                with ExitStack() as stack:
                    scene = setting(stack, broker, folder / ("cluster" if cluster else "local"), cluster)
                    scene = replace(scene, messages=options.messages, kinds=options.kinds.split(","))
                    for day, run in chosen.items():
                        began = time.monotonic()
                        try:
                            run(replace(scene, folder=scene.folder / day.replace(" ", "-")))
                            outcome = "as promised"
                        except Exception as error:
                            traceback.print_exc()
                            outcome = f"WRONG: {str(error).splitlines()[0]}"
                            scene.driver.kill()
                            scene.driver.start()
                        rows.append((day, broker, outcome, time.monotonic() - began))
                        print(f"{day:24}{broker:10}{rows[-1][3]:6.1f} s  {outcome}", flush=True)
    wrong = sum("WRONG" in outcome for _, _, outcome, _ in rows)
    print(f"\n{len(rows)} bad days, {wrong} of them wrong")
    return 1 if wrong or not rows else 0


def setting(stack: ExitStack, broker: str, folder: Path, cluster: bool) -> Scene:
    """A broker and a Spark program, on a cluster of its own or in one process."""
    running = stack.enter_context(server(broker, folder / "broker"))
    if not cluster:
        return Scene(running, stack.enter_context(Driver(folder)), folder)
    spark = stack.enter_context(SparkCluster(folder / "cluster"))
    return Scene(running, stack.enter_context(cluster_driver(spark, folder)), folder, cluster=spark)


def cluster_driver(spark: SparkCluster, folder: Path) -> Driver:
    """The program on that cluster, whose executors get the package as one zip."""
    return Driver(
        folder,
        spark.master,
        **{
            "spark.submit.pyFiles": f"{package(folder)},{HERE / 'faults.py'}",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.task.maxFailures": "8",
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "1",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.minTaskRuntime": "100ms",
        },
    )


if __name__ == "__main__":
    sys.exit(main())

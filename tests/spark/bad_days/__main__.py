"""Runs the bad days and prints a table: `python -m tests.spark.bad_days --help`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.spark.bad_days import evidence
from tests.spark.bad_days.days import CLUSTER_DAYS, DAYS, Scene
from tests.spark.bad_days.stage import EVENTS, setting
from tests.spark.bad_days.torment import KINDS, SINKS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.bad_days", description=__doc__)
    parser.add_argument("--rabbitmq", action="store_true", help="on RabbitMQ, in place of Harebell")
    parser.add_argument("--only", default="", metavar="DAY,...", help="days whose names hold one of these words")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="KIND,...", help="of source queues")
    parser.add_argument("--sinks", default="", metavar="SINK,...", help=f"of {', '.join(SINKS)}; sessions on Harebell")
    parser.add_argument("--messages", type=int, default=3000, help="in each queue")
    parser.add_argument("--kills", type=int, default=3, help="on a day of the driver, an executor, the broker")
    options = parser.parse_args()
    words = [word.strip() for word in options.only.split(",") if word.strip()]
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what was started ends too
    broker = "rabbitmq" if options.rabbitmq else "harebell"
    sinks = options.sinks.split(",") if options.sinks else [*SINKS[: 2 if options.rabbitmq else 3]]
    outcomes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="harebell-bad-days-") as folder:
        for days, cluster in ((DAYS, False), (CLUSTER_DAYS, True)):
            chosen = {day: run for day, run in days.items() if not words or any(word in day for word in words)}
            if not chosen:
                continue
            with ExitStack() as stack:
                scene = setting(stack, broker, Path(folder) / ("cluster" if cluster else "local"), cluster)
                scene = replace(scene, messages=options.messages, kinds=options.kinds.split(","), sinks=sinks)
                scene = replace(scene, kills=options.kills)
                for day, run in chosen.items():
                    began = time.monotonic()
                    earlier = evidence.attempts(scene.folder / EVENTS)
                    scene = replace(scene, made=[], counted=Counter())
                    try:
                        run(replace(scene, folder=scene.folder / day.replace(" ", "-")))
                        outcomes.append("as promised")
                    except Exception as error:
                        traceback.print_exc()
                        outcomes.append(f"WRONG: {(str(error) or type(error).__name__).splitlines()[0]}")
                        scene.driver.kill()  # for the next day
                        scene.driver.start()
                    print(f"{day:24}{broker:10}{time.monotonic() - began:6.1f} s  {outcomes[-1]}", flush=True)
                    scene.counted.update(evidence.attempts(scene.folder / EVENTS) - earlier)
                    print("".join(f"    {line}\n" for line in figures(scene)), end="", flush=True)
    wrong = sum("WRONG" in outcome for outcome in outcomes)
    print(f"\n{len(outcomes)} bad days, {wrong} of them wrong")
    return 1 if wrong or not outcomes else 0


def figures(scene: Scene) -> Iterator[str]:
    """What arrived in the cells of the matrix, and what else the day has counted."""
    for cell in scene.made:
        if cell.arrived is not None:
            lost, doubled = cell.published - len(cell.arrived.numbers), cell.arrived.rows - len(cell.arrived.numbers)
            yield f"{cell.name}: {cell.published:,} messages, lost {lost:,}, doubled {doubled:,}"
    if scene.counted:
        yield ", ".join(f"{name} {count:,}" for name, count in scene.counted.items())


if __name__ == "__main__":
    sys.exit(main())

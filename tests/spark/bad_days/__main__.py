"""Runs the bad days and prints a table: `python -m tests.spark.bad_days --help`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.spark.bad_days.days import CLUSTER_DAYS, DAYS
from tests.spark.bad_days.stage import setting
from tests.spark.bad_days.torment import KINDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.bad_days", description=__doc__)
    parser.add_argument("--rabbitmq", action="store_true", help="on RabbitMQ too")
    parser.add_argument("--only", default="", metavar="DAY,...", help="days whose names hold one of these words")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="KIND,...", help="of source queues")
    parser.add_argument("--messages", type=int, default=3000, help="in each queue")
    options = parser.parse_args()
    words = [word.strip() for word in options.only.split(",") if word.strip()]
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what was started ends too
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
                            outcome = f"WRONG: {(str(error) or type(error).__name__).splitlines()[0]}"
                            scene.driver.kill()
                            scene.driver.start()
                        rows.append((day, broker, outcome, time.monotonic() - began))
                        print(f"{day:24}{broker:10}{rows[-1][3]:6.1f} s  {outcome}", flush=True)
    wrong = sum("WRONG" in outcome for _, _, outcome, _ in rows)
    print(f"\n{len(rows)} bad days, {wrong} of them wrong")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.torture`: the long ordeals (`make torture`), with their figures."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.torture.run import churn, kills, soak
from tests.torture.scenery import QUEUES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how often the broker is killed; 0: not at all")
    parser.add_argument("--minutes", type=float, default=10.0, help="of churn behind the proxy; 0: none")
    parser.add_argument("--soak", type=float, default=60.0, help="minutes beside a heavy client; 0: none")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--streams", action="store_true", help="stream queues alone")
    options = parser.parse_args()
    queues = tuple(queue for queue in QUEUES if queue.stream and not queue.exchange) if options.streams else QUEUES
    breaches = 0
    print(f"torture: seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        for name, wanted in (("kills", options.kills), ("churn", options.minutes), ("soak", options.soak)):
            if not wanted:
                continue
            path = Path(folder) / name
            path.mkdir()
            if name == "kills":
                ordeal = kills(path, count=options.kills, seed=options.seed, queues=queues, progress=_print)
            else:
                kind = churn if name == "churn" else soak
                ordeal = kind(path, seconds=wanted * 60, seed=options.seed, queues=queues, progress=_print)
            verdict = asyncio.run(ordeal)
            print(f"torture: {name}\n{verdict}", flush=True)
            breaches += verdict.figures["breaches"]
    return 1 if breaches else 0


def _print(text: str) -> None:
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

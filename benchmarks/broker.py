"""Warren and RabbitMQ side by side: messages per second and broker CPU per message, load by load, in turn.

    python benchmarks/broker.py [--rounds 3] [--count 300000] [--only drain]

Ratios come first: both brokers run on the same machine in the same minutes, so the ratio holds where single figures
drift. CPU is the broker process's own (user and system), which is steadier than wall time on a shared machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from load import Load, Result, run

from warren.testing import RabbitMQ


@contextmanager
def warren_server() -> Iterator[tuple[int, int]]:
    """`warren serve` on a free port: (port, pid)."""
    with tempfile.TemporaryDirectory() as data:
        process = subprocess.Popen(
            [sys.executable, "-m", "warren", "serve", "--port", "0", "--data", data], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            yield int(line.split("amqp://", 1)[1].split("/")[0].rsplit(":", 1)[1]), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=300_000, help="messages per run")
    parser.add_argument("--only", default="", help="loads whose name holds this")
    options = parser.parse_args()
    loads = [
        Load("transient, no acknowledgements", options.count),
        Load("acknowledged, prefetch 2000", options.count, prefetch=2000),
        Load("fill, then drain", options.count, drain=True),
        Load("confirmed", options.count, confirm=True),
        Load("fan-out, 1 to 10", options.count // 10, exchange="fanout", queues=10),
        Load("topic, 1 of 10,000 bindings", options.count // 2, exchange="topic", bindings=10_000),
        Load("headers, 1 of 1,000 bindings", options.count // 30, exchange="headers", bindings=1_000),
    ]
    loads = [load for load in loads if options.only in load.name]
    results: dict[tuple[str, str], list[Result]] = {}
    with warren_server() as (warren_port, warren_pid), RabbitMQ() as rabbit:
        brokers = {"warren": (warren_port, warren_pid), "rabbitmq": (rabbit.port, rabbit.pid)}
        for port, pid in brokers.values():
            run(port, pid, Load("warm-up", 20_000))
        total, done = options.rounds * len(loads) * len(brokers), 0
        for _ in range(options.rounds):
            for load in loads:
                for name, (port, pid) in brokers.items():
                    done += 1
                    if sys.stderr.isatty():
                        print(f"\r[{done}/{total}] {load.name}: {name}{'':20}", end="", file=sys.stderr)
                    results.setdefault((load.name, name), []).append(run(port, pid, load))
    if sys.stderr.isatty():
        print("\r" + " " * 70 + "\r", end="", file=sys.stderr)
    show(loads, results)


def show(loads: list[Load], results: dict[tuple[str, str], list[Result]]) -> None:
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; medians of "
          f"{len(next(iter(results.values())))} rounds; 100-byte messages, one queue")  # fmt: skip
    print(f"{'':32}{'throughput':>12}{'CPU':>13} | {'Warren':^24} | {'RabbitMQ':^24}")
    print(f"{'':32}{'Warren/RMQ':>12}{'RMQ/Warren':>13} | {'msg/s':>12}{'CPU us/msg':>12} | "
          f"{'msg/s':>12}{'CPU us/msg':>12}")  # fmt: skip
    for load in loads:
        ours, theirs = results[load.name, "warren"], results[load.name, "rabbitmq"]
        rates = [statistics.median(r.per_second for r in side) for side in (ours, theirs)]
        costs = [statistics.median(r.cpu_us for r in side) for side in (ours, theirs)]
        print(f"{load.name:32}{rates[0] / rates[1]:>11.1f}x{costs[1] / costs[0]:>12.1f}x | "
              f"{rates[0]:>12,.0f}{costs[0]:>12.2f} | {rates[1]:>12,.0f}{costs[1]:>12.2f}")  # fmt: skip


if __name__ == "__main__":
    main()

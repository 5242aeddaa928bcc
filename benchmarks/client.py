"""AMQP clients side by side against one broker, in turn: what a message costs each of them.

    python benchmarks/client.py [--rounds 3] [--count 20000] [--rabbitmq | --url amqp://...] [--only consume,window]

Each run is a process of its own, and its CPU (user and system, all threads) is the client's cost: the figure to
compare. Messages per second are often the broker's limit, not the client's. The broker is `harebell serve` in its own
process, a RabbitMQ with --rabbitmq, or whatever --url names.

What a client does is in `clients.py`. Bodies have 100 bytes, where the row does not say otherwise, and no properties;
the queue is transient; every delivery is acknowledged on its own. Rows of large bodies, of `get` and of connections
make 2,000 of them a run. Asyncio clients run on asyncio's loop and on uvloop; the others use no loop. A ratio compares
with Harebell on the same loop, and a client without a loop with Harebell on asyncio's. If a client lacks a row's
feature, it does the nearest it can, and its name says what. Clients that are not installed are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from broker import STARTS, machine
from clients import BODY, CASES, QUEUE, TIMEOUT, WINDOW, Result, body_of, count_of

LOOPS = ("asyncio", "uvloop")
PEERS = {"aio-pika": "aio_pika", "pika": "pika", "py-amqp": "amqp", "amqpstorm": "amqpstorm", "uvloop": "uvloop"}
Run = tuple[str, str, str]  # row, client, loop ("-" for a client without one)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case runs; medians are shown")
    parser.add_argument("--count", type=int, default=20_000, help=f"messages a run, a multiple of {WINDOW}")
    parser.add_argument("--rabbitmq", action="store_true", help="against a RabbitMQ, started for this")
    parser.add_argument("--url", help="against this broker; its queue benchmark.client is deleted")
    parser.add_argument("--loop", choices=LOOPS, help="only this one")
    parser.add_argument("--only", default="", metavar="NAME,...", help="rows whose names hold one of these")
    parser.add_argument("--clients", default="", metavar="NAME,...", help="clients whose names begin with one of these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there too")
    options = parser.parse_args()
    if options.count < WINDOW or options.count % WINDOW:
        parser.error(f"--count {options.count}: a multiple of {WINDOW} is needed")
    runs = list(chosen(words(options.only), words(options.clients), (options.loop,) if options.loop else LOOPS))
    if not runs:
        parser.error("--only and --clients leave nothing to run; the rows are " + "; ".join(CASES))
    with broker(options.url, options.rabbitmq) as url:
        results = measure_all(url, runs, options.rounds, options.count)
    name = options.url or ("RabbitMQ" if options.rabbitmq else "harebell serve")
    print(f"against {name}; {machine()}\n{', '.join(versions())}; "
          f"medians of {options.rounds} rounds of {options.count:,} messages of {len(BODY)} bytes\n")  # fmt: skip
    show(results)
    if options.json is not None:
        figures = [{"row": row, "client": client, "loop": loop, "rounds": [asdict(result) for result in rounds]}
                   for (row, client, loop), rounds in results.items()]  # fmt: skip
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def chosen(rows: list[str], clients: list[str], loops: tuple[str, ...]) -> Iterator[Run]:
    for row, cases in CASES.items():
        if rows and not any(part in row for part in rows):
            continue
        for name, work in cases.items():
            if (clients and not name.startswith(tuple(clients))) or not installed(name):
                continue
            for loop in loops if inspect.iscoroutinefunction(work) else ("-",):
                if installed(loop):
                    yield row, name, loop


def installed(name: str) -> bool:
    """Whether the package of this client or loop is installed."""
    return all(find_spec(module) is not None for peer, module in PEERS.items() if name.startswith(peer))


def versions() -> Iterator[str]:
    for name, module in PEERS.items():
        yield f"{name} {version(module)}" if installed(name) else f"no {name}"


@contextmanager
def broker(url: str | None, rabbitmq: bool) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with STARTS["rabbitmq" if rabbitmq else "harebell"]() as (port, _):
        yield f"amqp://guest:guest@127.0.0.1:{port}"


def measure_all(url: str, runs: list[Run], rounds: int, count: int) -> dict[Run, list[Result]]:
    results: dict[Run, list[Result]] = {}
    for number in range(rounds):
        for at, run in enumerate(runs):
            if sys.stderr.isatty():
                step = number * len(runs) + at + 1
                print(f"\r\033[K[{step}/{rounds * len(runs)}] {' '.join(run)}", end="", file=sys.stderr, flush=True)
            row = run[0]
            consumes, messages = row.startswith("consume"), count_of(row, count)
            prepare(url, messages if consumes else 0, body_of(row))
            result = measure(*run, url, messages)
            expect(url, 0 if consumes or row.startswith("open") else result.count)
            results.setdefault(run, []).append(result)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return results


def measure(row: str, client: str, loop: str, url: str, count: int) -> Result:
    """One run in a fresh process."""
    command = [sys.executable, str(Path(__file__).parent / "clients.py"), row, client, loop, url, str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=TIMEOUT, check=True)
    return Result(**json.loads(done.stdout))


def prepare(url: str, fill: int, body: bytes) -> None:
    """Declare the queue, with exactly so many messages in it."""
    import harebell

    async def main() -> None:
        async with harebell.connect(url) as connection, connection.channel() as channel:
            await channel.queue_delete(QUEUE)
            await channel.queue_declare(QUEUE)
            await channel.confirm_select()
            publications = (harebell.Publication(body, "", QUEUE) for _ in range(fill))
            await channel.publish_many(publications, timeout=TIMEOUT)

    asyncio.run(main())


HEADS = (
    "row",
    "client",
    "loop",
    "CPU: times Harebell's",
    "rate: Harebell's is",
    "CPU us a message",
    "messages a second",
)


def expect(url: str, count: int) -> None:
    """Returns once the queue has that many messages. TimeoutError when that does not happen: some were lost."""
    import harebell

    async def main() -> None:
        async with asyncio.timeout(60), harebell.connect(url) as connection, connection.channel() as channel:
            while await channel.message_count(QUEUE) != count:
                pass

    asyncio.run(main())


def show(results: dict[Run, list[Result]]) -> None:
    """A table in Markdown: how many times Harebell's cost and rate, then the figures."""
    cost = {run: statistics.median(result.cpu_us for result in rounds) for run, rounds in results.items()}
    rate = {run: statistics.median(result.per_second for result in rounds) for run, rounds in results.items()}
    rows = [HEADS]
    for row, client, loop in results:
        run, first = (row, client, loop), (row, next(iter(CASES[row])), LOOPS[0] if loop == "-" else loop)
        times = [f"{cost[run] / cost[first]:.1f}x", f"{rate[first] / rate[run]:.1f}x"] if first in cost else ["", ""]
        rows.append((row, client, loop, times[0], times[1], f"{cost[run]:,.1f}", f"{rate[run]:,.0f}"))
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEADS))]
    for line in rows:
        cells = [f"{cell:{'<' if column < 3 else '>'}{width}}"
                 for column, (cell, width) in enumerate(zip(line, widths, strict=True))]  # fmt: skip
        print("| " + " | ".join(cells) + " |")
        if line is HEADS:
            print("|" + "|".join("-" * (width + 1) + ("-" if column < 3 else ":")
                                 for column, width in enumerate(widths)) + "|")  # fmt: skip


if __name__ == "__main__":
    main()

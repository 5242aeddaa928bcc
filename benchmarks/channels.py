"""Channel layers side by side, in turn: Harebell's (on a Harebell broker, on RabbitMQ), channels_redis (core, pubsub),
channels_rabbitmq, and Channels' own in memory.

    pip install channels_redis channels_rabbitmq      # the peers; what is missing is left out
    python benchmarks/channels.py [--rounds 3] [--layers harebell,redis] [--rows "round trip;fan-out 1,000"]

Redis and RabbitMQ are those of the machine, started for the run on ports of their own, as is `harebell serve`.
Rows: one message at a time to a reader in another process, and its answer; 50 senders to one reader; one group message
to 100 and to 1,000 readers in 4 processes, until the last one has it; group_add of a channel to a new group, and to a
group that its process is in. CPU is that of all client processes; the servers' is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# This file has the name of Django's package, which must still be importable.
sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).resolve().parent]

TEXT = "x" * 100
ROUND_TRIPS = 1500
PIPED = 6000
SENDERS = 50
FAN_OUTS = 30
PROCESSES = 4
ADDS = 300
TIMEOUT = 120.0
OURS = ("harebell", "harebell on RabbitMQ")

Layer = Any


@dataclass(frozen=True)
class Result:
    """The row's figure, in its unit, and CPU microseconds of the clients for each message or call."""

    figure: float
    cpu_us: float


def make(kind: str, url: str) -> Layer:
    if kind.startswith("harebell"):
        from harebell.channels import ChannelLayer

        return ChannelLayer(url, capacity=10_000)
    if kind == "redis":
        from channels_redis.core import RedisChannelLayer

        return RedisChannelLayer(hosts=[url], capacity=10_000)
    if kind == "redis pubsub":
        from channels_redis.pubsub import RedisPubSubChannelLayer

        return RedisPubSubChannelLayer(hosts=[url])
    if kind == "channels_rabbitmq":  # wants a running loop
        from channels_rabbitmq.core import RabbitmqChannelLayer

        return RabbitmqChannelLayer(host=url, local_capacity=10_000, remote_capacity=10_000)
    from channels.layers import InMemoryChannelLayer

    return InMemoryChannelLayer(capacity=10_000)


def serve(kind: str, url: str, pipe: Connection, readers: int) -> None:
    asyncio.run(_serve(kind, url, pipe, readers))


async def _serve(kind: str, url: str, pipe: Connection, readers: int) -> None:
    layer = make(kind, url)
    loop = asyncio.get_running_loop()
    channels = [await layer.new_channel() for _ in range(max(readers, 1))]
    for channel in channels if readers else ():
        await layer.group_add("readers", channel)
    before = time.process_time()
    pipe.send(channels)

    async def echo() -> None:
        while True:
            message = await layer.receive(channels[0])
            await layer.send(message["reply"], {"type": "x", "text": message["text"]})

    async def read(channel: str) -> None:
        while True:
            message = await layer.receive(channel)
            got[message["n"]] = got.get(message["n"], 0) + 1
            if got[message["n"]] == readers:
                await layer.send(message["reply"], {"type": "done"})

    got: dict[int, int] = {}
    tasks = [asyncio.create_task(read(channel)) for channel in channels] if readers else [asyncio.create_task(echo())]
    await loop.run_in_executor(None, pipe.recv)
    pipe.send(time.process_time() - before)
    for task in tasks:
        task.cancel()
    os._exit(0)  # the peers' connections have no common way to be closed


@contextlib.contextmanager
def others(kind: str, url: str, readers: list[int]) -> Iterator[tuple[list[list[str]], Callable[[], float]]]:
    """Processes with so many readers each: their channels, and a function that ends them and returns CPU seconds."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for count in readers:
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(kind, url, theirs, count), daemon=True)
        process.start()
        pipes.append(ours)
        processes.append(process)

    def end() -> float:
        for pipe in pipes:
            pipe.send(None)
        return float(sum(pipe.recv() for pipe in pipes))

    try:
        yield [pipe.recv() for pipe in pipes], end
    finally:
        for process in processes:
            process.kill()
            process.join()


async def round_trip(kind: str, url: str) -> Result:
    layer = make(kind, url)
    if kind == "memory":
        channel = await layer.new_channel()
        times = []
        for _ in range(ROUND_TRIPS):
            start = time.perf_counter()
            await layer.send(channel, {"type": "x", "text": TEXT})
            await layer.receive(channel)
            times.append(time.perf_counter() - start)
        return Result(statistics.median(times) * 1e3, statistics.mean(times) * 1e6)
    with others(kind, url, [0]) as (channels, end):
        mine = await layer.new_channel()
        times = []
        for number in range(ROUND_TRIPS + 100):
            if number == 100:
                cpu = time.process_time()
            start = time.perf_counter()
            await layer.send(channels[0][0], {"type": "x", "text": TEXT, "reply": mine})
            await layer.receive(mine)
            times.append(time.perf_counter() - start)
        used = time.process_time() - cpu + end()
    # there and back are two messages
    return Result(statistics.median(times[100:]) * 1e3 / 2, used / ROUND_TRIPS / 2 * 1e6)


async def piped(kind: str, url: str) -> Result:
    layer = make(kind, url)
    channel = await layer.new_channel()
    await layer.send(channel, {"type": "x"})
    await layer.receive(channel)

    async def send() -> None:
        for _ in range(PIPED // SENDERS):
            await layer.send(channel, {"type": "x", "text": TEXT})

    async def read() -> None:
        for _ in range(PIPED // SENDERS * SENDERS):
            await layer.receive(channel)

    cpu, start = time.process_time(), time.perf_counter()
    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(read(), *(send() for _ in range(SENDERS)))
    seconds = time.perf_counter() - start
    return Result(PIPED / seconds, (time.process_time() - cpu) / PIPED * 1e6)


def fan_out(readers: int) -> Callable[[str, str], Coroutine[Any, Any, Result]]:
    async def run(kind: str, url: str) -> Result:
        layer = make(kind, url)
        mine = await layer.new_channel()
        if kind == "memory":
            channels = [await layer.new_channel() for _ in range(readers)]
            for channel in channels:
                await layer.group_add("readers", channel)
            cpu, start = time.process_time(), time.perf_counter()
            for number in range(FAN_OUTS):
                await layer.group_send("readers", {"type": "x", "text": TEXT, "n": number})
                await asyncio.gather(*map(layer.receive, channels))
            seconds = time.perf_counter() - start
            return Result(readers * FAN_OUTS / seconds, (time.process_time() - cpu) / readers / FAN_OUTS * 1e6)
        with others(kind, url, [readers // PROCESSES] * PROCESSES) as (_, end):
            async with asyncio.timeout(TIMEOUT):
                for number in range(-3, FAN_OUTS):
                    if not number:
                        cpu, start = time.process_time(), time.perf_counter()
                    message = {"type": "x", "text": TEXT, "n": number, "reply": mine}
                    await layer.group_send("readers", message)
                    for _ in range(PROCESSES):
                        await layer.receive(mine)
            seconds = time.perf_counter() - start
            used = time.process_time() - cpu + end()
        return Result(readers * FAN_OUTS / seconds, used / readers / FAN_OUTS * 1e6)

    return run


def adding(new: bool) -> Callable[[str, str], Coroutine[Any, Any, Result]]:
    async def run(kind: str, url: str) -> Result:
        layer = make(kind, url)
        channels = [await layer.new_channel() for _ in range(ADDS)]
        await layer.group_add("all", channels[0])
        times, cpu = [], time.process_time()
        for number, channel in enumerate(channels):
            start = time.perf_counter()
            await layer.group_add(f"group{number}" if new else "all", channel)
            times.append(time.perf_counter() - start)
        return Result(statistics.median(times) * 1e3, (time.process_time() - cpu) / ADDS * 1e6)

    return run


ROWS: dict[str, tuple[str, bool, Callable[[str, str], Coroutine[Any, Any, Result]]]] = {
    "round trip": ("ms one way, p50", False, round_trip),
    "50 senders": ("messages/s", True, piped),
    "fan-out 100": ("deliveries/s", True, fan_out(100)),
    "fan-out 1,000": ("deliveries/s", True, fan_out(1000)),
    "group_add, new group": ("ms, p50", False, adding(True)),
    "group_add, known group": ("ms, p50", False, adding(False)),
}


def run(row: str, kind: str, url: str, pipe: Connection) -> None:
    try:
        result: object = asyncio.run(ROWS[row][2](kind, url))
    except BaseException as error:  # a peer's failure is a figure, too
        result = f"{type(error).__name__}: {error}"
    pipe.send(result)
    os._exit(0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def listening(command: list[str], port: int) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(200):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.1)
            else:
                raise RuntimeError(f"{command[0]} did not start")
            yield
        finally:
            process.terminate()
            process.wait(20)


def has(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", default="")
    parser.add_argument("--rows", default="")
    arguments = parser.parse_args()
    rows = arguments.rows.split(";") if arguments.rows else list(ROWS)
    wanted = arguments.layers.split(",") if arguments.layers else None
    with contextlib.ExitStack() as stack:
        urls: dict[str, str] = {"memory": ""}
        port = free_port()
        command = [sys.executable, "-m", "harebell", "serve", "--port", str(port), "--data", "data"]
        stack.enter_context(listening(command, port))
        urls["harebell"] = f"amqp://guest:guest@127.0.0.1:{port}/"
        from harebell.testing import RabbitMQ

        server = stack.enter_context(RabbitMQ())
        urls["harebell on RabbitMQ"] = server.url
        if has("channels_rabbitmq"):
            urls["channels_rabbitmq"] = server.url
        if has("channels_redis") and shutil.which("redis-server"):
            port = free_port()
            stack.enter_context(listening(["redis-server", "--port", str(port), "--save", ""], port))
            urls["redis"] = urls["redis pubsub"] = f"redis://127.0.0.1:{port}/0"
        kinds = [kind for kind in urls if wanted is None or kind in wanted]
        figures: dict[tuple[str, str], list[Result]] = {}
        context = multiprocessing.get_context("spawn")
        for round_number in range(arguments.rounds):
            for row in rows:
                for kind in kinds:
                    print(f"round {round_number + 1}: {row}, {kind}", file=sys.stderr)
                    ours, theirs = context.Pipe()
                    process = context.Process(target=run, args=(row, kind, urls[kind], theirs))
                    process.start()
                    result = ours.recv() if ours.poll(TIMEOUT + 60) else "no result in time"
                    process.kill()
                    process.join()
                    if isinstance(result, Result):
                        figures.setdefault((row, kind), []).append(result)
                    else:
                        print(f"  {result}", file=sys.stderr)
    report(rows, kinds, figures)


def report(rows: list[str], kinds: list[str], figures: dict[tuple[str, str], list[Result]]) -> None:
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; medians; CPU us in ()\n")
    print("| row | unit | harebell against the best of the networked peers | " + " | ".join(kinds) + " |")
    print("|---" * (3 + len(kinds)) + "|")
    for row in rows:
        unit, more_is_better, _ = ROWS[row]
        medians = {
            kind: Result(
                statistics.median(result.figure for result in figures[row, kind]),
                statistics.median(result.cpu_us for result in figures[row, kind]),
            )
            for kind in kinds
            if (row, kind) in figures
        }
        peers = [result.figure for kind, result in medians.items() if kind not in ("memory", *OURS)]
        ratio = "-"
        if "harebell" in medians and peers:
            best = max(peers) if more_is_better else min(peers)
            ours = medians["harebell"].figure
            ratio = f"{ours / best if more_is_better else best / ours:.2f}x"
        cells = [
            f"{_shown(medians[kind].figure)} ({medians[kind].cpu_us:.0f})" if kind in medians else "-" for kind in kinds
        ]
        print(f"| {row} | {unit} | {ratio} | " + " | ".join(cells) + " |")


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


if __name__ == "__main__":
    main()

"""`harebell spark archive --every` over many stream queues: memory of all its processes, and time to the first rows.

    python benchmarks/archive.py [--queues 24] [--messages 2000] [--seconds 30] [--rabbitmq] [--peer]

Each queue has `messages` messages when the archive starts, and gets some more each second. Memory is the sum of the
proportional set sizes (PSS: shared pages count once) of the command, its JVM and its Python workers, sampled twice a
second; the highest is shown, and beside it the sum of their resident sizes (RSS), which counts shared pages for each.
The broker is not counted. `--peer` runs a streaming query a queue into Parquet instead, as Spark's users write it.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import psutil
from broker import STARTS, machine

from harebell.client.blocking import Channel, connect
from harebell.client.messages import Message, Publication

BODY = b"x" * 100
TRICKLE = 20  # messages a second for each queue
MANY_SECONDS = 300.0

PEER = """
import sys, time
from pathlib import Path
from harebell.spark import session, start_query

url, folder, *queues = sys.argv[1:]
spark = session("a query a queue", "local[*]")
queries = []
for queue in queues:
    rows = spark.readStream.format("amqp").option("url", url).option("queue", queue).load()
    out = rows.writeStream.format("parquet").option("path", f"{folder}/{queue}")
    writer = out.option("checkpointLocation", f"{folder}/checkpoints/{queue}").trigger(processingTime="2 seconds")
    queries.append(start_query(writer.start))
while True:
    time.sleep(1)
"""


class Memory:
    """Megabytes of a process and its descendants."""

    def __init__(self) -> None:
        self.pss = self.rss = 0.0
        self.processes = 0

    def sample(self, process: psutil.Process) -> None:
        pss = rss = 0.0
        alive = 0
        for each in (process, *process.children(recursive=True)):
            try:
                found = each.memory_full_info()
            except psutil.Error:
                continue
            pss, rss, alive = pss + found.pss / 2**20, rss + found.rss / 2**20, alive + 1
        self.pss, self.rss, self.processes = max(self.pss, pss), max(self.rss, rss), max(self.processes, alive)


@contextmanager
def filled(url: str, names: list[str], messages: int) -> Iterator[Channel]:
    with connect(url, timeout=MANY_SECONDS) as connection, connection.channel() as channel:
        channel.confirm_select()
        for name in names:
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
            publish(channel, name, messages)
        try:
            yield channel
        finally:
            for name in names:
                channel.queue_delete(name)


def publish(channel: Channel, queue: str, count: int) -> None:
    channel.publish_many((Publication(Message(BODY, delivery_mode=2), "", queue) for _ in range(count)), window=5000)


def cpu_of(process: psutil.Process) -> float:
    """Seconds of the process and its descendants, those that ended included."""
    total = 0.0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):
            total += sum(each.cpu_times()[:4])
    return total


def archived_queues(folder: Path) -> Callable[[], set[str]]:
    return lambda: {path.name.partition("=")[2] for path in folder.glob("archive_day=*/*/archive_queue=*")}


def peer_queues(folder: Path) -> Callable[[], set[str]]:
    return lambda: {path.parent.name for path in folder.glob("*/*.parquet")}


def main() -> None:
    parser = argparse.ArgumentParser(description="archive --every over many stream queues: memory, first rows")
    parser.add_argument("--queues", type=int, default=24)
    parser.add_argument("--messages", type=int, default=2000, help="in each queue at the start")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long it goes on after the first rows of all")
    parser.add_argument("--rabbitmq", action="store_true", help="against a RabbitMQ, started for this")
    parser.add_argument("--peer", action="store_true", help="a streaming query a queue instead")
    options = parser.parse_args()
    names = [f"benchmark.archive.{number:02d}" for number in range(options.queues)]
    with (
        STARTS["rabbitmq" if options.rabbitmq else "harebell"]() as (port, _),
        tempfile.TemporaryDirectory(prefix="harebell-benchmark-") as temporary,
    ):
        url, folder = f"amqp://guest:guest@127.0.0.1:{port}/", Path(temporary) / "out"
        command = (
            [sys.executable, "-c", PEER, url, str(folder), *names]
            if options.peer
            else [
                sys.executable,
                "-m",
                "harebell",
                "spark",
                "archive",
                str(folder),
                *names,
                "--every",
                "2s",
                "--url",
                url,
            ]
        )
        there = (peer_queues if options.peer else archived_queues)(folder)
        with filled(url, names, options.messages) as channel, (Path(temporary) / "log").open("w") as log:
            measure(command, there, names, channel, log.fileno(), options.seconds)
        print((Path(temporary) / "log").read_text()[-1500:])


def measure(
    command: list[str], there: Callable[[], set[str]], names: list[str], channel: Channel, log: int, seconds: float
) -> None:
    began, memory, first, whole, cpu, now = time.monotonic(), Memory(), 0.0, 0.0, 0.0, 0.0
    with subprocess.Popen(command, stdout=log, stderr=log) as child:
        process = psutil.Process(child.pid)
        try:
            while not whole or time.monotonic() - began < whole + seconds:
                found, now = there(), time.monotonic() - began
                first = first or (now if found else 0.0)
                whole = whole or (now if len(found) == len(names) else 0.0)
                if child.poll() is not None or now > MANY_SECONDS:
                    break
                memory.sample(process)
                cpu = max(cpu, cpu_of(process))
                for name in names:
                    publish(channel, name, TRICKLE // 2)
                time.sleep(0.5)
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait()
    print(f"{' '.join(command[1:5])[:40]}...; {len(names)} stream queues; {machine()}")
    print(f"first rows after {first:.1f} s, of all queues after {whole:.1f} s; {cpu:.1f} s of CPU in {now:.0f} s")
    print(f"memory {memory.pss:,.0f} MiB (PSS), {memory.rss:,.0f} MiB (RSS), {memory.processes} processes")


if __name__ == "__main__":
    main()

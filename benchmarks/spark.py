"""Spark over AMQP: rows a second and CPU a row, beside Spark without a broker, and consumer loops without Spark.

    python benchmarks/spark.py [--rows 300000] [--rounds 3] [--sizes 100,1024] [--rabbitmq] [--only source,sink]

One session, local[2], as harebell.spark.runtime.session starts it; the broker is `harebell serve` in a process of its
own, or a RabbitMQ. Messages are persistent, with a message_id and a timestamp. CPU is user and system time of the
driver, the JVM and the Python workers, never the broker's; of a loop in pika or aio-pika, that of its process. The
ratio compares the CPU of a row with a plain Parquet read of the same rows and columns: the limit. Medians of the
rounds; one round before them is not counted.

source: into Spark's sink `noop`. end to end: a streaming query, available now, into Parquet. sink: rows from Parquet,
two tasks, every message confirmed, by Python workers that already run. micro-batch: the time of a batch of 100 rows,
nearly all of it Spark's.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))
import psutil
from broker import STARTS, machine

from harebell.client.blocking import connect
from harebell.client.messages import Message, Publication

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TWO = "message_id string, body binary"
TIMEOUT = 600.0
BATCH = 100_000  # rows of a micro-batch, end to end
LONG = 5  # times the rows, end to end, in batches as much larger: the start of a query is less of it
LITTLE = 100  # rows of a micro-batch whose overhead is measured
STAMP = 1_767_225_600  # seconds; 2026-01-01
LIMIT = {"2": "plain Parquet, 2 columns", "all": "plain Parquet, all columns"}


@dataclass(frozen=True)
class Result:
    """Rows, wall seconds and CPU seconds of one run."""

    rows: int
    wall: float
    cpu: float

    @property
    def per_second(self) -> float:
        return self.rows / self.wall

    @property
    def micros(self) -> float:
        """CPU microseconds a row."""
        return self.cpu / self.rows * 1e6


class Bench:
    """One broker, one session, one size of messages."""

    def __init__(self, spark: SparkSession, url: str, broker: int, folder: Path, rows: int, size: int) -> None:
        self.spark, self.url, self.folder, self.rows, self.size = spark, url, folder, rows, size
        self._broker = broker
        self._runs = 0

    def cases(self) -> dict[str, Callable[[], Result]]:
        cases: dict[str, Callable[[], Result]] = {
            "Spark's rate source": self.rate,
            LIMIT["2"]: lambda: self.plain(TWO),
            LIMIT["all"]: lambda: self.plain(None),
        }
        for kind in ("stream", "classic"):
            cases[f"source: {kind} queue, 2 columns"] = lambda kind=kind: self.source(kind, TWO)  # type: ignore[misc]
            cases[f"source: {kind} queue, all columns"] = lambda kind=kind: self.source(kind, None)  # type: ignore[misc]
        for kind in ("stream", "classic"):
            cases[f"end to end: {kind} queue, 2 columns"] = lambda kind=kind: self.whole(kind, TWO)  # type: ignore[misc]
            for client, module in (("pika", "pika"), ("aio-pika", "aio_pika")):
                if find_spec(module) is not None:
                    cases[f"end to end: {kind} queue, {client} and pyarrow"] = (
                        lambda client=client, kind=kind: self.loop(client, kind)  # type: ignore[misc]
                    )
        cases["end to end: stream queue, all columns"] = lambda: self.whole("stream", None)
        cases[f"end to end: stream queue, 2 columns, {LONG} x the rows"] = lambda: self.whole("stream", TWO, LONG)
        for kind in ("stream", "classic"):
            cases[f"sink: {kind} queue, confirmed"] = lambda kind=kind: self.sink(kind)  # type: ignore[misc]
        cases["sink: classic queue, exactlyOnce=sessions"] = lambda: self.sink("classic", exactlyOnce="sessions")
        cases[f"micro-batch of {LITTLE} rows"] = self.little
        return cases

    def rate(self) -> Result:
        reader = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", self.rows)
        return self.measured(lambda: self.stream(reader.option("numPartitions", 2).load(), once=True), self.rows)

    def plain(self, schema: str | None) -> Result:
        frame = self.spark.read.parquet(str(self.messages()))
        if schema is not None:
            frame = frame.select("message_id", "body")
        return self.measured(lambda: frame.write.format("noop").mode("overwrite").save(), self.rows)

    def source(self, kind: str, schema: str | None) -> Result:
        with self.queue(kind, self.rows) as queue:
            frame = self.reader(self.spark.read, queue, kind, schema).load()
            return self.measured(lambda: frame.write.format("noop").mode("overwrite").save(), self.rows)

    def whole(self, kind: str, schema: str | None, times: int = 1) -> Result:
        rows = times * self.rows
        with self.queue(kind, rows) as queue:
            reader = self.reader(self.spark.readStream, queue, kind, schema)
            frame = reader.option("maxMessagesPerTrigger", times * BATCH).load()
            result = self.measured(lambda: self.stream(frame), rows)
        assert self.spark.read.parquet(str(self.folder / f"out{self._runs}")).count() == rows
        return result

    def loop(self, client: str, kind: str) -> Result:
        with self.queue(kind, self.rows) as queue:
            program = str(Path(__file__).with_name("spark_loops.py"))
            file = str(self.folder / "loop.parquet")
            done = subprocess.run(
                [sys.executable, program, client, self.url, queue, kind, str(self.rows), file],
                stdout=subprocess.PIPE, check=True, timeout=TIMEOUT,
            )  # fmt: skip
        return Result(**json.loads(done.stdout))

    def sink(self, kind: str, **exactly: str) -> Result:
        frame = self.spark.read.parquet(str(self.messages())).select("message_id", "body").repartition(2).cache()
        frame.count()
        with self.queue(kind, 0) as queue:
            options = {"url": self.url, "exchange": "", "routingKey": queue, **exactly}
            # Spark ends Python workers that had nothing to do for a minute: starting others is not what is measured.
            frame.where("message_id < '00000010'").write.format("amqp").mode("append").options(**options).save()
            writer = frame.write.format("amqp").mode("append").options(**options)
            result = self.measured(writer.save, self.rows)
        frame.unpersist()
        return result

    def little(self) -> Result:
        """`rows` is the number of batches: a second of wall or CPU for each of them."""
        batches = 20
        with self.queue("stream", batches * LITTLE) as queue:
            reader = self.reader(self.spark.readStream, queue, "stream", TWO)
            frame = reader.option("maxMessagesPerTrigger", LITTLE).load()
            return self.measured(lambda: self.stream(frame), batches)

    def measured(self, work: Callable[[], object], rows: int) -> Result:
        cpu, wall = self.cpu(), time.perf_counter()
        work()
        wall = time.perf_counter() - wall
        return Result(rows, wall, self.cpu() - cpu)

    def cpu(self) -> float:
        """Seconds of this process and all its descendants, including those that ended, without the broker."""
        total = 0.0
        me = psutil.Process()
        for process in (me, *me.children(recursive=True)):
            if process.pid == self._broker:
                continue
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total

    def reader(self, reader: Any, queue: str, kind: str, schema: str | None) -> Any:
        reader = reader.format("amqp").options(url=self.url, queue=queue, queueType=kind)
        if kind != "stream":
            reader = reader.option("spool", str(self.folder / "spool"))
        return reader if schema is None else reader.schema(schema)

    def stream(self, frame: DataFrame, once: bool = False) -> None:
        self._runs += 1
        out, checkpoint = self.folder / f"out{self._runs}", self.folder / f"checkpoint{self._runs}"
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
        if once:  # an endless source: one batch, into nothing
            query = writer.format("noop").trigger(processingTime="1 hour").start()
            while not any(progress.numInputRows for progress in query.recentProgress):
                time.sleep(0.01)
            query.stop()
            return
        writer.format("parquet").option("path", str(out)).trigger(availableNow=True).start().awaitTermination()

    @contextmanager
    def queue(self, kind: str, count: int) -> Iterator[str]:
        """A queue with so many confirmed messages, deleted afterwards."""
        name = f"benchmark.spark.{kind}"
        with connect(self.url, timeout=TIMEOUT) as connection:
            channel = connection.channel()
            channel.queue_delete(name)
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
            channel.confirm_select()
            body = b"x" * self.size
            channel.publish_many(
                (Publication(Message(body, message_id=f"{n:08d}", timestamp=STAMP, delivery_mode=2), "", name)
                 for n in range(count)),
                window=5000,
            )  # fmt: skip
            try:
                yield name
            finally:
                channel.queue_delete(name)
                shutil.rmtree(self.folder / "spool", ignore_errors=True)

    def messages(self) -> Path:
        """The same rows in Parquet files, written once."""
        path = self.folder / f"messages{self.size}"
        if not path.exists():
            with self.queue("stream", self.rows) as queue:
                self.reader(self.spark.read, queue, "stream", None).load().write.parquet(str(path))
        return path


def main() -> None:
    parser = argparse.ArgumentParser(description="format(amqp) beside Spark's own sources and consumer loops")
    parser.add_argument("--rows", type=int, default=300_000, help="messages of a run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default="100,1024", metavar="BYTES,...", help="of the bodies")
    parser.add_argument("--rabbitmq", action="store_true", help="against a RabbitMQ, started for this")
    parser.add_argument("--only", default="", metavar="NAME,...", help="cases whose names hold one of these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there too")
    options = parser.parse_args()
    words = [word.strip() for word in options.only.split(",") if word.strip()]
    name = "rabbitmq" if options.rabbitmq else "harebell"
    from harebell.spark import session

    figures: dict[int, dict[str, list[Result]]] = {}
    with STARTS[name]() as (port, pid), tempfile.TemporaryDirectory(prefix="harebell-benchmark-") as folder:
        spark = session("benchmark", **{"spark.driver.memory": "2g"})
        spark.sparkContext.setLogLevel("ERROR")
        for size in map(int, options.sizes.split(",")):
            url = f"amqp://guest:guest@127.0.0.1:{port}/"
            bench = Bench(spark, url, pid, Path(folder), options.rows, size)
            known = {case: run for case, run in bench.cases().items() if not options.rabbitmq or "sessions" not in case}
            cases = {case: run for case, run in known.items() if not words or any(word in case for word in words)}
            if not cases:
                parser.error("--only leaves nothing; the cases are " + "; ".join(known))
            figures[size] = {case: [] for case in cases}
            for number in range(options.rounds + 1):
                for case, run in cases.items():
                    if sys.stderr.isatty():
                        print(
                            f"\r\033[K[{number}/{options.rounds}] {size} B, {case}", end="", file=sys.stderr, flush=True
                        )
                    result = run()
                    if number:
                        figures[size][case].append(result)
        spark.stop()
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(f"against {'RabbitMQ' if options.rabbitmq else 'harebell serve'}; {machine()}; local[2]; "
          f"medians of {options.rounds} rounds of {options.rows:,} messages")  # fmt: skip
    for size, results in figures.items():
        show(size, results)
    if options.json is not None:
        written = {size: {case: [asdict(r) for r in rounds] for case, rounds in results.items()}
                   for size, results in figures.items()}  # fmt: skip
        options.json.write_text(json.dumps(written, indent=1) + "\n")


def show(size: int, results: dict[str, list[Result]]) -> None:
    def median(case: str, what: str) -> float | None:
        rounds = results.get(case)
        return statistics.median(getattr(result, what) for result in rounds) if rounds else None

    print(f"\n{size} bytes\n{'':48}{'x Parquet':>10}{'CPU us/row':>12}{'rows/CPU-s':>12}{'rows/s':>12}")
    for case in results:
        micros, rate = median(case, "micros"), median(case, "per_second")
        assert micros is not None
        assert rate is not None
        if case.startswith("micro-batch"):
            print(f"{case:48}{'':10}{micros / 1e6:10.3f} s CPU, {1 / rate:.3f} s a batch")
            continue
        limit = median(LIMIT["all" if "all columns" in case else "2"], "micros")
        ratio = f"{micros / limit:.1f}" if limit else ""
        print(f"{case:48}{ratio:>10}{micros:12.2f}{1e6 / micros:12,.0f}{rate:12,.0f}")


if __name__ == "__main__":
    main()

"""Consumer loops without Spark: each consumes a queue and writes Parquet with pyarrow, in pika and in aio-pika.

Each takes `count` messages (message_id and body), writes a row group for every 20,000, and prints wall and CPU seconds
and the rows as JSON. It acknowledges ahead of the file, as such loops do: it guarantees less than Spark's source.

    python benchmarks/spark_loops.py pika URL QUEUE KIND COUNT FILE
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

PREFETCH = 5000
GROUP = 20_000
SCHEMA = pa.schema([("message_id", pa.string()), ("body", pa.binary())])
FROM_FIRST = {"x-stream-offset": "first"}


class Writer:
    """Writes rows into one file."""

    def __init__(self, path: str) -> None:
        self._file = parquet.ParquetWriter(path, SCHEMA)
        self._ids: list[str | None] = []
        self._bodies: list[bytes] = []
        self.rows = 0

    def add(self, message_id: str | None, body: bytes) -> bool:
        """Whether a row group was written to the file, so that the messages before it may be acknowledged."""
        self._ids.append(message_id)
        self._bodies.append(body)
        self.rows += 1
        if len(self._ids) < GROUP:
            return False
        self.flush()
        return True

    def flush(self) -> None:
        if self._ids:
            self._file.write_table(pa.table([self._ids, self._bodies], schema=SCHEMA))
            self._ids, self._bodies = [], []

    def close(self) -> None:
        self.flush()
        self._file.close()


def with_pika(url: str, queue: str, kind: str, count: int, path: str) -> int:
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    writer = Writer(path)
    unacknowledged = 0

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal unacknowledged
        full = writer.add(properties.message_id, body)
        unacknowledged += 1
        # A row group is larger than the window: it would stand still if only what is written were acknowledged.
        if full or unacknowledged >= PREFETCH // 2 or writer.rows >= count:
            channel.basic_ack(method.delivery_tag, multiple=True)
            unacknowledged = 0
        if writer.rows >= count:
            channel.stop_consuming()

    channel.basic_consume(queue, on_message, arguments=FROM_FIRST if kind == "stream" else None)
    channel.start_consuming()
    writer.close()
    connection.close()
    return writer.rows


async def with_aio_pika(url: str, queue: str, kind: str, count: int, path: str) -> int:
    import aio_pika

    connection = await aio_pika.connect(url)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=PREFETCH)
    declared = await channel.get_queue(queue, ensure=False)
    writer = Writer(path)
    unacknowledged = 0
    async with declared.iterator(arguments=FROM_FIRST if kind == "stream" else None) as messages:
        async for message in messages:
            full = writer.add(message.message_id, message.body)
            unacknowledged += 1
            if full or unacknowledged >= PREFETCH // 2 or writer.rows >= count:
                await message.ack(multiple=True)
                unacknowledged = 0
            if writer.rows >= count:
                break
    writer.close()
    await connection.close()
    return writer.rows


def main() -> None:
    client, url, queue, kind, count, path = sys.argv[1:]
    wall, cpu = time.perf_counter(), time.process_time()
    if client == "pika":
        rows = with_pika(url, queue, kind, int(count), path)
    else:
        rows = asyncio.run(with_aio_pika(url, queue, kind, int(count), path))
    print(json.dumps({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "rows": rows}))


if __name__ == "__main__":
    main()

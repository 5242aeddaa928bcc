"""What is counted after a bad day: messages in the source, rows in the files, messages in the queue written to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as parquet

from harebell.client.blocking import connect
from harebell.client.messages import Message, Publication
from harebell.protocol.v091.fields import Table

__all__ = [
    "Tally", "attempts", "committed", "declare", "delete", "in_files", "in_queue", "publish", "ready", "sink_files",
    "sizes_in_queue",
]  # fmt: skip

TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers (bodies) that arrived, with the message ids that they came under."""

    rows: int
    numbers: frozenset[int]
    ids: int  # distinct
    pairs: int  # distinct (number, id)

    def once(self, expected: int) -> str:
        """Empty when each of 0 .. expected - 1 arrived exactly once; else what is wrong."""
        too_many = "" if self.rows == expected else f"{self.rows - expected} rows too many"
        return self.at_least_once(expected) or too_many

    def at_least_once(self, expected: int) -> str:
        """Empty when each arrived and every copy has the id of its original; else what is wrong."""
        wanted = frozenset(range(expected))
        if self.numbers != wanted:
            return f"{len(wanted - self.numbers)} of {expected} missing, {len(self.numbers - wanted)} never published"
        if not self.ids == self.pairs == expected:
            return f"{expected} messages under {self.ids} ids in {self.pairs} combinations"
        return ""


def tally(pairs: Iterable[tuple[int, str | None]]) -> Tally:
    counted = Counter(pairs)
    return Tally(
        rows=counted.total(),
        numbers=frozenset(number for number, _ in counted),
        ids=len({name for _, name in counted}),
        pairs=len(counted),
    )


def in_files(folder: Path) -> Tally:
    """What the file sink's own list says is there: Spark reads no other file either."""
    return tally(
        pair
        for path in sink_files(folder / "out")
        for pair in zip(*(column_of(path, name) for name in ("number", "message_id")), strict=True)
    )


def column_of(path: Path, name: str) -> list[object]:
    values: list[object] = parquet.read_table(path, columns=[name]).column(name).to_pylist()
    return values


def sink_files(folder: Path) -> Iterator[Path]:
    names = set()
    for log in (folder / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            assert entry["action"] == "add"
            names.add(unquote(urlsplit(entry["path"]).path))
    return (Path(name) for name in sorted(names))


def in_queue(url: str, queue: str) -> Tally:
    """What a classic or quorum queue holds. It stays there."""
    return tally((int(body), message_id) for body, message_id in held(url, queue))


def sizes_in_queue(url: str, queue: str) -> list[int]:
    """The lengths of the bodies in a classic or quorum queue."""
    return [len(body) for body, _ in held(url, queue)]


def held(url: str, queue: str) -> list[tuple[bytes, str | None]]:
    found: list[tuple[bytes, str | None]] = []
    with connect(url, timeout=TIMEOUT) as connection, connection.channel() as channel:
        total = channel.queue_declare(queue, passive=True).message_count
        with channel.consume(queue, prefetch=0) as consumer:
            while len(found) < total:
                got = consumer.receive(timeout=TIMEOUT)
                assert got, f"{queue} has {total} messages and gave {len(found)}"
                found += [(bytes(delivery.body), delivery.properties.message_id) for delivery in got]
    return found  # nothing was acknowledged: the end of the connection gives all of it back


def declare(url: str, queue: str, kind: str, arguments: Table | None = None) -> None:
    with connect(url, timeout=TIMEOUT) as connection, connection.channel() as channel:
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind, **(arguments or {})})


def delete(url: str, queue: str) -> None:
    with connect(url, timeout=TIMEOUT) as connection, connection.channel() as channel:
        channel.queue_delete(queue)


def publish(url: str, queue: str, messages: Iterable[Message]) -> None:
    """Through the default exchange; returns when all are confirmed."""
    with connect(url, timeout=TIMEOUT) as connection, connection.channel() as channel:
        channel.confirm_select()
        channel.publish_many((Publication(message, "", queue) for message in messages), window=5000, timeout=TIMEOUT)


def ready(url: str, queue: str) -> int:
    with connect(url, timeout=TIMEOUT) as connection, connection.channel() as channel:
        return channel.queue_declare(queue, passive=True).message_count


def committed(folder: Path) -> int:
    """How many micro-batches of this cell are complete."""
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


def attempts(folder: Path) -> Counter[str]:
    """How many attempts at tasks ended how, in Spark's words, by its event log in `folder`.

    Spark writes the log to disk at the end of each stage. "speculative" are those of them that Spark began for speed.
    """
    ended: Counter[str] = Counter()
    for log in folder.glob("*"):
        for line in log.read_text().splitlines():
            if line.startswith('{"Event":"SparkListenerTaskEnd"'):
                event = json.loads(line)
                ended[event["Task End Reason"]["Reason"]] += 1
                ended["speculative"] += event["Task Info"]["Speculative"]
    return ended

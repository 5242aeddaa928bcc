"""`replay` through Spark, against a real broker: what was archived comes back as it was, as often as it was."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harebell.client.blocking import connect
from harebell.client.messages import Delivery, Message
from harebell.errors import DataLoss, HarebellError, InvalidArgument, NotFound
from harebell.spark.jobs.archive import archive
from harebell.spark.jobs.archive.manifest import Manifest
from harebell.spark.jobs.replay.run import Preview, Replayed, Route, Selection, Target, preview, replay, resume
from tests.spark.conftest import Broker
from tests.spark.jobs.filling import DAY, archive_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def drained(broker: Broker, queue: str) -> list[Delivery]:
    """All messages of a queue, which is empty then."""
    with connect(broker.url, timeout=30.0) as connection:
        channel = connection.channel()
        return list(iter(lambda: channel.get(queue, no_ack=True), None))


EVERYTHING = Message(
    bytes(range(256)),
    content_type="application/octet-stream",
    content_encoding="identity",
    headers={
        "text": "grüße",
        "int": 7,
        "big": 2**40,
        "float": 0.5,
        "yes": True,
        "nothing": None,
        "bytes": b"\x00\xff",
        "decimal": Decimal("12.34"),
        "at": datetime(2026, 1, 5, 12, 0, tzinfo=UTC),
        "table": {"inner": [1, "two", {"three": 3}]},
    },
    delivery_mode=2,
    priority=3,
    correlation_id="c",
    reply_to="r",
    expiration="3600000",
    message_id="m",
    timestamp=datetime(2026, 1, 5, 12, 0, tzinfo=UTC),
    type="t",
    user_id="guest",
    app_id="a",
)


def test_a_message_comes_back_as_it_was(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    source, destination = broker.queue("classic"), broker.queue("classic")
    broker.publish(source, [EVERYTHING, Message(b"")])
    path = tmp_path / "box"
    archive(spark, broker.url, [source], path)
    done = replay(spark, broker.url, path, target=Target("", destination), name="once")
    assert done == Replayed("once", 2, 2, 0)
    first, second = drained(broker, destination)
    origin = json.loads(str(first.headers.pop("x-replayed-from")))
    assert (origin["archive"], origin["queue"], origin["archived_row"]) == ("box", source, 0)
    assert (first.body, first.properties) == (EVERYTHING.body, EVERYTHING.properties)
    assert (second.body, list(second.headers)) == (b"", ["x-replayed-from"])


def numbered(root: Path, queue: str, count: int, *, wrong: int | None = None) -> Manifest:
    """An archive of messages for `queue`, of which number `wrong` is for a queue that is not there."""
    rows = [
        {
            "queue": "log",
            "offset": n,
            "exchange": "",
            "routing_key": f"{queue}.later" if n == wrong else queue,
            "message_id": str(n),
            "body": b"%d" % n,
            "timestamp": DAY + timedelta(seconds=n // 100),
        }
        for n in range(count)
    ]
    return archive_of(root, rows[1::2], rows[::2])  # the log's order is not the archive's


def test_a_replay_that_fails_goes_on_behind_what_is_confirmed(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    queue = broker.queue("classic")
    root = numbered(tmp_path / "box", queue, 2500, wrong=1500).root
    plans: list[tuple[str, int]] = []
    with pytest.raises(HarebellError, match="NO_ROUTE"):
        replay(spark, broker.url, root, name="one", planned=lambda *plan: plans.append(plan))
    assert plans == [("one", 2500)]
    before = broker.ready(queue)
    assert 1500 <= before <= 2000
    broker.declare(f"{queue}.later")
    told: list[int] = []
    done = resume(spark, broker.url, root, "one", progress=told.append)
    assert done == Replayed("one", 2500, 1500, 0)
    assert (told[0], told[-1]) == (1000, 2500)
    got = [int(delivery.body) for delivery in drained(broker, queue)]
    expected = [n for n in range(2500) if n != 1500]
    # After the first thousand, what was published and not confirmed comes again: less than a chunk, with its own id.
    assert [got[:before], got[before:]] == [expected[:before], expected[1000:]]
    assert broker.ready(f"{queue}.later") == 1
    assert resume(spark, broker.url, root, "one") == Replayed("one", 2500, 0, 0)


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_what_is_archived_later_is_not_replayed(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("classic")
    table = numbered(tmp_path / "box", queue, 1200, wrong=1100)
    with pytest.raises(HarebellError, match="NO_ROUTE"):
        replay(spark, broker.url, table.root, name="one")
    late = archive_of(
        tmp_path / "late", [{"queue": "log", "offset": 50, "routing_key": queue, "exchange": ""}], at=DAY + timedelta(1)
    )
    [file] = late.files()
    (table.root / file.path).parent.mkdir(parents=True, exist_ok=True)
    (late.root / file.path).rename(table.root / file.path)
    table.add([file], "late", 0)
    broker.declare(f"{queue}.later")
    assert resume(spark, broker.url, table.root, "one") == Replayed("one", 1200, 200, 0)
    got = Counter(int(delivery.body) for delivery in drained(broker, queue))
    assert set(got) == set(range(1200)) - {1100}
    assert sum(got.values()) <= 1199 + 200
    # What is gone, on the other hand, makes a resumed replay wrong, and so it is refused.
    table.replace([table.files()[0]], [])
    with pytest.raises(InvalidArgument, match="already; resume it"):
        replay(spark, broker.url, table.root, name="one")
    note = table.root / "_archive" / "replays" / "one" / "0.json"
    note.write_text('{"confirmed": 1000, "repeated": 0}')
    with pytest.raises(DataLoss, match="has not the rows any more"):
        resume(spark, broker.url, table.root, "one")


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_order_between_and_within_queues(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    queue = broker.queue("classic")

    def row(name: str, number: int, offset: int | None, second: int | None) -> dict[str, object]:
        at = None if second is None else DAY + timedelta(seconds=second)
        return {"queue": name, "body": b"%d" % number, "offset": offset, "timestamp": at}

    # In a: offset 1 has a time before that of offset 0, and still comes behind it. b has no offsets; its order is that
    # of arrival, and its second row no time, so that the time of arrival counts, an hour later.
    rows = [row("a", 2, 1, 3), row("a", 1, 0, 5), row("a", 3, 2, 6), row("b", 0, None, 4), row("b", 4, None, None)]
    root = archive_of(tmp_path / "box", rows, at=DAY + timedelta(hours=1)).root
    target = Target("", queue)
    assert replay(spark, broker.url, root, target=target).published == 5
    assert [int(each.body) for each in drained(broker, queue)] == [0, 1, 2, 3, 4]
    assert replay(spark, broker.url, root, target=target, selection=Selection(limit=3)).published == 3
    assert [int(each.body) for each in drained(broker, queue)] == [0, 1, 2]
    assert replay(spark, broker.url, root, target=target, connections=2).published == 5
    numbers = [int(each.body) for each in drained(broker, queue)]
    assert [n for n in numbers if n in (1, 2, 3)] == [1, 2, 3]
    assert [n for n in numbers if n in (0, 4)] == [0, 4]
    assert replay(spark, broker.url, root, selection=Selection(queues=("none",)), name="none").selected == 0
    with pytest.raises(InvalidArgument, match="connections is 0"):
        replay(spark, broker.url, root, connections=0)
    with pytest.raises(NotFound, match="no exchange"):
        replay(spark, broker.url, root, target=Target("nothere"))


def test_a_preview_counts_and_publishes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"routing_key": f"a.{n % 2}", "timestamp": DAY + timedelta(seconds=n), "body": b"x" * n} for n in range(5)]
    root = archive_of(tmp_path / "box", rows).root
    assert preview(spark, root) == Preview(
        5, 10, DAY, DAY + timedelta(seconds=4), (Route("x", "a.0", 3), Route("x", "a.1", 2)), 0
    )
    assert preview(spark, root, Selection(limit=2), Target("e", "k")) == Preview(
        2, 1, DAY, DAY + timedelta(seconds=1), (Route("e", "k", 2),), 0
    )
    assert preview(spark, root, Selection(key="none")) == Preview(0, 0, None, None, (), 0)
    assert not (root / "_archive" / "replays").exists()

"""Redriving: to the right place, once, and through every crash. No Spark session: plans are made by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from harebell.client.blocking import connect
from harebell.client.messages import Delivery
from harebell.errors import HarebellError, InvalidArgument
from harebell.protocol.v091 import Properties
from harebell.protocol.v091.fields import Table
from harebell.spark.jobs.deadletters.ledger import Ledger
from harebell.spark.jobs.deadletters.redriving import (
    Plan,
    Redriven,
    Target,
    default_ledger,
    destination,
    redrive,
    redriven_message,
)
from harebell.spark.jobs.peek import peek
from tests.cli.command import environment
from tests.spark.conftest import DRAINED, Broker
from tests.spark.jobs.letters import reject


class Crash(BaseException):
    pass


class House:
    """A work queue whose rejects go to a dead-letter queue, `count` of them there already."""

    def __init__(self, broker: Broker, kind: str, folder: Path, count: int) -> None:
        self.broker = broker
        self.folder = folder
        self.dead = broker.queue(kind)
        self.work = broker.queue("classic", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead})
        self.ledger = folder / "ledger"
        broker.numbered(self.work, count)
        reject(broker, self.work, self.dead, count)

    def plan(self, choose: Callable[[int], bool] = lambda n: True, place: tuple[str, str] | None = None) -> Plan:
        folder = self.folder / f"look{len(list(self.folder.glob('look*')))}"
        peek(self.broker.url, self.dead, folder)
        rows = pq.read_table(folder, columns=["digest", "body"]).to_pylist()
        to = place or ("", self.work)
        return Plan({row["digest"]: (to, 1) for row in rows if choose(int(row["body"]))})

    def redrive(self, plan: Plan, **options: Any) -> Redriven:
        with Ledger(self.ledger) as ledger:
            return redrive(self.broker.url, self.dead, plan, ledger, **options)

    def take(self, queue: str) -> list[Delivery]:
        """All messages of the queue, in order; they are gone."""
        taken = []
        with connect(self.broker.url, timeout=30.0) as connection, connection.channel() as channel:
            while (delivery := channel.get(queue, no_ack=True)) is not None:
                taken.append(delivery)
        return taken

    def numbers(self, queue: str) -> list[int]:
        return [int(delivery.body) for delivery in self.take(queue)]


@pytest.mark.parametrize("broker, kind", DRAINED, indirect=["broker"])
def test_the_chosen_go_back_and_the_others_stay(broker: Broker, kind: str, tmp_path: Path) -> None:
    house = House(broker, kind, tmp_path, 50)
    told: list[int] = []
    done = house.redrive(house.plan(lambda n: n % 5 == 0), window=4, progress=told.append)
    assert done == Redriven(confirmed=10, left=40)
    assert told == [4, 8, 10]
    assert broker.ready(house.dead) == 40
    back = house.take(house.work)
    assert [int(delivery.body) for delivery in back] == list(range(0, 50, 5))
    headers = dict(back[0].headers)
    assert len(str(headers.pop("x-redriven-id"))) == 32
    assert headers == {"x-redriven": 1, "x-redriven-from": house.dead}
    assert back[0].properties.message_id == "0"
    assert house.numbers(house.dead) == [n for n in range(50) if n % 5]


@pytest.mark.parametrize(
    ("step", "repeated", "already"), [("begun", 10, 0), ("published", 10, 0), ("confirmed", 0, 10), ("acked", 0, 0)]
)
def test_a_run_after_a_crash_repeats_nothing_that_was_confirmed(
    broker: Broker, tmp_path: Path, step: str, repeated: int, already: int
) -> None:
    house = House(broker, "classic", tmp_path, 30)
    seen: list[str] = []

    def crash(name: str) -> None:
        seen.append(name)
        if seen.count(name) == 2 and name == step:  # in the second window
            raise Crash

    plan = house.plan(lambda n: n != 29)
    with pytest.raises(Crash):
        house.redrive(plan, window=10, step=crash)
    done = house.redrive(house.plan(lambda n: n != 29), window=10)
    if step == "acked":
        # The broker may or may not have had time to handle the acknowledgements.
        assert done.already in (0, 10)
        already = done.already
    assert done == Redriven(confirmed=29 - 10 - (10 if step in ("confirmed", "acked") else 0), repeated=repeated,
                            already=already, left=1)  # fmt: skip
    back = house.take(house.work)
    copies = 10 if step == "published" else 0
    assert len(back) == 29 + copies
    assert len({delivery.headers["x-redriven-id"] for delivery in back}) == 29
    again = [int(delivery.body) for delivery in back if "x-redriven-again" in delivery.headers]
    assert again == (list(range(10, 20)) if repeated else [])
    assert house.numbers(house.dead) == [29]


DRIVER = """
import json, os, signal, sys
from pathlib import Path
from harebell.spark.jobs.deadletters.ledger import Ledger
from harebell.spark.jobs.deadletters.redriving import Plan, redrive
url, queue, ledger, plan, name = sys.argv[1:]
places = {bytes.fromhex(mark): (tuple(place), 1) for mark, place in json.loads(plan).items()}
seen = []
def step(now):
    seen.append(now)
    if now == name and seen.count(now) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
with Ledger(Path(ledger)) as held:
    redrive(url, queue, Plan(places), held, window=20, step=step)
"""


def test_kill_9_in_the_middle(broker: Broker, tmp_path: Path) -> None:
    house = House(broker, "classic", tmp_path, 100)
    killed = 0
    for step in ("confirmed", "published", "none"):
        plan = json.dumps({mark.hex(): place for mark, (place, _) in house.plan().chosen.items()})
        command = [sys.executable, "-c", DRIVER, broker.url, house.dead, str(house.ledger), plan, step]
        ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        killed += ended.returncode != 0
    assert killed >= 1
    back = house.take(house.work)
    assert {int(delivery.body) for delivery in back} == set(range(100))
    # At most one window a kill came twice, and what came again says so.
    again = [delivery for delivery in back if "x-redriven-again" in delivery.headers]
    assert len(back) - 100 <= len(again) <= 20 * killed
    assert house.numbers(house.dead) == []


def test_what_reaches_no_queue_stays(broker: Broker, tmp_path: Path) -> None:
    house = House(broker, "classic", tmp_path, 6)
    plan = house.plan(lambda n: n < 4)
    nowhere = (("", "spark.nowhere"), 1)
    wrong = {mark: nowhere if n % 2 else entry for n, (mark, entry) in enumerate(plan.chosen.items())}
    done = house.redrive(Plan(wrong), window=3)
    assert done == Redriven(confirmed=2, refused={"no queue for key 'spark.nowhere' of exchange ''": 2}, left=2)
    assert house.numbers(house.work) == [0, 2]
    assert broker.ready(house.dead) == 4
    assert house.redrive(house.plan()) == Redriven(confirmed=4)  # and it is no repetition


def test_a_missing_exchange_is_said_before_anything_moves(broker: Broker, tmp_path: Path) -> None:
    house = House(broker, "classic", tmp_path, 3)
    with pytest.raises(InvalidArgument, match=r"3 of the chosen.*'spark.gone', which does not exist: say where to"):
        house.redrive(house.plan(place=("spark.gone", "k")))
    assert house.numbers(house.dead) == [0, 1, 2]


def test_what_somebody_else_has_taken_is_counted(broker: Broker, tmp_path: Path) -> None:
    house = House(broker, "classic", tmp_path, 5)
    plan = house.plan()
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.get(house.dead, no_ack=True)
    assert house.redrive(plan) == Redriven(confirmed=4, missing=1)


def test_a_broker_that_is_away(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger, pytest.raises((HarebellError, OSError)):
        redrive("amqp://guest:guest@127.0.0.1:1/", "q", Plan({}), ledger)


@pytest.mark.parametrize(
    ("target", "came_from", "place"),
    [
        (Target(), ("orders", "work", "eu.new"), ("orders", "eu.new")),
        (Target(), ("", "work", "work"), ("", "work")),
        (Target(), ("", "work", "an.alias"), ("", "work")),
        (Target(), (None, None, "k"), None),
        (Target("queue"), ("orders", "work", "eu.new"), ("", "work")),
        (Target("queue"), (None, None, "k"), None),
        (Target(exchange="other"), ("orders", "work", "eu.new"), ("other", "eu.new")),
        (Target(key="other"), ("orders", "work", "eu.new"), ("orders", "other")),
        (Target(exchange="", key="retry"), (None, None, None), ("", "retry")),
    ],
)
def test_destinations(target: Target, came_from: tuple[Any, Any, Any], place: tuple[str, str] | None) -> None:
    assert destination(target, *came_from) == place


def test_a_redriven_message() -> None:
    noon = datetime(2026, 1, 5, 12, tzinfo=UTC)
    history: Table = {
        "x-death": [], "x-first-death-queue": "work", "x-first-death-exchange": "orders", "x-first-death-reason": "x",
        "x-last-death-queue": "work", "x-last-death-exchange": "orders", "x-last-death-reason": "x",
        "x-delivery-count": 3, "x-acquired-count": 3,
    }  # fmt: skip
    own: Table = {
        "own": 1, "x-deathbed": 1, "x-first-death-place": 1, "x-last-death-": 1, "x-delivery-county": 1,
        "x-delivery-count-": 1, "X-Death": 1,
    }  # fmt: skip
    properties = Properties(
        content_type="a/b", headers={**own, "CC": ["copy"], "x-redriven": 2, **history}, delivery_mode=2, priority=3,
        correlation_id="c", reply_to="r", expiration="5", message_id="m", timestamp=noon, type="t", user_id="alice",
        app_id="app",
    )  # fmt: skip

    class Came:
        body = b"x"
        headers = properties.headers

    came: Any = Came()
    came.properties = properties
    marked = {"x-redriven": 3, "x-redriven-from": "dead", "x-redriven-id": "00" * 16, "x-redriven-user-id": "alice"}
    message = redriven_message(came, ("orders", "k"), "dead", bytes(16), again=False)
    assert message.headers == {**own, "CC": ["copy"], **marked}
    for name in Properties.__slots__:
        if name not in ("headers", "user_id"):
            assert getattr(message.properties, name) == getattr(properties, name)
    assert message.properties.user_id is None
    elsewhere = redriven_message(came, ("", "work"), "dead", bytes(16), again=True)
    assert elsewhere.headers == {**own, **marked, "x-redriven-again": True}
    assert "x-death" in (properties.headers or {}), "what was delivered is not changed"


def test_the_ledgers_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(Path("/state")))
    assert default_ledger("amqp://u:p@host:1234/a%2Fb", "dead/letters") == Path(
        "/state/harebell/redrive/host_1234/a%2Fb/dead%2Fletters.ledger"
    )
    places = {
        default_ledger(f"amqp://h/{vhost}", queue) for vhost in ("..", ".", "a") for queue in ("ü" * 41, "ü" * 40 + "a")
    }
    assert len(places) == 6
    assert {place.resolve().parents[2] for place in places} == {Path("/state/harebell/redrive").resolve()}


def test_each_queue_has_a_ledger_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(Path("/state")))
    names = [".", "..", "...", "%2E", "a", "a.", "A" * 255, "/" * 254, "/" * 255, "ä" * 126 + "b", "ä" * 126 + "c"]
    paths = {
        default_ledger(f"amqp://u:p@host:1234/{quote(vhost, safe='')}", queue) for vhost in names for queue in names
    }
    assert len(paths) == len(names) ** 2
    for path in paths:
        assert len(path.relative_to("/state/harebell/redrive").parts) == 3
        assert ".." not in path.parts
        assert all(len(part) <= 255 - len(".lock") for part in path.parts)

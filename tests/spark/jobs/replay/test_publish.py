"""A replay's task without Spark and without a broker: pace, messages, what is noted when."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harebell.client.messages import Message, Publication
from harebell.errors import ConnectionLost, InvalidArgument, Unroutable
from harebell.spark.jobs.archive.selection import Selection
from harebell.spark.jobs.replay import publish as replay_publish
from harebell.spark.jobs.replay.publish import Maker, Pacer, publish_rows
from harebell.spark.jobs.replay.state import Ledger, Pace, QueuePlan, ReplayPlan, State, Target
from harebell.spark.options import sink_options
from tests.spark.jobs.filling import DAY, batch

NOON = int(DAY.timestamp()) * 1_000_000


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class FakeLink:
    """Stands in for a connection: keeps what is published; `errors` are raised, one a call, before or after that."""

    published: list[Publication]
    errors: list[Exception | None]
    opened: int

    def __init__(self, url: str, timeout: float) -> None:
        type(self).opened += 1

    def confirm_select(self) -> None: ...
    def close(self) -> None: ...

    def publish(self, publications: Sequence[Publication], window: int, timeout: float) -> int:
        type(self).published += publications
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        return len(publications)


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> type[FakeLink]:
    class Mine(FakeLink):
        published: list[Publication] = []  # noqa: RUF012  # one for each test
        errors: list[Exception | None] = []  # noqa: RUF012
        opened = 0

    monkeypatch.setattr(replay_publish, "Link", Mine)
    monkeypatch.setattr(replay_publish, "CHUNK", 3)
    return Mine


def planned(count: int, *, second: float = 0.0, **row: Any) -> pa.RecordBatch:
    """Rows as a task of a replay gets them; the body is the row's number, `second` what lies between two."""
    rows = batch([{"body": b"%d" % n, "message_id": str(n), **row} for n in range(count)])
    due = [DAY + timedelta(seconds=n * second) for n in range(count)]
    columns = {
        "archived_at": pa.array([DAY] * count, pa.timestamp("us", "UTC")),
        "archived_row": pa.array(range(count), pa.int64()),
        "due": pa.array(due, pa.timestamp("us", "UTC")),
        "task": pa.array([0] * count, pa.int32()),
    }
    return pa.RecordBatch.from_arrays([*rows.columns, *columns.values()], names=[*rows.schema.names, *columns])


def run(ledger: Ledger, rows: Sequence[pa.RecordBatch], pace: Pace = Pace(), share: float = 1.0) -> tuple[int, Clock]:  # noqa: B008
    clock = Clock()
    options = sink_options({"url": "amqp://guest:guest@localhost/", "retrytimeout": "60"})
    maker = Maker("box", Target(), "guest")
    return publish_rows(rows, options, maker, ledger, Pacer(pace, share, clock), clock.sleep, clock), clock


def bodies(link: type[FakeLink]) -> list[int]:
    return [int(each.message.body) for each in link.published if isinstance(each.message, Message)]


def test_every_chunk_is_noted_when_it_is_confirmed(link: type[FakeLink], tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "0.json")
    link.errors = [None, None, Unroutable(None)]  # type: ignore[arg-type]
    with pytest.raises(Unroutable):
        run(ledger, [planned(8)])
    assert Ledger(tmp_path / "0.json").confirmed == 6
    link.published.clear()
    count, _ = run(Ledger(tmp_path / "0.json"), [planned(4), planned(8).slice(4)])
    assert (count, bodies(link)) == (2, [6, 7])
    again = Ledger(tmp_path / "0.json")
    assert (again.confirmed, again.repeated) == (8, 0)
    assert run(again, [planned(8)])[0] == 0


def test_a_lost_connection_repeats_one_chunk(
    link: type[FakeLink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harebell.spark.connection.time.sleep", lambda seconds: None)
    ledger = Ledger(tmp_path / "0.json")
    link.errors = [None, ConnectionLost("cut")]
    assert run(ledger, [planned(7)])[0] == 7
    assert bodies(link) == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6]
    assert (ledger.confirmed, ledger.repeated, link.opened) == (7, 3, 2)


def test_large_messages_make_small_chunks(
    link: type[FakeLink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_publish, "CHUNK_BYTES", 2)
    link.errors = [None, Unroutable(None)]  # type: ignore[arg-type]
    ledger = Ledger(tmp_path / "0.json")
    with pytest.raises(Unroutable):
        run(ledger, [planned(4)])
    assert ledger.confirmed == 2


def test_a_rate_is_kept_in_bursts(link: type[FakeLink], tmp_path: Path) -> None:
    _, clock = run(Ledger(tmp_path / "0.json"), [planned(20)], Pace(rate=80.0), 0.5)  # 40/s: two in 50 ms
    assert clock.slept == pytest.approx([0.05] * 9)


def test_what_was_late_is_not_made_up_for_by_a_rate() -> None:
    clock = Clock()
    pacer = Pacer(Pace(rate=10.0), 1.0, clock)
    assert pacer.due(NOON) == 100.0
    clock.now = 105.0
    assert pacer.due(NOON) == 105.0
    assert pacer.due(NOON) == pytest.approx(105.1)


def test_a_speed_follows_the_original_times(link: type[FakeLink], tmp_path: Path) -> None:
    _, clock = run(Ledger(tmp_path / "0.json"), [planned(4, second=30.0)], Pace(speed=10.0))
    assert clock.slept == pytest.approx([3.0, 3.0, 3.0])
    assert bodies(link) == [0, 1, 2, 3]


def test_no_pace_does_not_wait(link: type[FakeLink], tmp_path: Path) -> None:
    assert run(Ledger(tmp_path / "0.json"), [planned(20, second=30.0)])[1].slept == []


def made(target: Target, **row: Any) -> Publication:
    rows = planned(1, **{"timestamp": DAY, **row})
    [(publication, due)] = Maker("box", target, "guest").publications(rows)
    assert due == NOON
    return publication


def test_a_message_is_as_it_was() -> None:
    headers = '{"CC":["other"],"n":1}'
    publication = made(Target(), offset=7, headers=headers, user_id="guest", priority=3, expiration="100")
    assert (publication.exchange, publication.routing_key, publication.mandatory) == ("x", "a.b", True)
    origin = '{"archive":"box","queue":"q","offset":7}'
    message = publication.message
    assert isinstance(message, Message)
    expected = Message(
        b"0",
        headers={"CC": ["other"], "n": 1, "x-replayed-from": origin},
        message_id="0",
        timestamp=int(DAY.timestamp()),
        user_id="guest",
        priority=3,
        expiration="100",
    )
    assert (message.body, message.properties) == (expected.body, expected.properties)


@pytest.mark.parametrize("number", [1_700_000_000_000, 2**64 - 1])
def test_a_timestamp_that_no_date_holds_comes_back(number: int) -> None:
    bits = number if number < 2**63 else number - 2**64
    message = made(Target(), timestamp=None, timestamp_number=bits).message
    assert isinstance(message, Message)
    assert message.properties.timestamp == number


def test_a_message_elsewhere() -> None:
    publication = made(Target("e", "k", mandatory=False), headers='{"CC":["other"]}', user_id="alice")
    assert (publication.exchange, publication.routing_key, publication.mandatory) == ("e", "k", False)
    message = publication.message
    assert isinstance(message, Message)
    assert message.properties.user_id is None
    headers = dict(message.properties.headers or {})
    assert json.loads(str(headers.pop("x-replayed-from"))) == {
        "archive": "box",
        "queue": "q",
        "archived_at": "2026-01-05T12:00:00+00:00",
        "archived_row": 0,
    }
    assert headers == {"x-replayed-user-id": "alice"}


PLAN = ReplayPlan(
    "box", Selection(since=DAY, limit=3), Target("e"), Pace(rate=5.0), 2,
    {"a": QueuePlan(2, 17, 0), "b": QueuePlan(1, 18, 1)},
)  # fmt: skip


def test_a_plan_is_kept(tmp_path: Path) -> None:
    state = State(tmp_path, "one")
    state.create(PLAN)
    assert State(tmp_path, "one").plan() == PLAN
    assert (PLAN.rows, PLAN.rows_of(0), PLAN.rows_of(1)) == (3, 2, 1)
    with state.ledger(1) as ledger:
        ledger.add(5, 0)
    assert state.confirmed(2) == 5
    with pytest.raises(InvalidArgument, match="there is a replay 'one' already"):
        state.create(PLAN)


def test_names_of_replays(tmp_path: Path) -> None:
    State(tmp_path, "one").create(PLAN)
    with pytest.raises(InvalidArgument, match="no replay 'two' to go on with; known here: one"):
        State(tmp_path, "two").plan()
    for name in ("", "../up", ".x", "a/b"):
        with pytest.raises(InvalidArgument, match="is no name for a replay"):
            State(tmp_path, name)


@pytest.mark.parametrize(
    ("pace", "text"),
    [
        ({"rate": 1, "speed": 1}, "not both"),
        ({"rate": 0}, "rate is 0"),
        ({"speed": -1}, "speed is -1"),
        *(({name: value}, f"{name} is {value}") for name in ("rate", "speed") for value in (math.inf, math.nan)),
    ],
)
def test_paces_that_are_none(pace: dict[str, float], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        Pace(**pace)

"""`harebell spark deadletters`, from the queue to the page and back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harebell.cli.main import application
from harebell.client.blocking import connect
from harebell.client.messages import Message, Publication
from harebell.errors import InvalidArgument
from tests.cli.html.checker import checked
from tests.spark.conftest import Broker
from tests.spark.jobs.commands import Command
from tests.spark.jobs.letters import reject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

spark_test = pytest.mark.spark


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Command(spark, monkeypatch)


@spark_test
def test_a_triage_and_a_redrive(broker: Broker, command: Command, tmp_path: Path, capsys: Any) -> None:
    exchange = f"spark.orders.{uuid.uuid4().hex[:8]}"
    dead = broker.queue("classic")
    work = broker.queue("classic", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.exchange_declare(exchange, "topic")
        channel.queue_bind(work, exchange, "order.#")
        channel.confirm_select()
        bodies = [b'{"id": %d, "note": "%s"}' % (n, b"late" if n % 3 else b"bad") for n in range(12)]
        channel.publish_many(
            Publication(Message(body, message_id=str(n), user_id="guest"), exchange, "order.new")
            for n, body in enumerate(bodies)
        )
        reject(broker, work, dead, 12)
        try:
            report, out = tmp_path / "report.html", tmp_path / "out.json"
            chosen = ("--redrive", "--reason", "rejected", "--queue", work, "--where", "text LIKE '%late%'")
            common = ("spark", "deadletters", dead, "--url", broker.url)
            assert command(*common, "--report", report, "--json", out, *chosen, "--limit", 5, "--dry-run") == 0
            content = json.loads(out.read_text())
            assert content["redrive"] == {
                "chosen": 5, "spent": 0, "homeless": 0,
                "places": [{"exchange": exchange, "routing_key": "order.new", "messages": 5}],
            }  # fmt: skip
            (died,) = content["reasons"]
            assert (died["reason"], died["queue"], died["messages"], died["deaths"]) == ("rejected", work, 12, 12)
            assert [row["pattern"] for row in content["patterns"]] == ["OBJECT<id: NUMBER, note: STRING>"]
            text = " ".join(checked(report.read_text()).text)
            assert "OBJECT<id: NUMBER, note: STRING>" in text
            assert broker.ready(dead) == 12
            assert broker.ready(work) == 0

            assert command(*common, *chosen, "--limit", 5) == 0
            assert "5 sent back and confirmed" in " ".join(capsys.readouterr().err.split())
            assert (broker.ready(dead), broker.ready(work)) == (7, 5)
            back = channel.get(work, no_ack=True)
            assert back is not None
            assert (back.exchange, back.routing_key, back.properties.message_id) == (exchange, "order.new", "1")
            assert back.headers["x-redriven"] == 1
            assert "x-death" not in back.headers
        finally:
            channel.exchange_delete(exchange)


@spark_test
def test_what_stays_ends_with_status_1(harebell_server: Any, command: Command, tmp_path: Path, capsys: Any) -> None:
    broker, out = Broker(harebell_server.url), tmp_path / "out.json"
    try:
        dead = broker.queue("classic")
        broker.numbered(dead, 4)
        nowhere = ("--redrive", "--to-exchange", "", "--to-key", "spark.nowhere", "--json", out)
        assert command("spark", "deadletters", dead, "--url", broker.url, *nowhere) == 1
        assert "4 messages stayed: no queue for key 'spark.nowhere'" in capsys.readouterr().err
        assert json.loads(out.read_text())["redrive"]["confirmed"] == 0
        assert broker.ready(dead) == 4
        with pytest.raises(InvalidArgument, match=r"condition 'nosuch = 1'.*nosuch"):
            where = ("--redrive", "--where", "nosuch = 1")
            command("spark", "deadletters", dead, "--url", broker.url, *where)
    finally:
        broker.close()


@spark_test
def test_an_archive_has_others_too(spark: SparkSession, command: Command, tmp_path: Path, capsys: Any) -> None:
    death = '{"x-death":[{"count":1,"reason":"rejected","queue":"work","exchange":"shop"}]}'
    lost = '{"x-first-death-queue":"work","x-first-death-reason":"expired","x-first-death-exchange":"shop"}'
    rows = [("dead", death, b"1"), ("dead", lost, b"2"), ("log", None, b"3"), ("log", '{"death":"x-death"}', b"4")]
    frame = spark.createDataFrame(rows, "routing_key STRING, headers STRING, body BINARY").coalesce(1)
    frame.write.parquet(str(tmp_path / "all"))
    frame.where("routing_key = 'log'").write.parquet(str(tmp_path / "log"))
    assert command("spark", "deadletters", "--archive", tmp_path / "all", "--json", "-") == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["summary"]["messages"], found["summary"]["unknown"]) == (2, 0)
    assert {row["reason"] for row in found["reasons"]} == {"rejected", "expired"}
    assert "2 other messages of the archive have not died, and are left out" in said.err
    with pytest.raises(InvalidArgument, match=r"none of the 2 messages in .*log has died"):
        command("spark", "deadletters", "--archive", tmp_path / "log")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a queue, or a folder"),
        (("q", "--archive", "a"), "name a queue, or a folder"),
        (("--archive", "a", "--take"), "not for --archive"),
        (("q", "--ticket", "t"), "give --take too"),
        (("q", "--spool", "t"), "give --take too"),
        (("--archive", "a", "--redrive"), "harebell spark replay a --queue"),
        (("--archive", "nowhere"), "there is no folder nowhere"),
        (("q", "--take", "--redrive"), "leave out --take"),
        (("q", "--dry-run"), "--dry-run is for --redrive"),
        (("q", "--to-key", "k"), "--to-key is for --redrive"),
        (("q", "--max-redrives", "5"), "--max-redrives is for --redrive"),
    ],
)
def test_what_cannot_be_meant(arguments: tuple[str, ...], said: str) -> None:
    run: Callable[..., Any] = application()
    with pytest.raises(InvalidArgument, match=said):
        run(["spark", "deadletters", *arguments], exit_on_error=False)

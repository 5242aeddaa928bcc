"""`harebell route explain`, by a broker that runs and by a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harebell.client.blocking import connect
from tests.cli.administering import Command
from tests.wire import BrokerThread

FILE = {
    "exchanges": [
        {"name": "x", "type": "headers", "arguments": {"alternate-exchange": "rest"}},
        {"name": "rest", "type": "fanout"},
        {"name": "hash", "type": "x-consistent-hash", "arguments": {"hash-property": "message_id"}},
    ],
    "queues": [{"name": "numbers"}, {"name": "words"}, {"name": "others"}],
    "bindings": [
        {"source": "x", "destination": "numbers", "destination_type": "queue", "arguments": {"n": 1}},
        {"source": "x", "destination": "words", "destination_type": "queue", "arguments": {"n": "one"}},
        {"source": "rest", "destination": "others", "destination_type": "queue"},
        {"source": "hash", "destination": "words", "destination_type": "queue", "routing_key": "1"},
        {"source": "gone", "destination": "words", "destination_type": "queue", "routing_key": "1"},
    ],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(FILE))
    return path


def test_by_a_running_broker(run: Command, broker: BrokerThread) -> None:
    with connect(broker.broker.url) as connection, connection.channel() as channel:
        for queue in ("errors", "everything"):
            channel.queue_declare(queue, durable=True)
        channel.queue_bind("errors", "amq.topic", "*.error")
        channel.queue_bind("everything", "amq.topic", "#")
    shown = run("route", "explain", "amq.topic", "shop.error")
    assert shown.status == 0, shown
    assert "'*.error' -> queue 'errors'" in shown.output
    assert shown.output.endswith("reaches 'errors', 'everything'\n")
    assert run("route", "explain", "amq.topic", "shop").output.endswith("reaches 'everything'\n")
    assert run("route", "explain", "", "errors").output.endswith("reaches 'errors'\n")
    both = run("route", "explain", "", "errors", "--copy", "everything").output
    assert both.endswith("reaches 'errors', 'everything'\n")
    assert run("route", "explain", "amq.direct", "k").output.endswith("reaches no queue\n")


@pytest.mark.parametrize(("arguments", "reached"), [
    (("x", "--header", "n=1"), "reaches 'numbers'"), (("x", "--header", "n=one"), "reaches 'words'"),
    (("x", "--header", "n=2"), "reaches 'others'"), (("hash", "--property", "message_id=7"), "reaches 'words'"),
])  # fmt: skip
def test_by_a_file(run: Command, file: Path, arguments: tuple[str, ...], reached: str) -> None:
    shown = run("route", "explain", *arguments, "--definitions", file)
    assert shown.status == 0, shown
    assert shown.output.endswith(f"{reached}\n")
    assert "remark: binding from exchange 'gone'" in shown.error


@pytest.mark.parametrize(("arguments", "says"), [
    (("nope",), "no exchange 'nope' in vhost '/'"), (("x", "--header", "n"), "write NAME=VALUE"),
    (("x", "--property", "colour=red"), "exchanges route by"), (("x" * 300,), "has 300 bytes"),
    (("hash", "--property", "timestamp=now"), "write seconds"),

    (("x", "--url", "amqp://h/"), "either --definitions, or --url"),
])  # fmt: skip
def test_what_cannot_be(run: Command, file: Path, arguments: tuple[str, ...], says: str) -> None:
    refused = run("route", "explain", *arguments, "--definitions", file)
    status = 65 if says.startswith(("no user", "no vhost", "no exchange")) else 1
    assert (refused.status, says in refused.error) == (status, True), refused


def test_a_file_that_cannot_be_read(run: Command, tmp_path: Path) -> None:
    refused = run("route", "explain", "x", "--definitions", tmp_path / "none")
    assert (refused.status, "cannot be read" in refused.error) == (1, True)

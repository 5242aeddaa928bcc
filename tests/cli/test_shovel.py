"""`harebell shovel` as its users run it: what it moves, what it says, how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from harebell import Publication
from harebell.client.blocking import Connection, connect
from harebell.protocol.v091.fields import Table
from tests.cli.administering import runner
from tests.cli.command import environment, harebell
from tests.cli.server.test_serve import serving

PATIENCE = 60.0  # seconds


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URLs of two brokers, without the slash at the end."""
    with (
        serving("--data", tmp_path_factory.mktemp("a")) as (_, first),
        serving("--data", tmp_path_factory.mktemp("b")) as (_, second),
    ):
        yield first.rstrip("/"), second.rstrip("/")


@pytest.fixture
def ends(servers: tuple[str, str]) -> Iterator[tuple[Connection, Connection]]:
    with connect(servers[0]) as first, connect(servers[1]) as second:
        yield first, second


def fill(connection: Connection, queue: str, count: int) -> None:
    with connection.channel() as channel:
        channel.confirm_select()
        channel.queue_declare(queue, durable=True)
        channel.publish_many(Publication(b"%d" % number, "", queue) for number in range(count))


def bodies(connection: Connection, queue: str) -> list[bytes]:
    """All that is in the queue, which is deleted."""
    found = []
    with connection.channel() as channel:
        while (delivery := channel.get(queue, no_ack=True)) is not None:
            found.append(delivery.body)
        channel.queue_delete(queue)
    return found


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_until_empty(servers: tuple[str, str], ends: tuple[Connection, Connection]) -> None:
    fill(ends[0], "q/1", 2000)
    fill(ends[1], "q/1", 0)
    done = harebell("shovel", f"{servers[0]}/%2F#q%2F1", servers[1], "--until-empty")
    assert done.returncode == 0, done.stderr
    assert "2,000 messages moved in " in done.stdout
    assert done.stderr == ""
    assert bodies(ends[1], "q/1") == numbers(2000)
    assert bodies(ends[0], "q/1") == []


def test_count_and_names_as_options(servers: tuple[str, str], ends: tuple[Connection, Connection]) -> None:
    fill(ends[0], "a", 10)
    fill(ends[1], "b", 0)
    names = ("--source-queue", "a", "--dest-queue", "b", "--count", "3", "--forward-headers", "--timestamp-header")
    done = harebell("shovel", servers[0], servers[1], *names)
    assert done.returncode == 0, done.stderr
    assert "3 messages moved" in done.stdout
    with ends[1].channel() as channel:
        delivery = channel.get("b")
        assert delivery is not None
        (entry,) = cast("list[Table]", delivery.headers["x-shovelled"])
        assert isinstance(entry, dict)
        assert (entry["shovelled-by"], entry["src-queue"], entry["dest-queue"]) == ("harebell", "a", "b")
        assert "x-shovelled-timestamp" in delivery.headers
    assert bodies(ends[1], "b") == numbers(3)
    assert bodies(ends[0], "a") == numbers(10)[3:]


def test_all_queues_of_a_definitions_file(
    servers: tuple[str, str], ends: tuple[Connection, Connection], tmp_path: Path
) -> None:
    counts = {f"all.{number}": 10 * number for number in range(12)}
    queues = [{"vhost": "/", "name": name, "durable": True, "arguments": {}} for name in counts]
    stream = {"vhost": "/", "name": "all.stream", "durable": True, "arguments": {"x-queue-type": "stream"}}
    exchange = {"vhost": "/", "name": "all.x", "type": "fanout", "durable": True, "arguments": {}}
    binding = {"vhost": "/", "source": "all.x", "destination": "all.0", "destination_type": "queue"}
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps({"queues": [*queues, stream], "exchanges": [exchange], "bindings": [binding]}))
    for name, count in counts.items():
        fill(ends[0], name, count)
    with ends[0].channel() as channel:
        channel.confirm_select()
        channel.queue_declare("all.stream", durable=True, arguments={"x-queue-type": "stream"})
        channel.publish_many(Publication(b"%d" % number, "", "all.stream") for number in range(50))
    everything = ("--all", "--definitions", file, "--until-empty")
    done = harebell("shovel", *servers, *everything, "--offset", "first")
    assert done.returncode == 0, done.stderr
    assert "stream all.stream: the next one would be --offset 50\n" in done.stdout
    assert f"{sum(counts.values()) + 50:,} messages moved" in done.stdout
    for name, count in counts.items():
        assert f"\n{name} " in done.stdout
        if name == "all.0":
            with ends[1].channel() as channel:
                channel.confirm_select()
                channel.publish(b"bound", "all.x", mandatory=True)
            assert bodies(ends[1], name) == [b"bound"]
        else:
            assert bodies(ends[1], name) == numbers(count)
    done = harebell("shovel", *servers, *everything)
    assert done.returncode == 0, done.stderr
    assert "0 messages moved" in done.stdout
    with ends[1].channel() as channel:
        assert channel.queue_declare("all.stream", passive=True).message_count == 50


@pytest.mark.parametrize("arguments, status", [((), 0), (("--count", "1000000"), 130)])
def test_interrupted(
    servers: tuple[str, str], ends: tuple[Connection, Connection], arguments: tuple[str, ...], status: int
) -> None:
    """What is on its way arrives, then it ends: at its end or before it, the status says which."""
    fill(ends[0], "i", 500)
    fill(ends[1], "i", 0)
    with subprocess.Popen(
        [sys.executable, "-m", "harebell", "shovel", f"{servers[0]}#i", servers[1], *arguments],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process, ends[1].channel() as channel:  # fmt: skip
        try:
            while channel.queue_declare("i", passive=True).message_count < 500:
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == status
    assert "500 messages moved" in output
    assert bodies(ends[1], "i") == numbers(500)
    assert bodies(ends[0], "i") == []


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("{a}", "{b}"), "name one queue (amqp://host/vhost#queue) or --source-exchange"),
        (("{a}#q", "{b}", "--source-queue", "r"), "#q and --source-queue r both name a queue"),
        (("{a}#q", "{b}#r", "--dest-exchange", "x"), "a queue or --dest-exchange, not both"),
        (("{a}#q", "{b}", "--count", "1", "--ack-mode", "no-ack"), "--count cannot be kept with --ack-mode no-ack"),
        (("{a}#q", "{a}"), "queue 'q' would be moved into itself"),
        (("{a}#q", "http://b"), "the URL's scheme is 'http', known are amqp and amqps"),
        (("{a}", "{b}", "--all"), "--all needs a definitions file"),
        (("{a}", "{b}", "--all", "--definitions", "/none.json"), "/none.json cannot be read: No such file"),
        (("{a}#missing", "{b}"), "missing: source: amqp://guest@127.0.0.1:"),
        (("{a}#missing", "{b}"), "404 NOT_FOUND - no queue 'missing' in vhost '/'"),
        (("{a}/nope#q", "{b}"), "530 NOT_ALLOWED - vhost nope not found"),
        (("amqp://a:b@{host}#q", "{b}"), "403 ACCESS_REFUSED"),
        (("amqp://127.0.0.1:1#q", "{b}"), "amqp://guest@127.0.0.1:1/ cannot be reached"),
    ],
)
def test_what_cannot_be_is_said(
    servers: tuple[str, str],
    arguments: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    host = servers[0].rpartition("@")[2]
    run = runner(monkeypatch, capsys)
    done = run("shovel", *(each.format(a=servers[0], b=servers[1], host=host) for each in arguments))
    assert done.status == 1
    assert said in done.error
    assert done.error.startswith("harebell: ")
    assert done.error.count("\n") == 1


def test_all_takes_its_queues_from_the_file_alone(
    servers: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "definitions.json"
    file.write_text('{"queues": [{"vhost": "v", "name": "q", "durable": true}]}')
    options = ("--all", "--definitions", file)
    run = runner(monkeypatch, capsys)
    assert "name no queue" in run("shovel", f"{servers[0]}#q", servers[1], *options).error
    assert "no durable queue in vhost '/'" in run("shovel", servers[0], servers[1], *options).error
    file.write_text("{")
    assert f"definitions file {file}: definitions: not JSON" in harebell("shovel", *servers, *options).stderr


def test_a_shovel_of_the_server(tmp_path: Path) -> None:
    """`harebell serve` acts on the parameters in its definitions."""
    value = {"src-uri": "amqp://", "src-queue": "in", "dest-uri": "amqp://", "dest-queue": "out"}
    file = tmp_path / "definitions.json"
    parameter = {"vhost": "/", "component": "shovel", "name": "s", "value": value}
    file.write_text(json.dumps({"parameters": [parameter]}))
    with serving("--data", tmp_path / "data", "--definitions", file) as (process, url):
        with connect(url) as connection:
            fill(connection, "in", 10)
            with connection.channel() as channel:
                channel.queue_declare("out", durable=True)
                while channel.queue_declare("out", passive=True).message_count < 10:
                    pass
            assert bodies(connection, "out") == numbers(10)
        process.terminate()
        _, log = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert "shovel 's' in vhost '/': running" in log
        assert "Traceback" not in log

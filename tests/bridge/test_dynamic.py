"""Shovels that a broker's parameters ask for: set, changed, cleared, listed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import harebell
from harebell.bridge import Shovels
from harebell.bridge.dynamic import in_vhost
from harebell.bridge.options import parse_shovel
from harebell.broker import Broker
from harebell.errors import InvalidArgument, NotFound
from tests.bridge.conftest import Make
from tests.bridge.kit import End, same, until


class Home:
    """A broker with shovels, and one queue of it as an end."""

    def __init__(self, broker: Broker, end: End) -> None:
        self.broker = broker
        self.end = end

    def set(self, name: str, destination: End, **more: Any) -> None:
        value = {
            "src-uri": "amqp://", "src-queue": self.end.queue, "dest-uri": destination.url,
            "dest-queue": destination.queue, "reconnect-delay": 0.05,
        }  # fmt: skip
        self.broker.set_parameter("shovel", name, value | {k.replace("_", "-"): v for k, v in more.items()})

    def status(self) -> dict[str, Any]:
        """Of the only shovel."""
        (status,) = self.broker.parameter_status("shovel")
        return status

    async def until(self, **wanted: Any) -> None:
        await until(lambda: all(self.status().get(name) == value for name, value in wanted.items()))


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    shovels = Shovels()
    async with Broker(components={"shovel": shovels}) as broker, shovels.of(broker):
        async with harebell.connect(broker.url) as connection, connection.channel() as channel:
            await channel.confirm_select()
            await channel.queue_declare("home", durable=True)
            yield Home(broker, End(broker.url, "home", channel))


async def test_set_cleared_and_listed(home: Home, end: Make) -> None:
    there = await end("harebell")
    await home.end.fill(100)
    home.set("away", there)
    await there.until(100)
    await home.until(state="running", forwarded=100, pending=0)
    status = home.status()
    assert status.pop("timestamp")
    assert status == {
        "node": home.broker.node.name, "vhost": "/", "name": "away", "type": "dynamic", "state": "running",
        "src_uri": "amqp:///%2F", "src_protocol": "amqp091", "src_queue": "home",
        "dest_uri": there.url.replace("guest:guest@", ""), "dest_protocol": "amqp091", "dest_queue": there.queue,
        "forwarded": 100, "pending": 0, "lost": 0, "redials": 0,
    }  # fmt: skip
    assert home.broker.clear_parameter("shovel", "away")
    assert home.broker.parameter_status("shovel") == []
    await home.end.fill(10, 100)
    assert same(await there.take(), 100)


async def test_a_new_value_takes_the_place_of_the_old(home: Home, end: Make) -> None:
    first, second = await end("harebell"), await end("harebell")
    home.set("away", first)
    await home.until(state="running")
    home.set("away", second)
    await home.until(state="running", dest_queue=second.queue)
    await home.end.fill(20)
    await second.until(20)
    assert await first.ready() == 0


async def test_both_ends_here(home: Home) -> None:
    await home.end.channel.queue_declare("other", durable=True)
    await home.end.fill(5)
    home.broker.set_parameter(
        "shovel", "s", {"src-uri": "amqp://", "src-queue": "home", "dest-uri": "amqp://", "dest-queue": "other"}
    )
    await home.end.until(5, "other")
    assert same(await home.end.take("other"), 5)


async def test_after_the_queue_length_it_deletes_itself(home: Home, end: Make) -> None:
    there = await end("harebell")
    await home.end.fill(7)
    home.set("once", there, src_delete_after="queue-length")
    await until(lambda: not home.broker.parameter_status("shovel"))
    assert home.broker.export_definitions()["parameters"] == []
    assert same(await there.take(), 7)


async def test_what_cannot_be_is_refused(home: Home) -> None:
    with pytest.raises(InvalidArgument, match="Must specify 'src-exchange' or 'src-queue'"):
        home.broker.set_parameter("shovel", "s", {})
    with pytest.raises(NotFound):
        home.broker.set_parameter("shovel", "s", VALUE, vhost="nope")
    with pytest.raises(NotFound):
        home.broker.parameter_status("federation-upstream")
    assert not home.broker.clear_parameter("shovel", "s")


async def test_trouble_is_listed_and_outlived(home: Home, end: Make) -> None:
    there = await end("harebell")
    home.set("away", there, dest_queue="later", dest_predeclared=True)
    await until(lambda: "no queue 'later'" in str(home.status().get("reason")))
    await there.channel.queue_declare("later", durable=True)
    await home.until(state="running")
    assert "no queue 'later'" in home.status()["last_error"]
    await home.end.fill(3)
    await there.until(3, "later")


async def test_without_reconnects_it_stays_terminated(home: Home, end: Make) -> None:
    there = await end("harebell")
    home.set("away", there, dest_uri="amqp://127.0.0.1:1", reconnect_delay=0)
    await home.until(state="terminated")
    assert "cannot be reached" in home.status()["reason"]
    assert home.broker.clear_parameter("shovel", "away")


async def test_a_full_destination_is_listed(home: Home, end: Make) -> None:
    there = await end("harebell", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    await home.end.fill(3)
    home.set("away", there)
    await until(lambda: "refused" in home.status().get("refusal", ""))
    assert home.status()["state"] == "running"


async def test_it_goes_with_its_vhost(home: Home) -> None:
    home.broker.add_vhost("v")
    home.broker.set_parameter("shovel", "s", VALUE, vhost="v")
    assert home.status()["src_uri"] == "amqp:///v"
    home.broker.delete_vhost("v")
    assert home.broker.parameter_status("shovel") == []


VALUE: dict[str, Any] = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}


async def test_by_definitions(tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    parameter = {"vhost": "/", "component": "shovel", "name": "s", "value": VALUE}
    file.write_text(json.dumps({"parameters": [parameter]}))
    shovels = Shovels()
    async with Broker(definitions=file, components={"shovel": shovels}) as broker, shovels.of(broker):
        await until(lambda: broker.parameter_status("shovel")[0]["state"] == "running")
        assert broker.export_definitions()["parameters"] == [parameter]
        assert broker.import_definitions({"parameters": [{**parameter, "name": "t"}]}) == ()
        await until(lambda: [each["state"] for each in broker.parameter_status("shovel")] == ["running"] * 2)


async def test_bad_ones_in_definitions_keep_the_broker_from_starting() -> None:
    bad = {"vhost": "/", "component": "shovel", "name": "s", "value": {"nope": 1}}
    with pytest.raises(InvalidArgument, match="parameter 's' of component 'shovel' in vhost '/'"):
        await Broker(definitions={"parameters": [bad]}, components={"shovel": Shovels()}).start()


async def test_ending_does_not_wait_for_a_silent_destination(
    home: Home, end: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here one that would take an hour to fail."""
    monkeypatch.setattr("harebell.bridge.dynamic.GOODBYE_SECONDS", 0.2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    there = await end("harebell")
    port = server.sockets[0].getsockname()[1]
    home.set("away", there, dest_uri=f"amqp://127.0.0.1:{port}?connection_timeout=3600000")
    await home.until(state="starting")
    home.set("away", there)
    await home.until(state="running")
    server.close()


def test_local_uris_mean_the_vhost_of_the_parameter() -> None:
    options = in_vhost(parse_shovel(VALUE | {"dest-uri": ["amqp:///w", "amqp://h"]}), "a/b")
    assert options.source.uris == ("amqp:///a%2Fb",)
    assert options.destination.uris == ("amqp:///w", "amqp://h")

"""The demonstration's exchanges and queues: where flights go, what is removed, and what is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import harebell
from harebell.broker import Broker
from harebell.cli.flights import topology, traffic
from harebell.errors import NotFound


@pytest.fixture
async def connection() -> AsyncIterator[harebell.Connection]:
    async with Broker() as broker, harebell.connect(broker.url) as connection:
        yield connection


async def missing(connection: harebell.Connection, queue: str) -> bool:
    try:
        await traffic.depth(connection, queue)
    except NotFound:
        return True
    return False


async def test_where_flights_go(connection: harebell.Connection) -> None:
    async with connection.channel() as channel:
        await topology.declare(channel)
        await channel.confirm_select()
        for key, haul in (("EWR.UA.IAH", "short"), ("JFK.B6.SFO", "long"), ("JFK.B6.BOS", "short")):
            await channel.publish(
                harebell.Message(b"{}", headers={"haul": haul}), topology.EXCHANGE, key, mandatory=True
            )
        depths = {queue: await traffic.depth(connection, queue) for queue in topology.QUEUES}
        assert depths == {
            "flights.log": 3, "flights.ops": 3, "flights.dead": 0, "flights.EWR": 1, "flights.JFK": 2, "flights.LGA": 0,
            "flights.long-haul": 1, "alerts.desk": 0,
        }  # fmt: skip
        assert await traffic.log_length(connection, topology.LOG) == 3
        delivery = await channel.get(topology.OPS)
        assert delivery is not None
        delivery.reject(requeue=False)
        assert await traffic.depth_once_steady(connection, topology.DEAD, 1) == 1
        dead = await channel.get(topology.DEAD)
        assert dead is not None
        deaths = dead.headers["x-death"]
        assert isinstance(deaths, list)
        assert isinstance(deaths[0], dict)
        assert (deaths[0]["reason"], deaths[0]["queue"]) == ("rejected", topology.OPS)


async def test_the_definitions_are_what_is_declared() -> None:
    async with Broker() as broker, harebell.connect(broker.url) as connection:
        async with connection.channel() as channel:
            await topology.declare(channel)
        exported = broker.export_definitions()
        assert isinstance(exported, dict)
        for section, name in (("queues", "name"), ("exchanges", "name"), ("bindings", "destination")):
            ours, theirs = (
                sorted(
                    (
                        {key: value for key, value in entry.items() if key not in ("type", "properties_key")}
                        for entry in found
                    ),
                    key=str,
                )
                for found in ((await topology.definitions())[section], exported[section])
                if isinstance(found, list)
            )
            assert ours == [entry for entry in theirs if not str(entry[name]).startswith("amq.")], section


async def test_an_empty_log_has_no_length(connection: harebell.Connection) -> None:
    async with connection.channel() as channel:
        await topology.declare(channel)
    assert await traffic.log_length(connection, topology.LOG) == 0


async def test_remove_leaves_nothing(connection: harebell.Connection) -> None:
    assert not await topology.reserve(connection)
    async with connection.channel() as channel:
        await topology.declare(channel)
    await topology.remove(connection)
    assert all([await missing(connection, queue) for queue in topology.QUEUES])
    for exchange in (*topology.EXCHANGES, topology.MARK):
        with pytest.raises(NotFound):
            await (await connection.channel()).exchange_declare(exchange, passive=True)
    await topology.remove(connection)  # again: harmless


async def test_what_an_earlier_run_left_is_removed(connection: harebell.Connection) -> None:
    await topology.reserve(connection)
    async with connection.channel() as channel:
        await topology.declare(channel)
    assert await topology.reserve(connection)
    assert await missing(connection, topology.LOG)


async def test_what_is_somebody_elses_is_not_touched(connection: harebell.Connection) -> None:
    async with connection.channel() as channel:
        await channel.queue_declare(topology.DEAD, durable=True)
        await channel.exchange_declare(topology.ALERTS, "fanout")
        await channel.publish(b"theirs", "", topology.DEAD)
        with pytest.raises(topology.NamesTaken, match=r"exchange 'alerts', queue 'flights\.dead'"):
            await topology.reserve(connection)
        assert await traffic.depth(connection, topology.DEAD) == 1
        with pytest.raises(NotFound):
            await (await connection.channel()).exchange_declare(topology.MARK, passive=True)


async def test_settled_gives_up_on_what_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "PATIENCE", 0.2)
    async with asyncio.timeout(60):
        await traffic.wait_steady(lambda: 1, 2)
        await traffic.wait_steady(lambda: 2, 2)
        await traffic.wait_steady(lambda: 1, 2, unless=lambda: True)


async def test_a_missing_alert_is_not_waited_for_without_end(
    connection: harebell.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "PATIENCE", 0.2)
    async with connection.channel() as channel:
        await topology.declare(channel)
        await channel.publish(harebell.Message(b'{"n": 1}', message_id="a"), topology.ALERTS, "UA.delay")
        await channel.publish(harebell.Message(b'{"n": 1}', message_id="a"), topology.ALERTS, "UA.delay")
    assert await traffic.collect_alerts(connection, 3) == (2, {"a": {"n": 1}})
    assert await traffic.depth(connection, topology.ALERT_DESK) == 0

"""A broker in a program whose start or stop is given up: afterwards a new one starts on its folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import harebell
from harebell.broker import Broker
from tests.client.stepping import Moment, cancelled_at

MOMENTS: tuple[Moment, ...] = ("waiting", "answered")


async def one_starts(folder: Path) -> None:
    async with Broker(data=folder) as broker, harebell.connect(broker.url) as connection:
        await connection.channel()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_cancelled_start(tmp_path: Path, moment: Moment) -> None:
    at, cancelled = 1, True
    while cancelled:
        broker = Broker(data=tmp_path)
        cancelled = await cancelled_at(broker.start(), at, moment)
        assert bool(broker.listeners) is not cancelled
        if not cancelled:
            await broker.stop()
        await one_starts(tmp_path)
        await broker.start()  # this one, too
        await broker.stop()
        at += 1
    assert at > 2


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_cancelled_stop(tmp_path: Path, moment: Moment) -> None:
    at, cancelled = 1, True
    while cancelled:
        broker = Broker(data=tmp_path)
        await broker.start()
        async with harebell.connect(broker.url, recovery=None) as connection:
            await connection.channel()
            cancelled = await cancelled_at(broker.stop(), at, moment)
        await one_starts(tmp_path)
        await broker.stop()
        at += 1
    assert at > 2


async def test_two_stops(tmp_path: Path) -> None:
    broker = Broker(data=tmp_path)
    await broker.start()
    first = asyncio.ensure_future(broker.stop())
    await asyncio.sleep(0)
    await broker.stop()
    assert first.done()
    await one_starts(tmp_path)


async def test_a_second_start_is_refused(tmp_path: Path) -> None:
    """The broker that runs goes on, also where it is still starting."""
    broker = Broker(data=tmp_path)
    starting = asyncio.ensure_future(broker.start())
    await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="is started"):
            await broker.start()
        await starting
    async with harebell.connect(broker.url, recovery=None) as connection:
        await connection.channel()
    await broker.stop()


async def test_a_stop_ends_a_start(tmp_path: Path) -> None:
    broker = Broker(data=tmp_path)
    starting = asyncio.ensure_future(broker.start())
    await asyncio.sleep(0)
    await broker.stop()
    await asyncio.wait([starting])
    assert isinstance(starting.exception(), RuntimeError)
    assert not broker.listeners
    await one_starts(tmp_path)

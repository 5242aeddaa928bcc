"""`delivery.process()`: how a block ends decides about its message, once; against both brokers."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Delivery
from tests.client.outages import bodies


async def one(channel: Channel, queue: str) -> Delivery:
    delivery = await channel.get(queue)
    assert delivery is not None
    return delivery


@pytest.mark.parametrize(
    "error, requeue, back",
    [
        (None, False, False),
        (ValueError("mine"), False, False),
        (ValueError("mine"), True, True),
        (harebell.Reject(), True, False),
        (harebell.Requeue(), False, True),
        (asyncio.CancelledError(), False, True),
        (KeyboardInterrupt(), False, True),
    ],
)
async def test_how_the_block_ends(
    channel: Channel, queue: str, error: BaseException | None, requeue: bool, back: bool
) -> None:
    await channel.publish(b"m", "", queue)
    delivery = await one(channel, queue)
    with (
        nullcontext()
        if error is None or isinstance(error, harebell.Reject | harebell.Requeue)
        else pytest.raises(type(error))
    ):
        async with delivery.process(requeue=requeue) as same:
            assert same is delivery
            if error is not None:
                raise error
    again = await channel.get(queue, no_ack=True)
    assert (again is not None) == back


async def test_what_the_program_settles_stays_settled(channel: Channel, queue: str) -> None:
    for settle in ("ack", "nack", "reject"):
        await channel.publish(b"m", "", queue)
        delivery = await one(channel, queue)
        first = settle if settle == "ack" else rf"{settle}\(requeue=False\)"
        with delivery.process():
            getattr(delivery, settle)(**({} if settle == "ack" else {"requeue": False}))
            with pytest.raises(errors.LocalProtocolError, match=rf"settled before \({first}\)"):
                delivery.ack()
    assert await bodies(channel, queue) == []
    await channel.publish(b"m", "", queue)
    delivery = await one(channel, queue)
    with delivery.process(), pytest.raises(errors.LocalProtocolError, match="others work on"):
        delivery.ack(multiple=True)
    assert channel.closed_reason is None
    assert channel.test().reconnection_count == 1  # nothing was settled twice: the broker would have closed it


async def test_an_orphan_is_no_error(
    connection: Connection, channel: Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    await channel.publish(b"m", "", queue)
    delivery = await one(channel, queue)
    async with delivery.process():
        await connection.test().force_reconnect()
    assert "comes again" in caplog.text
    again = await one(channel, queue)
    assert again.redelivered
    again.ack()

"""Connections, channels and their events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Literal, assert_never, assert_type

import harebell
from harebell import errors, events, middleware


async def connections() -> None:
    async with harebell.connect("amqp://localhost/", recovery=None) as connection:
        assert_type(connection, harebell.Connection)
        assert_type(connection.state, Literal["open", "reconnecting", "closed"])
        assert_type(connection.closed_reason, errors.HarebellError | None)
        async with connection.channel(timeout=5) as channel:
            assert_type(channel, harebell.Channel)
    assert_type(await harebell.connect(), harebell.Connection)
    async with AsyncExitStack() as stack:
        assert_type(await stack.enter_async_context(harebell.connect()), harebell.Connection)
        assert_type(await stack.enter_async_context(connection.channel()), harebell.Channel)
    assert_type(await connection.channel(), harebell.Channel)
    harebell.connect(["amqp://one/", "amqp://two/"], recovery=harebell.Recovery(harebell.Backoff(0.1, 5)))
    harebell.connect(5672)  # type: ignore[arg-type]
    harebell.connect(url="amqp://localhost/", retries=3)  # type: ignore[call-arg]


async def happenings(connection: harebell.Connection) -> None:
    async for event in connection.events():
        assert_type(event, events.Event)
        match event:
            case events.Blocked(reason):
                assert_type(reason, str)
            case events.Reconnecting(attempt, delay, error):
                assert_type(attempt, int)
                assert_type(delay, float)
                assert_type(error, BaseException)
            case events.Recovered(skipped=skipped):
                assert_type(skipped, list[events.Skipped])
            case events.Closed(error=reason):
                assert_type(reason, errors.HarebellError)
            case events.Connecting() | events.Open() | events.Unblocked() | events.QueueRecovered():
                pass
            case events.ChannelReopened() | events.ConsumerEnded() | events.ConsumerWaiting() | events.Resubscribed():
                pass
            case events.StreamResumed() | events.StreamGap():
                pass
            case events.SessionEnded():
                pass
            case _:
                assert_never(event)


def dialled(event: middleware.DialEvent) -> None:
    assert_type(event.error, BaseException | None)


def numbered(tag: int) -> None: ...


async def channels(channel: harebell.Channel) -> None:
    assert_type(await channel.queue_declare("work"), harebell.QueueInfo)
    assert_type(await channel.queue_purge("work"), int)
    assert_type(await channel.publish(b"", "", "work"), harebell.Confirmation | None)
    assert_type(channel.publish_nowait(b"", "", "work"), int)
    assert_type(await channel.publish_many([harebell.Publication(b"", "", "work")]), int)
    assert_type(channel.parked, deque[tuple[int, harebell.Publication]])
    assert_type(channel.consuming, set[str])
    async for confirmation in channel.confirmations():
        assert_type(confirmation, harebell.Confirmation)
    assert_type(channel.notify_dial(dialled), Callable[[], None])
    channel.notify_confirm(numbered, numbered)
    channel.notify_return(print)
    channel.notify_return(dialled)  # type: ignore[arg-type]
    await channel.queue_declare("work", durable="yes")  # type: ignore[arg-type]
    channel.queue_declare("work")  # type: ignore[unused-coroutine]

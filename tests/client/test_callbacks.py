"""Callbacks of the wrong shape are refused where they are given, in every place that takes one."""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import harebell
from harebell import blocking, errors
from harebell.channels import ChannelLayer
from harebell.channels.asgi1 import AsgiChannelLayer
from harebell.client.callbacks import awaited, call_contained, check_plain
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.middleware import Middlewares
from harebell.testing import EmbeddedBroker
from tests.client.outages import FAST

Give = Callable[[Any, Any, Any], Any]  # a callback, to something of this connection and this channel


async def coroutine(given: object) -> None: ...


def generator(given: object) -> Iterator[None]:
    yield


def of_nothing() -> None: ...


class Called:
    async def __call__(self, given: object) -> None: ...


WRONG: list[Any] = [
    coroutine,
    functools.partial(coroutine),
    Called(),
    Called().__call__,
    generator,
    of_nothing,
    None,
    "print",
]

BOTH: dict[str, Give] = {
    "notify_close": lambda connection, channel, callback: connection.notify_close(callback),
    "notify_dial": lambda connection, channel, callback: connection.notify_dial(callback),
    "notify_disconnect": lambda connection, channel, callback: connection.notify_disconnect(callback),
    "a channel's notify_close": lambda connection, channel, callback: channel.notify_close(callback),
    "a channel's notify_dial": lambda connection, channel, callback: channel.notify_dial(callback),
    "a channel's notify_disconnect": lambda connection, channel, callback: channel.notify_disconnect(callback),
    "notify_publish": lambda connection, channel, callback: channel.notify_publish(callback),
    "on_ack": lambda connection, channel, callback: channel.notify_confirm(callback, print),
    "on_nack": lambda connection, channel, callback: channel.notify_confirm(print, callback),
    "on_orphaned": lambda connection, channel, callback: channel.notify_confirm_or_orphaned(print, print, callback),
    "notify_return": lambda connection, channel, callback: channel.notify_return(callback),
    "notify_cancel": lambda connection, channel, callback: channel.notify_cancel(callback),
    "notify_flow": lambda connection, channel, callback: channel.notify_flow(callback),
    "each": lambda connection, channel, callback: channel.consume("q").each(callback),
}
OR_NONE: dict[str, Give] = {  # these may be left out
    "on_return": lambda connection, channel, callback: setattr(channel, "on_return", callback),
    "on_blocked": lambda connection, channel, callback: connection.producer(on_blocked=callback),
    "on_orphan": lambda connection, channel, callback: connection.consume("q", print, on_orphan=callback),
}
BLOCKING: dict[str, Give] = {  # in asyncio these are, or may be, coroutine functions
    "setup": lambda connection, channel, callback: connection.consume("q", print, setup=callback),
    "cleanup": lambda connection, channel, callback: connection.consume("q", print, cleanup=callback),
    "setup of a pool": lambda connection, channel, callback: connection.channel_pool(setup=callback),
}
NO_CALLBACK = "cannot be called|is a generator|is a coroutine function"


@pytest.mark.parametrize("place", [*BOTH, *OR_NONE])
async def test_a_callback_of_the_wrong_shape_is_refused(connection: Connection, channel: Channel, place: str) -> None:
    give = (BOTH | OR_NONE)[place]
    for callback in WRONG:
        if callback is None and place in OR_NONE:
            continue
        with pytest.raises(errors.InvalidArgument, match=NO_CALLBACK):
            given = give(connection, channel, callback)
            if inspect.isawaitable(given):
                await given


def test_threads_refuse_them_too(broker_url: str) -> None:
    with blocking.connect(broker_url, timeout=60) as connection, connection.channel() as channel:
        for place, give in (BOTH | OR_NONE | BLOCKING).items():
            for callback in WRONG:
                if callback is None and place not in BOTH:
                    continue
                with pytest.raises(errors.InvalidArgument, match=NO_CALLBACK):
                    give(connection, channel, callback)


@pytest.mark.parametrize("layer", [ChannelLayer, AsgiChannelLayer])
def test_layers_refuse_them_too(layer: Any) -> None:
    for callback in WRONG[:6]:
        with pytest.raises(errors.InvalidArgument, match=NO_CALLBACK):
            layer("amqp://nowhere/", on_missed=callback)


def test_what_can_be_called_is_taken() -> None:
    found: list[object] = []
    for callback in (print, found.append, functools.partial(print, 1), lambda given: None, dict):
        check_plain("the callback", callback, "given")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(), GeneratorExit()], ids=repr)
def test_what_no_future_can_hold_is_an_error_of_the_function(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(RuntimeError, match="fail raised") as found:
        call_contained(fail)
    assert found.value.__cause__ is error


def test_its_result_and_its_errors_are_its_own() -> None:
    assert call_contained(max, 1, 2) == 2
    with pytest.raises(ZeroDivisionError):
        call_contained(divmod, 1, 0)


async def cancelled() -> None:
    """As a token that several wait for, when somebody else cancels the task that fetches it."""
    task = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    task.cancel()
    await task


@pytest.mark.parametrize("what", ["credentials", "dial", "connection_reconnect", "channel_reconnect"])
async def test_what_is_cancelled_in_a_reconnect_is_a_failed_attempt(what: str) -> None:
    """It does not end the task that dials."""
    asked = 0

    async def credentials() -> tuple[str, str]:
        await fail()
        return "guest", "guest"

    async def dial(host: str, port: int) -> socket.socket:
        await fail()
        return socket.create_connection((host, port))

    async def reconnect(call_next: Callable[[Any], Awaitable[object]], args: Any) -> object:
        await fail()
        return await call_next(args)

    async def fail() -> None:
        nonlocal asked
        asked += 1
        if asked == failing:
            await cancelled()

    options: dict[str, Any] = {"credentials": credentials} if what == "credentials" else {}
    options |= {"dial": dial} if what == "dial" else {}
    options |= {"middleware": Middlewares().add(what, reconnect)} if what.endswith("_reconnect") else {}
    failing = 1 if what.endswith("_reconnect") else 2
    with EmbeddedBroker() as server:
        async with harebell.connect(server.url, recovery=FAST, **options) as connection:
            channel = await connection.channel()
            await connection.test().force_reconnect(60)
            assert asked > failing
            await channel.queue_declare("q")


async def test_who_is_cancelled_stays_cancelled() -> None:
    waiting = asyncio.create_task(awaited(asyncio.sleep(60)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(RuntimeError, match="cancelled was cancelled"):
        await awaited(cancelled())

"""Middlewares step by step, with what they print; against both brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import harebell
from harebell import middleware as mw
from harebell.client.messages import QueueInfo
from harebell.client.middleware import QueueDeclareArgs, QueueDeleteArgs
from harebell.client.middleware.registry import Middlewares


async def test_registering_a_middleware(broker_url: str, name: str) -> None:
    printed: list[str] = []

    # define our new middleware
    async def queue_declare_middleware(
        call_next: Callable[[QueueDeclareArgs], Awaitable[QueueInfo]], args: QueueDeclareArgs
    ) -> QueueInfo:
        printed.append("MIDDLEWARE INVOKED FOR QUEUE")
        printed.append(f"QUEUE NAME : {args.name}")
        printed.append(f"AUTO-DELETE: {str(args.auto_delete).lower()}")
        return await call_next(args)

    # add it to what the connection is made with
    middlewares = Middlewares()
    middlewares.add("queue_declare", queue_declare_middleware)
    async with harebell.connect(broker_url, middleware=middlewares) as connection:
        # the channel has the default features and our middleware
        channel = await connection.channel()
        # declare our queue: our middleware is invoked
        await channel.queue_declare(name, auto_delete=True)
        await channel.queue_delete(name)
    assert printed == ["MIDDLEWARE INVOKED FOR QUEUE", f"QUEUE NAME : {name}", "AUTO-DELETE: true"]


class CustomMiddlewareProvider(mw.ProvidesQueueDeclare, mw.ProvidesQueueDelete):
    """Middlewares that need to coordinate."""

    id = "CustomMiddleware"  # fetches it when testing

    def __init__(self) -> None:
        self.invocation_count = 0
        self.printed: list[str] = []

    async def queue_declare(self, call_next: mw.Next[QueueDeclareArgs, QueueInfo], args: QueueDeclareArgs) -> QueueInfo:
        self.invocation_count += 1
        self.printed.append(f"DECLARED: {args.name}, TOTAL: {self.invocation_count}")
        return await call_next(args)

    async def queue_delete(self, call_next: mw.Next[QueueDeleteArgs, int], args: QueueDeleteArgs) -> int:
        self.invocation_count += 1
        self.printed.append(f"DELETED: {args.name}, TOTAL: {self.invocation_count}")
        return await call_next(args)


async def test_a_provider_for_each_channel(broker_url: str, name: str) -> None:
    # every channel of the connection gets a fresh instance of our provider
    middlewares = Middlewares()
    middlewares.add_provider(CustomMiddlewareProvider)
    async with harebell.connect(broker_url, middleware=middlewares) as connection:
        for _ in range(2):
            channel = await connection.channel()
            await channel.queue_declare(name, auto_delete=True)
            await channel.queue_delete(name)
            provider = channel.test().provider("CustomMiddleware")
            assert isinstance(provider, CustomMiddlewareProvider)
            assert provider.printed == [f"DECLARED: {name}, TOTAL: 1", f"DELETED: {name}, TOTAL: 2"]


async def test_one_provider_for_all_channels(broker_url: str, name: str) -> None:
    provider = CustomMiddlewareProvider()
    middlewares = Middlewares()
    middlewares.add_shared(provider)
    async with harebell.connect(broker_url, middleware=middlewares) as connection:
        for _ in range(2):
            channel = await connection.channel()
            await channel.queue_declare(name, auto_delete=True)
            await channel.queue_delete(name)
            assert channel.test().provider("CustomMiddleware") is provider
    assert provider.printed == [
        f"DECLARED: {name}, TOTAL: 1",
        f"DELETED: {name}, TOTAL: 2",
        f"DECLARED: {name}, TOTAL: 3",
        f"DELETED: {name}, TOTAL: 4",
    ]

"""Ends of shovels: a RabbitMQ and as many Harebells as a test asks for."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

import harebell
from harebell.broker import Broker
from harebell.protocol.v091 import Table
from tests.bridge.kit import End

Make = Callable[..., Awaitable[End]]


@pytest.fixture
async def end(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Makes an end: `await end("harebell")` or `await end("rabbitmq")`; what it made is gone after the test."""
    async with AsyncExitStack() as stack:

        async def make(kind: str, *, arguments: Table | None = None) -> End:
            if kind == "rabbitmq":
                url: str = request.getfixturevalue("rabbitmq").url
            else:
                url = (await stack.enter_async_context(Broker())).url
            connection = await stack.enter_async_context(harebell.connect(url, timeout=30))
            queue = f"shovel.{uuid.uuid4().hex[:8]}"
            async with connection.channel() as channel:
                await channel.queue_declare(queue, durable=True, arguments=arguments)
            channel = await stack.enter_async_context(connection.channel())
            await channel.confirm_select()
            stack.push_async_callback(channel.queue_delete, queue)
            return End(url, queue, channel)

        yield make


@pytest.fixture(params=["harebell-harebell", "harebell-rabbitmq", "rabbitmq-harebell", "rabbitmq-rabbitmq"])
async def ends(request: pytest.FixtureRequest, end: Make) -> tuple[End, End]:
    """Source and destination, in every pairing of makes."""
    source, destination = request.param.split("-")
    if "rabbitmq" in request.param:
        request.getfixturevalue("rabbitmq")
    return await end(source), await end(destination)

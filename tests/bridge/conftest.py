"""Ends of shovels: two RabbitMQs and as many Harebells as a test asks for."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

import harebell
from harebell.broker import Broker
from harebell.protocol.v091 import Table
from tests.bridge.kit import End
from tests.fixtures.rabbitmq import EACH

Make = Callable[..., Awaitable[End]]


@pytest.fixture
async def end(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Makes an end: `await end("harebell")`, or by the name of a RabbitMQ's fixture; the test's end removes it."""
    async with AsyncExitStack() as stack:

        async def make(kind: str, *, arguments: Table | None = None) -> End:
            if kind in EACH:
                url: str = request.getfixturevalue(kind).url
            else:
                url = (await stack.enter_async_context(Broker())).url
            connection = await stack.enter_async_context(harebell.connect(url, timeout=60))
            queue = f"shovel.{uuid.uuid4().hex[:8]}"
            async with connection.channel() as channel:
                await channel.queue_declare(queue, durable=True, arguments=arguments)
            channel = await stack.enter_async_context(connection.channel())
            await channel.confirm_select()
            stack.push_async_callback(channel.queue_delete, queue)
            return End(url, queue, channel)

        yield make


@pytest.fixture(
    params=[
        "harebell-harebell",
        "harebell-rabbitmq",
        "rabbitmq-harebell",
        "rabbitmq-rabbitmq",
        "harebell-rabbitmq4",
        "rabbitmq4-harebell",
        "rabbitmq-rabbitmq4",
    ]
)
async def ends(request: pytest.FixtureRequest, end: Make) -> tuple[End, End]:
    """Source and destination: every pairing of makes, and the way from an old RabbitMQ to a new one."""
    source, destination = request.param.split("-")
    return await end(source), await end(destination)

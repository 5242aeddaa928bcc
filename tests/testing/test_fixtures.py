"""The fixtures, used as an application's tests use them; `test_plugin` runs such an application."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from warren.client.channel import Channel
from warren.client.connection import Connection
from warren.testing import AmqpSuite, EmbeddedBroker, RabbitMQ
from warren.testing.plugin import Connect


async def test_a_channel_of_a_connection_of_a_broker(
    warren_channel: Channel, warren_connection: Connection, warren_broker: EmbeddedBroker, warren_connect: Connect
) -> None:
    await warren_channel.queue_declare("q", exclusive=True)
    assert warren_connection.parameters.port == warren_broker.port
    signal = warren_connection.test().signal_on_reconnect()
    await asyncio.to_thread(warren_broker.restart)
    await signal.wait()
    await warren_channel.queue_declare("q", passive=True)
    other = await warren_connect(recovery=None)
    other.test().block_reconnect()  # the fixture lets it go


async def test_the_suite(warren_suite: AmqpSuite) -> None:
    queue = await warren_suite.create_test_queue()
    await warren_suite.publish_messages("", queue, 2)
    assert (await warren_suite.get_message(queue)).body == b"0"


class TestOptions:
    @pytest.fixture
    def warren_broker_options(self) -> Mapping[str, object]:
        return {"mechanisms": ["AMQPLAIN"]}

    async def test_they_are_the_brokers(self, warren_connect: Connect, warren_url: str) -> None:
        connection = await warren_connect(f"{warren_url}?auth_mechanism=AMQPLAIN")
        assert connection.is_open


def test_another_broker(
    rabbitmq: RabbitMQ, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("WARREN_TEST_URL", rabbitmq.url)
    assert request.getfixturevalue("warren_url") == rabbitmq.url

"""The fixtures, used as an application's tests use them; `test_plugin` runs such an application."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.testing import AmqpSuite, EmbeddedBroker, RabbitMQ
from harebell.testing.plugin import Connect


async def test_a_channel_of_a_connection_of_a_broker(
    harebell_channel: Channel,
    harebell_connection: Connection,
    harebell_broker: EmbeddedBroker,
    harebell_connect: Connect,
) -> None:
    await harebell_channel.queue_declare("q", exclusive=True)
    assert harebell_connection.parameters.port == harebell_broker.port
    signal = harebell_connection.test().signal_on_reconnect()
    await asyncio.to_thread(harebell_broker.restart)
    await signal.wait()
    await harebell_channel.queue_declare("q", passive=True)
    other = await harebell_connect(recovery=None)
    other.test().block_reconnect()  # the fixture lets it go


async def test_the_suite(harebell_suite: AmqpSuite) -> None:
    queue = await harebell_suite.create_test_queue()
    await harebell_suite.publish_messages("", queue, 2)
    assert (await harebell_suite.get_message(queue)).body == b"0"


class TestOptions:
    @pytest.fixture
    def harebell_broker_options(self) -> Mapping[str, object]:
        return {"mechanisms": ["AMQPLAIN"]}

    async def test_they_are_the_brokers(self, harebell_connect: Connect, harebell_url: str) -> None:
        connection = await harebell_connect(f"{harebell_url}?auth_mechanism=AMQPLAIN")
        assert connection.is_open


def test_another_broker(rabbitmq: RabbitMQ, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setenv("HAREBELL_TEST_URL", rabbitmq.url)
    assert request.getfixturevalue("harebell_url") == rabbitmq.url

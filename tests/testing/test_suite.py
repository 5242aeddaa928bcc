"""AmqpSuite and AmqpCase: what a test of an application is given, and what they leave behind."""

from __future__ import annotations

import asyncio
import unittest
import uuid
from collections.abc import Iterator
from typing import ClassVar

import pytest

import harebell
from harebell import blocking, errors
from harebell.client.messages import QueueInfo
from harebell.client.middleware import Middlewares, Next, QueueDeclareArgs
from harebell.client.servers import product_of
from harebell.testing import AmqpCase, AmqpSuite, EmbeddedBroker, RabbitMQ
from harebell.testing.suite import QUICK
from tests.client.outages import FAST
from tests.fixtures.rabbitmq import EACH


@pytest.fixture(params=[*EACH, "harebell"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param in EACH:
        rabbitmq: RabbitMQ = request.getfixturevalue(request.param)
        yield rabbitmq.url
    else:
        with EmbeddedBroker() as server:
            yield server.url


@pytest.fixture
def name() -> str:
    return f"suite.{uuid.uuid4().hex[:12]}"


async def test_queues_exchanges_and_messages(url: str, name: str) -> None:
    async with AmqpSuite(url) as suite:
        exchange = await suite.create_test_exchange(f"{name}.x", "topic")
        queue = await suite.create_test_queue(name, exchange, "a.*", durable=True)
        await suite.publish_messages(exchange, "a.b", 3)
        for n in range(3):
            delivery = await suite.get_message(queue)
            assert delivery.body == str(n).encode()
            delivery.ack()
        with pytest.raises(AssertionError, match="0 ready and 0 consumers"):
            await suite.get_message(queue, timeout=0.01)
        with pytest.raises(errors.Unroutable):
            await suite.publish_messages(exchange, "nowhere")
        assert await suite.create_test_queue(name, durable=False) == name  # the one from before is gone
    async with harebell.connect(url) as connection:
        for kind in ("queue", "exchange"):
            async with connection.channel() as channel:
                with pytest.raises(errors.NotFound):
                    if kind == "queue":
                        await channel.queue_declare(name, passive=True)
                    else:
                        await channel.exchange_declare(exchange, passive=True)


async def test_a_message_that_comes_later_and_one_at_a_time(url: str, name: str) -> None:
    async with AmqpSuite(url) as suite:
        queue = await suite.create_test_queue(name)
        waiting = asyncio.ensure_future(suite.get_message(queue))
        await suite.publish_messages("", queue, 2, make=lambda n: harebell.Message(b"", message_id=f"no. {n}"))
        first = await waiting
        second = await suite.get_message(queue)  # the first one is not acknowledged
        assert [first.properties.message_id, second.properties.message_id] == ["no. 0", "no. 1"]
        second.ack()
        first.nack()
        assert (await suite.get_message(queue)).redelivered


async def test_both_ends_bring_the_queue_back(url: str, name: str) -> None:
    async with AmqpSuite(url) as suite:
        queue = await suite.create_test_queue(name)
        nameless = await suite.create_test_queue(exclusive=True)
        for tester in (suite.consume_connection_tester, suite.publish_connection_tester):
            with tester.reconnect_blocked():
                async with harebell.connect(url) as connection, connection.channel() as channel:
                    await channel.queue_delete(queue)
                signal = tester.signal_on_reconnect()
            await signal.wait()
            await suite.publish_messages("", queue)
        await suite.consume_tester.force_reconnect()
        await suite.publish_tester.force_reconnect()
        assert suite.publish_tester.reconnection_count >= 3
        await suite.consume_channel.queue_declare(nameless, passive=True)
        old = suite.consume_channel
        await suite.replace_channels()
        assert old.is_closed
        assert suite.publish_tester.reconnection_count == 1
        await suite.publish_messages("", queue)


async def test_what_a_test_held_down_is_let_go(url: str, name: str) -> None:
    async with AmqpSuite(url) as suite:
        await suite.create_test_queue(name)
        suite.publish_connection_tester.block_reconnect()
        suite.publish_connection_tester.disconnect_transport()
        await suite.consume_connection.close()
    assert suite.publish_connection.is_closed
    async with harebell.connect(url) as connection, connection.channel() as channel:
        with pytest.raises(errors.NotFound):
            await channel.queue_declare(name, passive=True)


async def test_a_broker_that_is_gone_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker() as server:
        async with AmqpSuite(server.url, recovery=None) as suite:
            await suite.create_test_queue("left")
            await asyncio.to_thread(server.stop)
    assert "not cleaned up (queue 'left')" in caplog.text
    with pytest.raises(errors.ConnectionLost):
        await AmqpSuite(suite.url).open()


async def test_no_reconnect_under_the_transport_lock() -> None:
    with EmbeddedBroker() as server:
        async with harebell.connect(server.url, recovery=QUICK) as connection, connection.channel() as channel:
            await channel.queue_declare("q")
            for harness in (connection.test(), channel.test()):
                before, core = harness.reconnection_count, channel.test().underlying_channel.core
                harness.disconnect_transport()
                async with harness.transport_lock():  # waits for the reconnect
                    assert channel.is_open
                    assert harness.reconnection_count == before + 1
                    assert channel.test().underlying_channel.core is not core
                    await channel.queue_declare("q", passive=True)
                    harness.disconnect_transport()
                    with pytest.raises(errors.DeadlineExceeded):
                        await channel.queue_declare("q", passive=True, timeout=0.02)
                    assert harness.reconnection_count == before + 1
                await channel.queue_declare("q", passive=True)
                assert harness.reconnection_count == before + 2
                with harness.reconnect_blocked():
                    with pytest.raises(errors.DeadlineExceeded):
                        await channel.queue_declare("q", passive=True, timeout=0.02)
                    with pytest.raises(AssertionError, match=r"still reconnecting after 0\.02 s"):
                        async with harness.transport_lock(0.02):
                            pass
                await channel.queue_declare("q", passive=True)
                assert harness.reconnection_count == before + 3
            transport = connection.test().underlying_connection
            assert transport.server_properties == connection.server_properties
            assert transport.core is channel.test().underlying_channel.connection


def test_the_transport_lock_of_the_blocking_api() -> None:
    with EmbeddedBroker() as server, blocking.connect(server.url, recovery=QUICK) as connection:
        channel = connection.channel()
        for harness in (connection.test(), channel.test()):
            before = harness.reconnection_count
            with harness.transport_lock():
                harness.disconnect_transport()
                with pytest.raises(errors.DeadlineExceeded):
                    channel.queue_declare("q", timeout=0.02)
            channel.queue_declare("q")
            with harness.reconnect_blocked(), pytest.raises(errors.DeadlineExceeded):
                channel.queue_declare("q", timeout=0.02)
            channel.queue_declare("q")
            assert harness.reconnection_count == before + 2


@pytest.mark.parametrize("second", ["channel", "connection"])
@pytest.mark.parametrize("first", ["channel", "connection"])
async def test_a_loss_at_any_step_of_the_return_from_another(first: str, second: str) -> None:
    """A return takes some thirty turns of the loop: the second loss falls in each of them."""
    with EmbeddedBroker() as server:
        async with harebell.connect(server.url, recovery=FAST) as connection, connection.channel() as channel:
            await channel.queue_declare("q")
            harnesses = {"connection": connection.test(), "channel": channel.test()}
            for turns in (*range(10), *range(10, 40, 3)):
                harnesses[first].disconnect_transport()
                for _ in range(turns):
                    await asyncio.sleep(0)
                await harnesses[second].force_reconnect(60)
                await channel.queue_declare("q", passive=True)


async def test_what_is_closed_does_not_come_back() -> None:
    with EmbeddedBroker() as server:
        async with harebell.connect(server.url) as connection:
            channel = await connection.channel()
            await channel.close()
            for closed, harness in ((channel, channel.test()), (connection, connection.test())):
                await closed.close()
                with pytest.raises(AssertionError, match=r"closed instead of reconnected: .*was closed by this client"):
                    await harness.force_reconnect(60)


def spy(seen: list[str]) -> Middlewares:
    async def declare(call_next: Next[QueueDeclareArgs, QueueInfo], args: QueueDeclareArgs) -> QueueInfo:
        seen.append(args.name)
        return await call_next(args)

    return Middlewares().add("queue_declare", declare)


async def test_credentials_and_middlewares() -> None:
    dials: list[int] = []
    declared: list[str] = []

    def credentials() -> tuple[str, str]:
        dials.append(1)
        return "guest", "guest"

    with EmbeddedBroker() as server:
        url = server.url.replace("guest:guest@", "nobody:wrong@")
        async with AmqpSuite(url, credentials=credentials, middleware=spy(declared)) as suite:
            await suite.create_test_queue("q")
            await suite.consume_connection_tester.force_reconnect()
            assert len(dials) == 3
        assert declared == ["q", "q"]  # on both connections
        async with harebell.connect(server.url) as connection, connection.channel() as channel:
            with pytest.raises(errors.NotFound):  # it was deleted, with these credentials
                await channel.queue_declare("q", passive=True)


def test_options_of_a_case() -> None:
    declared: list[str] = []

    class Spied(AmqpCase):
        connect_options: ClassVar = {"middleware": spy(declared)}

        async def test_it(self) -> None:
            await self.create_test_queue("q")

    assert run(Spied).wasSuccessful()
    assert declared == ["q", "q"]


class Cases(AmqpCase):
    """Run by the test below, and by pytest itself."""

    __test__ = False

    async def test_one(self) -> None:
        queue = await self.create_test_queue("same name")
        await self.publish_messages("", queue)
        assert (await self.get_message(queue)).body == b"0"
        assert self.server is not None
        await asyncio.to_thread(self.server.stop)

    async def test_two(self) -> None:
        queue = await self.create_test_queue("same name")
        await self.consume_connection_tester.force_reconnect()
        info = await self.consume_channel.queue_declare(queue, passive=True)
        assert info.message_count == 0


class TestUnderPytest(Cases):
    __test__ = True


def run(case: type[unittest.TestCase]) -> unittest.TestResult:
    return unittest.TestLoader().loadTestsFromTestCase(case).run(unittest.TestResult())


def test_under_unittest() -> None:
    result = run(Cases)
    assert (result.testsRun, result.errors, result.failures) == (2, [], [])


def test_another_broker(rabbitmq: RabbitMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    class Product(AmqpCase):
        async def test_it(self) -> None:
            assert product_of(self.consume_connection.server_properties) == "RabbitMQ"

    class Chosen(Product):
        broker_url = rabbitmq.url

    monkeypatch.delenv("HAREBELL_TEST_URL", raising=False)
    assert run(Chosen).wasSuccessful()
    assert not run(Product).wasSuccessful()
    monkeypatch.setenv("HAREBELL_TEST_URL", rabbitmq.url)
    assert run(Product).wasSuccessful()

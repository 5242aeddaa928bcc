"""The Broker's own methods for users and permissions."""

from __future__ import annotations

import asyncio

import pytest

import harebell
from harebell import errors
from harebell.broker import Broker
from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.codec import PROTOCOL_HEADER, encode_method


async def test_a_user_from_beginning_to_end() -> None:
    async with Broker() as broker:
        url = broker.url.replace("guest:guest@", "orders:secret@")
        broker.add_user("orders", "secret", tags=["management"])
        assert broker.node.users.users["orders"].tags == ("management",)
        with pytest.raises(errors.NotAllowed, match="access to vhost '/' refused for user 'orders'"):
            await harebell.connect(url)
        broker.set_permissions("orders", configure="", write="^orders$|^amq\\.default$", read="^orders$")
        async with harebell.connect(broker.url) as guest, guest.channel() as channel:
            await channel.queue_declare("orders")
            await channel.queue_declare("other")
        async with harebell.connect(url) as connection:
            async with connection.channel() as channel:
                await channel.publish(b"1", "", "orders")
                assert await channel.get("orders", no_ack=True) is not None
                with pytest.raises(errors.AccessRefused, match="access to queue 'other' in vhost '/' refused"):
                    await channel.get("other")
            broker.clear_permissions("orders")
            async with connection.channel() as channel:
                with pytest.raises(errors.AccessRefused):
                    await channel.get("orders")
        broker.add_user("orders", "changed")
        broker.set_permissions("orders")
        with pytest.raises(errors.AccessRefused):
            await harebell.connect(url)
        async with harebell.connect(url.replace("secret", "changed")) as connection:
            assert connection.is_open
        assert broker.remove_user("orders")
        assert not broker.remove_user("orders")
        with pytest.raises(errors.AccessRefused):
            await harebell.connect(url.replace("secret", "changed"))


async def test_topic_permissions() -> None:
    async with Broker() as broker:
        broker.set_topic_permissions("guest", "amq.topic", "^mine\\.", "^mine\\.")
        async with harebell.connect(broker.url) as connection:
            async with connection.channel() as channel:
                queue = await channel.queue_declare(exclusive=True)
                await channel.queue_bind(queue.name, "amq.topic", "mine.#")
                with pytest.raises(errors.AccessRefused, match=r"access to topic 'theirs' in exchange 'amq\.topic'"):
                    await channel.queue_bind(queue.name, "amq.topic", "theirs")
            broker.clear_topic_permissions("guest", "amq.topic")
            async with connection.channel() as channel:
                await channel.queue_bind(queue.name, "amq.topic", "theirs")


async def test_what_is_missing_or_wrong() -> None:
    async with Broker() as broker:
        with pytest.raises(errors.NotFound, match="no user 'nobody'"):
            broker.set_permissions("nobody")
        with pytest.raises(errors.NotFound, match="no vhost 'nowhere'"):
            broker.set_permissions("guest", vhost="nowhere")
        with pytest.raises(errors.NotFound, match="no vhost 'nowhere'"):
            broker.set_topic_permissions("guest", "x", "", "", vhost="nowhere")
        with pytest.raises(errors.InvalidArgument):
            broker.set_permissions("guest", configure="(")
        with pytest.raises(errors.InvalidArgument):
            broker.add_user("x", "")
        with pytest.raises(errors.InvalidArgument):
            broker.add_user("x", "y", hashing_algorithm="md5")
        assert set(broker.node.users.users) == {"guest"}


async def test_stopping_while_a_password_is_verified() -> None:
    """What the thread has to say comes when nobody is there any more, and harms nobody."""
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    for _ in range(3):
        async with Broker() as broker:
            broker.add_user("slow", "secret")
            reader, writer = await asyncio.open_connection("localhost", broker.port)
            writer.write(PROTOCOL_HEADER)
            await reader.readexactly(1)
            response = b"\0slow\0secret"
            writer.write(encode_method(0, m.ConnectionStartOk({}, "PLAIN", response, "en_US")))
            while not broker.node.logins.verifier.running:  # noqa: ASYNC110  the loop has to turn
                await asyncio.sleep(0)
            writer.transport.abort()
            while broker._transports:  # noqa: ASYNC110
                await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert problems == []


def test_only_once_it_has_started() -> None:
    with pytest.raises(RuntimeError, match="not started"):
        Broker().add_user("x", "y")

"""The feature logging: what is in the log, at which level, and what is not."""

from __future__ import annotations

import functools
import logging

import pytest

import harebell
from harebell import errors
from harebell.client.middleware.logging import Logging
from harebell.client.middleware.registry import Middlewares
from tests.client.outages import FAST


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        f"{record.levelname} {record.getMessage()}" for record in caplog.records if record.name == "harebell.client"
    ]


async def test_a_loss_is_a_warning_and_calls_are_not_logged(
    harebell_url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "harebell.client")
    async with harebell.connect(harebell_url, recovery=FAST) as connection, connection.channel() as channel:
        peer = connection.parameters.peer
        await channel.queue_declare(name, exclusive=True)
        assert lines(caplog) == [f"INFO {peer}: connected"]
        caplog.clear()
        await connection.test().force_reconnect()
        assert lines(caplog)[0] == f"WARNING {peer}: {peer}: the test cut the connection; reconnecting"
        assert f"INFO {peer}: connected" in lines(caplog)
        caplog.clear()
        where = f"channel {channel.number} of {peer}"
        await channel.test().force_reconnect()
        assert lines(caplog) == [
            f"WARNING {where}: the test cut the channel; reconnecting",
            f"INFO channel {channel.number}: open again after the test cut the channel",
        ]
        caplog.clear()
    assert lines(caplog) == []  # our own close is no news


async def test_calls_with_their_arguments_at_debug(
    harebell_url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "harebell.client")
    async with harebell.connect(harebell_url) as connection, connection.channel() as channel:
        where = f"channel {channel.number} of {connection.parameters.peer}"
        caplog.clear()
        await channel.queue_declare(name, exclusive=True, arguments={"x-max-length": 7})
        arguments = "arguments={'x-max-length': 7}"
        assert lines(caplog) == [
            f"DEBUG {where}: queue_declare(name={name!r}, exclusive=True, {arguments}) -> "
            f"QueueInfo({name!r}, message_count=0, consumer_count=0)"
        ]
        caplog.clear()
        with pytest.raises(errors.NotFound):
            await channel.queue_inspect("nowhere")
        failed = [line for line in lines(caplog) if line.startswith("INFO") and "failed" in line]
        assert failed[0].startswith(f"INFO {where}: queue_inspect(name='nowhere') failed: NotFound: ")
        caplog.clear()
        await connection.update_secret("guest", "rotation")
        assert lines(caplog) == [f"DEBUG {connection.parameters.peer}: update_secret(reason='rotation')"]
        caplog.clear()
        await channel.queue_inspect(name)
        caplog.clear()
        await channel.publish(b"m", "", name)
        delivery = await channel.get(name)
        assert delivery is not None
        delivery.ack()
        assert lines(caplog) == []  # nothing per message


async def test_each_message_when_asked_for(harebell_url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "harebell.client")
    middlewares = Middlewares().without("logging").add_provider(functools.partial(Logging, messages=True), id="logging")
    async with harebell.connect(harebell_url, middleware=middlewares) as connection, connection.channel() as channel:
        where = f"channel {channel.number} of {connection.parameters.peer}"
        await channel.queue_declare(name, exclusive=True)
        caplog.clear()
        await channel.publish(harebell.Message(b"not in the log"), "", name)
        async with channel.consume(name, consumer_tag="c") as consumer:
            (await anext(consumer)).ack()
        assert lines(caplog)[0] == f"DEBUG {where}: publish(message=<14 bytes>, routing_key={name!r})"
        said = [line.removeprefix(f"DEBUG {where}: ") for line in lines(caplog)]
        came = f"14 bytes, exchange='', routing_key={name!r}, redelivered=False"
        assert f"DEBUG delivery 1 to consumer 'c': {came}" in said
        assert "ack(delivery_tag=1)" in said
        assert "not in the log" not in caplog.text


async def test_what_is_skipped_is_an_error(harebell_url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    async with harebell.connect(harebell_url) as other, other.channel() as channel:
        await channel.queue_declare(name)
        async with harebell.connect(harebell_url, recovery=FAST) as connection, connection.channel() as robust:
            await robust.queue_declare(name)
            with connection.test().reconnect_blocked():
                signal = connection.test().signal_on_reconnect()
                await channel.queue_delete(name)
                await channel.queue_declare(name, durable=True)
            await signal.wait()
        await channel.queue_delete(name)
    errors_ = [line for line in lines(caplog) if line.startswith("ERROR")]
    assert len(errors_) == 1
    assert errors_[0].startswith(f"ERROR not put back after the reconnect: queue {name!r}: ")


async def test_without_it_the_log_is_empty(harebell_url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "harebell.client")
    middlewares = Middlewares().without("logging")
    async with harebell.connect(harebell_url, recovery=FAST, middleware=middlewares) as connection:
        async with connection.channel() as channel:
            await channel.queue_declare(name, exclusive=True)
            await connection.test().force_reconnect()
    assert lines(caplog) == []

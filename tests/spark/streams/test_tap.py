"""A tap takes nothing from the consumers of a queue, and gets what they get."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harebell.client.blocking import Channel, connect
from harebell.errors import InvalidArgument, NotFound, PreconditionFailed
from harebell.spark.streams.tap import TapBinding, tap
from tests.spark.conftest import Broker


@pytest.fixture
def channel(broker: Broker) -> Iterator[Channel]:
    with connect(broker.url, timeout=30.0) as connection, connection.channel() as channel:
        yield channel


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_the_bindings_of_a_queue_are_copied(broker: Broker, channel: Channel) -> None:
    work = broker.queue("classic")
    channel.exchange_declare(f"{work}.e", "topic", auto_delete=True)
    channel.queue_bind(work, f"{work}.e", "orders.#")
    channel.exchange_declare(f"{work}.h", "headers", auto_delete=True)
    channel.queue_bind(work, f"{work}.h", "", arguments={"x-match": "all", "k": 1})
    done = tap(broker.url, work)
    broker.forget_later(done.stream)
    assert done.stream == f"{work}.tap"
    assert sorted(done.bindings, key=lambda each: each.exchange) == [
        TapBinding(f"{work}.e", "orders.#"),
        TapBinding(f"{work}.h", "", {"x-match": "all", "k": 1}),
    ]
    assert tap(broker.url, work) == done
    channel.confirm_select()
    for key in ("orders.1", "orders.2", "other"):
        channel.publish(b"x", f"{work}.e", key)
    assert broker.ready(work) == broker.ready(done.stream) == 2


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_what_cannot_be_tapped(broker: Broker, channel: Channel) -> None:
    work = broker.queue("classic")
    with pytest.raises(InvalidArgument, match="has no binding"):
        tap(broker.url, work)
    channel.exchange_declare(f"{work}.hash", "x-consistent-hash", auto_delete=True)
    channel.queue_bind(work, f"{work}.hash", "1")
    with pytest.raises(InvalidArgument, match=r"type x-consistent-hash.*in place of a consumer"):
        tap(broker.url, work)
    with pytest.raises(NotFound):
        tap(broker.url, "no such queue")
    with pytest.raises(InvalidArgument, match="either a queue"):
        tap(broker.url)
    with pytest.raises(InvalidArgument, match="copied as they are"):
        tap(broker.url, work, routing_keys=["a"])


def test_an_exchange_is_tapped(broker: Broker, channel: Channel) -> None:
    name = broker.queue("classic")
    channel.exchange_declare(f"{name}.e", "direct", auto_delete=True)
    channel.queue_bind(name, f"{name}.e", "a")
    done = tap(broker.url, exchange=f"{name}.e", routing_keys=["a", "b", "a"], stream=f"{name}.s", max_bytes=10**9)
    broker.forget_later(done.stream)
    assert done.bindings == (TapBinding(f"{name}.e", "a"), TapBinding(f"{name}.e", "b"))
    channel.confirm_select()
    for key in ("a", "b"):
        channel.publish(b"x", f"{name}.e", key)
    assert broker.ready(name) == 1
    with connect(broker.url, timeout=30.0) as connection, connection.channel() as reading:
        taps = reading.consume(done.stream, prefetch=10, arguments={"x-stream-offset": "first"})
        taps.start()
        assert len(taps.receive(1) + taps.receive(1)) == 2
    with pytest.raises(PreconditionFailed):
        tap(broker.url, exchange=f"{name}.e", stream=f"{name}.s", max_age=None)
    with pytest.raises(NotFound):
        tap(broker.url, exchange=f"{name}.none")
    with pytest.raises(InvalidArgument, match="default exchange"):
        tap(broker.url, exchange="")


@pytest.mark.rabbitmq
@pytest.mark.parametrize("broker", ["rabbitmq_server"], indirect=True)
def test_rabbitmq_wants_its_bindings_named(broker: Broker) -> None:
    with pytest.raises(InvalidArgument, match="the exchange and its routing keys"):
        tap(broker.url, broker.queue("classic"))


def test_the_example_of_the_how_to_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "spark-tap.md").read_text()
    [code] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(compile(code, "spark-tap.md", "exec"), {})
    assert capsys.readouterr().out == "orders.tap [('amq.topic', 'orders.#')]\n"

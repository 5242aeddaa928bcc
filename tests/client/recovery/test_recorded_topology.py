"""What is remembered of a topology, and what is forgotten."""

from __future__ import annotations

import asyncio
import gc
import types
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import harebell
from harebell.broker import Broker
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Message
from harebell.client.recovery.recorded_topology import Topology, described
from harebell.protocol.v091 import Method, methods as m
from tests.fixtures.profiles import scaled


def topology(*requests: Method, scope: str = "all") -> Topology:
    made = Topology(scope)  # type: ignore[arg-type]
    for request in requests:
        name = request.queue or "amq.gen-1" if isinstance(request, m.QueueDeclare) else ""
        made.record(request, m.QueueDeclareOk(name, 0, 0))
    return made


def planned(made: Topology) -> list[str]:
    return [described(entity) for part in made.plan() for entity in part]


QUEUE, OTHER = m.QueueDeclare("q", durable=True), m.QueueDeclare("other", auto_delete=True)
EXCHANGE, SECOND = m.ExchangeDeclare("x", "topic", durable=True), m.ExchangeDeclare("y", "fanout", auto_delete=True)


def test_dependency_order() -> None:
    made = topology(m.QueueBind("q", "x", "k"), m.ExchangeBind("x", "y", "k"), QUEUE, EXCHANGE, SECOND)
    assert planned(made) == [
        "exchange 'x'",
        "exchange 'y'",
        "queue 'q'",
        "binding of exchange 'x' to 'y' with key 'k'",
        "binding of queue 'q' to 'x' with key 'k'",
    ]


def test_questions_leave_no_trace() -> None:
    assert planned(topology(m.QueueDeclare("q", passive=True), m.ExchangeDeclare("x", passive=True))) == []


def test_unbinding_forgets_that_binding_and_no_other() -> None:
    binds = [
        m.QueueBind("q", "x", "a"),
        m.QueueBind("q", "x", "b"),
        m.QueueBind("q", "y", "a"),
        m.QueueBind("other", "x", "a"),
        m.ExchangeBind("q", "x", "a"),  # an exchange of that name
    ]
    made = topology(*binds, m.QueueUnbind("q", "x", "a"))
    assert made.plan()[2] == [binds[4], *binds[1:4]]
    made.record(m.ExchangeUnbind("q", "x", "a"), m.ExchangeUnbindOk())
    assert made.plan()[2] == binds[1:4]


def test_bindings_that_differ_in_their_arguments_alone() -> None:
    red, blue = m.QueueBind("q", "h", arguments={"colour": "red"}), m.QueueBind("q", "h", arguments={"colour": "blue"})
    made = topology(red, blue)
    assert made.plan()[2] == [red, blue]
    made.record(m.QueueUnbind("q", "h", arguments={"colour": "red"}), m.QueueUnbindOk())
    assert made.plan()[2] == [blue]


def test_a_deleted_queue_goes_with_its_bindings() -> None:
    made = topology(QUEUE, OTHER, m.QueueBind("q", "x", "k"), m.QueueBind("other", "x", "k"), m.QueueDelete("q"))
    assert planned(made) == ["queue 'other'", "binding of queue 'other' to 'x' with key 'k'"]


def test_a_deleted_exchange_goes_with_the_bindings_at_both_ends() -> None:
    made = topology(
        EXCHANGE, SECOND, QUEUE,
        m.QueueBind("q", "x"), m.ExchangeBind("x", "y"), m.ExchangeBind("z", "x"), m.QueueBind("q", "z"),
        m.ExchangeDelete("x"),
    )  # fmt: skip
    # y deletes itself with the last binding from it
    assert planned(made) == ["queue 'q'", "binding of queue 'q' to 'z' with key ''"]


def test_an_auto_delete_queue_goes_with_its_last_consumer() -> None:
    made = topology(QUEUE, OTHER, SECOND, m.QueueBind("other", "y"))
    for queue in ("other", "other", "q"):
        made.consuming(queue)
    made.consumer_gone("other")
    assert "queue 'other'" in planned(made)
    made.consumer_gone("other")
    made.consumer_gone("q")
    assert planned(made) == ["queue 'q'"]  # and with it the last binding of the auto-delete exchange, and that


def test_an_auto_delete_exchange_goes_with_its_last_binding() -> None:
    made = topology(SECOND, QUEUE, m.QueueBind("q", "y", "a"), m.QueueBind("q", "y", "b"), m.QueueUnbind("q", "y", "a"))
    assert "exchange 'y'" in planned(made)
    made.record(m.QueueUnbind("q", "y", "b"), m.QueueUnbindOk())
    assert planned(made) == ["queue 'q'"]


def test_the_transient_part() -> None:
    made = topology(
        QUEUE, OTHER, m.QueueDeclare("mine", durable=True, exclusive=True), EXCHANGE, SECOND,
        m.QueueBind("q", "x"), m.QueueBind("mine", "x"), m.QueueBind("q", "y"), m.ExchangeBind("x", "unknown"),
        scope="transient",
    )  # fmt: skip
    assert planned(made) == [
        "exchange 'y'",
        "queue 'other'",
        "queue 'mine'",
        "binding of queue 'mine' to 'x' with key ''",
        "binding of queue 'q' to 'y' with key ''",
    ]


def test_nothing_at_all() -> None:
    assert planned(topology(QUEUE, EXCHANGE, scope="none")) == []


def test_a_renamed_queue_is_found_under_the_name_the_program_knows() -> None:
    made = topology(m.QueueDeclare("", exclusive=True))
    assert list(made.queues) == ["amq.gen-1"]
    made.renamed["amq.gen-1"] = "amq.gen-2"
    assert made.translated(m.QueueBind("amq.gen-1", "x")) == m.QueueBind("amq.gen-2", "x")
    assert made.translated(m.BasicConsume("amq.gen-1", "c")) == m.BasicConsume("amq.gen-2", "c")
    assert made.translated(m.QueueBind("q", "x")) == m.QueueBind("q", "x")
    made.record(m.QueueDelete("amq.gen-1"), m.QueueDeleteOk())
    assert (made.queues, made.renamed, made.server_named) == ({}, {}, set())


Round = Callable[[Connection, Channel, str], Coroutine[Any, Any, object]]
PAIRS: dict[str, Round] = {}


def pair(function: Round) -> None:
    PAIRS[function.__name__] = function


@pair
async def bind_and_unbind(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_bind("kept", "amq.topic", name)
    await channel.queue_unbind("kept", "amq.topic", name)


@pair
async def declare_and_delete_a_queue_with_a_binding(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_declare(name)
    await channel.queue_bind(name, "amq.topic", name)
    await channel.queue_delete(name)


@pair
async def declare_and_delete_a_server_named_queue(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_delete((await channel.queue_declare("", exclusive=True)).name)


@pair
async def an_auto_delete_queue_and_its_consumer(connection: Connection, channel: Channel, name: str) -> None:
    await channel.queue_declare(name, auto_delete=True)
    async with channel.consume(name):
        pass


@pair
async def declare_and_delete_an_exchange(connection: Connection, channel: Channel, name: str) -> None:
    await channel.exchange_declare(name, "fanout")
    await channel.exchange_bind(name, "amq.topic", name)
    await channel.exchange_delete(name)


@pair
async def bind_and_unbind_an_auto_delete_exchange(connection: Connection, channel: Channel, name: str) -> None:
    await channel.exchange_declare(name, "fanout", auto_delete=True)
    await channel.queue_bind("kept", name, "")
    await channel.queue_unbind("kept", name, "")


@pair
async def bind_and_unbind_exchanges(connection: Connection, channel: Channel, name: str) -> None:
    await channel.exchange_bind("amq.fanout", "amq.topic", name)
    await channel.exchange_unbind("amq.fanout", "amq.topic", name)


@pair
async def open_and_close_a_channel(connection: Connection, channel: Channel, name: str) -> None:
    async with connection.channel() as another:
        await another.queue_declare("kept")


@pair
async def publish_and_get(connection: Connection, channel: Channel, name: str) -> None:
    await channel.publish(Message(name.encode(), message_id=name), "", "kept")
    delivery = await channel.get("kept")
    assert delivery is not None
    delivery.ack()


@pair
async def notify_and_stop(connection: Connection, channel: Channel, name: str) -> None:
    channel.notify_return(print)()


@pytest.mark.repeats
@pytest.mark.parametrize("name", PAIRS)
async def test_what_is_undone_leaves_nothing_behind(name: str) -> None:
    async with Broker() as broker, harebell.connect(broker.url) as connection, connection.channel() as channel:
        await channel.queue_declare("kept")
        await channel.confirm_select()

        async def rounds(count: int) -> int:
            for n in range(count):
                await PAIRS[name](connection, channel, f"{name}.{count}.{n}")
            gc.collect()
            return items_of(connection)

        few = await rounds(20)
        assert await rounds(scaled(1000)) - few < 500


def items_of(root: object) -> int:
    """How many items the containers have that the object leads to, the loop, frames and code left out."""
    seen, left, count = {id(root)}, [root], 0
    while left:
        item = left.pop()
        if isinstance(item, dict | list | set | deque):
            count += len(item)
        for other in gc.get_referents(item):
            foreign = isinstance(other, FOREIGN) or (isinstance(other, dict) and "__spec__" in other)
            if id(other) not in seen and not foreign:
                seen.add(id(other))
                left.append(other)
    return count


FOREIGN = (type, types.ModuleType, types.CodeType, types.FrameType, asyncio.AbstractEventLoop, asyncio.Task)

"""Every hook: called by the real operation, with its arguments, which it may change, like the result; or it raises.

`CALLS` and `EVENTS` walk the whole table of hooks; a hook that is missing in them fails the first test.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import pytest

import harebell
from harebell import errors
from harebell.client import events as e
from harebell.client.channel import METHODS as CHANNEL_METHODS, Channel
from harebell.client.connection import METHODS as CONNECTION_METHODS, Connection
from harebell.client.core.settlement import Settlement
from harebell.client.middleware import hooks as h
from harebell.client.middleware.hooks import HOOKS
from harebell.client.middleware.registry import Middlewares
from harebell.client.middleware.transports import WireChannel, WireConnection
from harebell.protocol.v091 import methods as m
from tests.client.outages import FAST, eventually

pytestmark = pytest.mark.pure


class Bench:
    """A connection and a channel with middlewares, a queue of the test's own, and all that goes over the wire."""

    def __init__(self, connection: Connection, channel: Channel, other: Channel, name: str) -> None:
        self.connection = connection
        self.channel = channel
        self.other = other
        self.name = name
        self.sent: list[m.Method] = []
        self._spy(connection)

    def _spy(self, connection: Connection) -> None:
        engine = connection.recovery.availability.transport.engine
        send = engine.send_method

        def sending(channel: int, method: m.Method) -> None:
            self.sent.append(method)
            send(channel, method)

        engine.send_method = sending  # type: ignore[method-assign]

    async def delivery(self) -> harebell.Delivery:
        """A message to acknowledge."""
        await self.other.publish(b"m", "", self.name)
        async with asyncio.timeout(60):
            while True:
                found = await self.channel.get(self.name)
                if found is not None:
                    return found

    async def count(self, queue: str) -> int:
        return (await self.other.queue_declare(queue, passive=True)).message_count


@asynccontextmanager
async def bench(url: str, name: str, middlewares: Middlewares) -> AsyncIterator[Bench]:
    async with (
        harebell.connect(url, timeout=10) as plain,
        plain.channel() as other,
        harebell.connect(url, timeout=10, recovery=FAST, middleware=middlewares) as connection,
    ):
        await other.confirm_select()
        for queue in (name, f"{name}.other"):
            await other.queue_declare(queue)
        await other.exchange_declare(f"{name}.x")
        try:
            yield Bench(connection, await connection.channel(), other, name)
        finally:
            if not connection.is_closed:
                await Connection.close(connection)  # around a middleware of `close`
            for queue in (name, f"{name}.other"):
                await other.queue_delete(queue)
            await other.exchange_delete(f"{name}.x")


Doing = Callable[[Bench], Awaitable[object]]


@dataclass
class Call:
    """do      what the program does
    sees    what the middleware sees of the arguments
    change  what it makes of them
    wire    what the broker is sent then: a method and some of its fields; or
    check   what must hold then
    ready   what comes before
    """

    do: Doing
    sees: dict[str, object]
    change: dict[str, object] = field(default_factory=dict)
    wire: tuple[type[m.Method], dict[str, object]] | None = None
    check: Doing | None = None
    ready: Doing | None = None


async def _confirming(b: Bench) -> None:
    await b.channel.confirm_select()
    b.channel.confirmations()


async def _two_deliveries(b: Bench) -> None:
    await b.delivery()
    await b.delivery()


async def _consuming(b: Bench) -> None:
    b.consumers = [b.channel.consume(b.name, consumer_tag=tag) for tag in ("one", "two")]  # type: ignore[attr-defined]
    for consumer in b.consumers:  # type: ignore[attr-defined]
        await consumer.start()


async def _transactional(b: Bench) -> None:
    await b.channel.tx_select()


def _went_to_the_other(b: Bench) -> Awaitable[object]:
    async def check() -> None:
        assert await b.count(f"{b.name}.other") == 1
        assert await b.count(b.name) == 0

    return check()


async def _published_to_the_other(b: Bench) -> None:
    await b.channel.queue_inspect(b.name)  # behind what was published
    await _went_to_the_other(b)


async def _only_the_second_is_unacked(b: Bench) -> None:
    assert b.channel.core.deliveries.unacked == {2}


async def _the_second_consumer_is_gone(b: Bench) -> None:
    assert b.channel.consumer_tags == {"one"}


async def _start(b: Bench) -> None:
    await b.channel.consume(b.name, consumer_tag="c").start()


async def _sync(what: object) -> object:
    return what


async def _call(function: Callable[[], object]) -> object:
    return function()


def _nobody(*arguments: object) -> None:
    """A callback."""


CALLS: dict[str, Call] = {
    "close": Call(lambda b: b.channel.close(timeout=7), {"timeout": 7}, {"timeout": 9}, (m.ChannelClose, {})),
    "update_secret": Call(
        lambda b: b.connection.update_secret("guest", "why"),
        {"secret": "guest", "reason": "why"},
        {"reason": "other"},
        (m.ConnectionUpdateSecret, {"reason": "other"}),
    ),
    "qos": Call(
        lambda b: b.channel.qos(prefetch_count=3),
        {"prefetch_count": 3, "global_": False},
        {"prefetch_count": 4},
        (m.BasicQos, {"prefetch_count": 4}),
    ),
    "flow": Call(lambda b: b.channel.flow(True), {"active": True}, {"timeout": 5}, (m.ChannelFlow, {"active": True})),
    "confirm_select": Call(
        lambda b: b.channel.confirm_select(on_orphan="raise"),
        {"on_orphan": "raise"},
        {"on_orphan": "park"},
        check=lambda b: _call(partial(_equal, b.channel._on_orphan, "park")),
    ),
    "queue_declare": Call(
        lambda b: b.channel.queue_declare(b.name),
        {"name": "NAME", "durable": False, "passive": False},
        {"name": "NAME.other"},
        (m.QueueDeclare, {"queue": "NAME.other", "passive": False}),
    ),
    "queue_declare_passive": Call(
        lambda b: b.channel.queue_declare(b.name, passive=True),
        {"name": "NAME", "passive": True},
        {"name": "NAME.other"},
        (m.QueueDeclare, {"queue": "NAME.other", "passive": True}),
    ),
    "queue_inspect": Call(
        lambda b: b.channel.queue_inspect(b.name),
        {"name": "NAME"},
        {"name": "NAME.other"},
        (m.QueueDeclare, {"queue": "NAME.other", "passive": True}),
    ),
    "queue_delete": Call(
        lambda b: b.channel.queue_delete(b.name, if_empty=True),
        {"name": "NAME", "if_empty": True},
        {"if_unused": True},
        (m.QueueDelete, {"queue": "NAME", "if_unused": True, "if_empty": True}),
    ),
    "queue_bind": Call(
        lambda b: b.channel.queue_bind(b.name, f"{b.name}.x", "k"),
        {"queue": "NAME", "exchange": "NAME.x", "binding_key": "k"},
        {"binding_key": "other"},
        (m.QueueBind, {"routing_key": "other"}),
    ),
    "queue_unbind": Call(
        lambda b: b.channel.queue_unbind(b.name, f"{b.name}.x", "k"),
        {"queue": "NAME", "exchange": "NAME.x", "binding_key": "k"},
        {"binding_key": "other"},
        (m.QueueUnbind, {"routing_key": "other"}),
    ),
    "queue_purge": Call(
        lambda b: b.channel.queue_purge(b.name),
        {"name": "NAME"},
        {"name": "NAME.other"},
        (m.QueuePurge, {"queue": "NAME.other"}),
    ),
    "exchange_declare": Call(
        lambda b: b.channel.exchange_declare(f"{b.name}.y", "fanout", auto_delete=True),
        {"name": "NAME.y", "type": "fanout", "passive": False},
        {"name": "NAME.x", "type": "direct", "auto_delete": False},
        (m.ExchangeDeclare, {"exchange": "NAME.x", "type": "direct"}),
    ),
    "exchange_declare_passive": Call(
        lambda b: b.channel.exchange_declare(f"{b.name}.x", passive=True),
        {"name": "NAME.x", "passive": True},
        {"name": "amq.direct"},
        (m.ExchangeDeclare, {"exchange": "amq.direct", "passive": True}),
    ),
    "exchange_delete": Call(
        lambda b: b.channel.exchange_delete(f"{b.name}.y"),
        {"name": "NAME.y", "if_unused": False},
        {"if_unused": True},
        (m.ExchangeDelete, {"if_unused": True}),
    ),
    "exchange_bind": Call(
        lambda b: b.channel.exchange_bind(f"{b.name}.x", "amq.direct", "k"),
        {"destination": "NAME.x", "source": "amq.direct", "binding_key": "k"},
        {"source": "amq.fanout"},
        (m.ExchangeBind, {"source": "amq.fanout"}),
    ),
    "exchange_unbind": Call(
        lambda b: b.channel.exchange_unbind(f"{b.name}.x", "amq.direct", "k"),
        {"destination": "NAME.x", "source": "amq.direct", "binding_key": "k"},
        {"source": "amq.fanout"},
        (m.ExchangeUnbind, {"source": "amq.fanout"}),
    ),
    "publish": Call(
        lambda b: b.channel.publish(b"m", "", b.name),
        {"message": b"m", "exchange": "", "routing_key": "NAME", "mandatory": False, "immediate": False},
        {"routing_key": "NAME.other"},
        check=_published_to_the_other,
    ),
    "send": Call(
        lambda b: b.channel.send(b"m", "", b.name),
        {"message": b"m", "routing_key": "NAME"},
        {"routing_key": "NAME.other"},
        check=_published_to_the_other,
        ready=_confirming,
    ),
    "publish_nowait": Call(
        lambda b: _sync(b.channel.publish_nowait(b"m", "", b.name)),
        {"message": b"m", "routing_key": "NAME"},
        {"routing_key": "NAME.other"},
        check=_published_to_the_other,
    ),
    "publish_many": Call(
        lambda b: b.channel.publish_many([harebell.Publication(b"m", "", b.name)], window=3),
        {"window": 3},
        {"publications": [harebell.Publication(b"m", "", "NAME.other")]},
        check=_published_to_the_other,
    ),
    "get": Call(
        lambda b: b.channel.get(b.name, no_ack=True),
        {"queue": "NAME", "no_ack": True},
        {"queue": "NAME.other"},
        (m.BasicGet, {"queue": "NAME.other"}),
    ),
    "consume": Call(
        lambda b: _sync(b.channel.consume(b.name, prefetch=5)),
        {"queue": "NAME", "prefetch": 5, "no_ack": False},
        {"queue": "NAME.other"},
        check=lambda b: _sync(None),  # `test_consume` looks at the consumer
    ),
    "subscribe": Call(
        _start,
        {"queue": "NAME", "consumer_tag": "c", "again": False, "prefetch": None},
        {"queue": "NAME.other"},
        (m.BasicConsume, {"queue": "NAME.other"}),
    ),
    "cancel": Call(
        lambda b: b.consumers[0].cancel(),  # type: ignore[attr-defined]
        {"consumer_tag": "one"},
        {"consumer_tag": "two"},
        check=_the_second_consumer_is_gone,
        ready=_consuming,
    ),
    "ack": Call(
        lambda b: _call(partial(b.channel.ack, 2)),
        {"delivery_tag": 2, "multiple": False},
        {"delivery_tag": 1},
        check=_only_the_second_is_unacked,
        ready=_two_deliveries,
    ),
    "nack": Call(
        lambda b: _call(partial(b.channel.nack, 2, requeue=False)),
        {"delivery_tag": 2, "multiple": False, "requeue": False},
        {"delivery_tag": 1},
        check=_only_the_second_is_unacked,
        ready=_two_deliveries,
    ),
    "reject": Call(
        lambda b: _call(partial(b.channel.reject, 2)),
        {"delivery_tag": 2, "requeue": False},
        {"delivery_tag": 1},
        check=_only_the_second_is_unacked,
        ready=_two_deliveries,
    ),
    "recover": Call(
        lambda b: b.channel.recover(requeue=False),
        {"requeue": False},
        {"requeue": True},
        (m.BasicRecover, {"requeue": True}),
    ),
    "tx_select": Call(lambda b: b.channel.tx_select(timeout=3), {"timeout": 3}, {"timeout": 4}, (m.TxSelect, {})),
    "tx_commit": Call(
        lambda b: b.channel.tx_commit(timeout=3), {"timeout": 3}, {"timeout": 4}, (m.TxCommit, {}), ready=_transactional
    ),
    "tx_rollback": Call(
        lambda b: b.channel.tx_rollback(timeout=3),
        {"timeout": 3},
        {"timeout": 4},
        (m.TxRollback, {}),
        ready=_transactional,
    ),
}
for _name, _count in (
    ("notify_close", 1), ("notify_dial", 1), ("notify_disconnect", 1), ("notify_publish", 1), ("notify_confirm", 2),
    ("notify_confirm_or_orphaned", 3), ("notify_return", 1), ("notify_cancel", 1), ("notify_flow", 1),
):  # fmt: skip

    def _listen(b: Bench, name: str = _name, count: int = _count) -> Awaitable[object]:
        return _sync(getattr(b.channel, name)(*[_nobody] * count))

    _first = fields(HOOKS[_name].record)[1].name  # type: ignore[arg-type]
    CALLS[_name] = Call(_listen, {_first: _nobody}, {_first: print}, check=lambda b: _sync(None))

# The tests of these two stand below: nothing but a loss calls them.
RECONNECTS = {"connection_reconnect", "channel_reconnect"}
ELSEWHERE = {"handle"}  # tests/client/patterns/test_handling.py


def _equal(one: object, other: object) -> None:
    assert one == other


def named(value: object, name: str) -> object:
    """NAME stands for the name of the test's queue."""
    if isinstance(value, str):
        return value.replace("NAME", name)
    if isinstance(value, list):
        return [harebell.Publication(p.message, p.exchange, p.routing_key.replace("NAME", name)) for p in value]
    return value


def around(hook: str, seen: list[Any], before: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    """A middleware that notes its arguments, and makes `before(args)` of them."""
    if HOOKS[hook].kind == "async":

        async def awaited(call_next: Callable[[Any], Awaitable[object]], args: Any) -> object:
            seen.append(args)
            return await call_next(args if before is None else before(args))

        return awaited

    def plain(call_next: Callable[[Any], object], args: Any) -> object:
        seen.append(args)
        return call_next(args if before is None else before(args))

    return plain


def test_every_hook_is_walked() -> None:
    events = {name for name, hook in HOOKS.items() if hook.kind == "event"}
    assert set(CALLS) | RECONNECTS | ELSEWHERE == set(HOOKS) - events
    assert {name for name, _ in EVENTS} == events
    originals = [hook for hook in HOOKS.values() if hook.original]
    assert len([hook for hook in originals if "connection" in hook.levels]) == 8
    assert len([hook for hook in originals if "channel" in hook.levels]) == 42


@pytest.mark.parametrize("name", [name for name, hook in HOOKS.items() if hook.kind != "event"])
def test_a_record_has_the_parameters_of_its_method(name: str) -> None:
    hook = HOOKS[name]
    method = name.removesuffix("_passive")
    homes: list[type] = [Channel] if "channel" in hook.levels else []
    if "connection" in hook.levels:
        homes.append(Connection)
    if name in RECONNECTS | ELSEWHERE | {"subscribe"}:
        assert not any(hasattr(home, name) for home in homes)
        return
    for home in homes:
        methods = CHANNEL_METHODS if home is Channel else CONNECTION_METHODS
        assert method in (*methods, "ack", "nack", "reject")
        wanted = list(inspect.signature(getattr(home, method)).parameters.values())[1:]
        record = inspect.signature(hook.record).parameters.values()  # type: ignore[arg-type]
        got = [p for p in record if p.name != h.where_of(hook.record)]  # type: ignore[arg-type]
        key = [(p.name, p.default, p.kind) for p in wanted]
        assert sorted(map(str, key)) == sorted(str((p.name, p.default, p.kind)) for p in got)
        assert [p.name for p in wanted if p.kind is p.POSITIONAL_OR_KEYWORD] == [
            p.name for p in got if p.kind is p.POSITIONAL_OR_KEYWORD
        ]


def test_every_method_of_a_middleware_has_a_hook() -> None:
    assert {*CHANNEL_METHODS, *CONNECTION_METHODS, "ack", "nack", "reject"} <= set(HOOKS)


def test_hooks_of_acknowledgements_have_the_parameters_of_the_core() -> None:
    for name in ("ack", "nack", "reject"):
        assert inspect.signature(getattr(Channel, name)) == inspect.signature(getattr(Settlement, name))


@pytest.mark.parametrize("hook", CALLS)
async def test_it_is_called_with_the_arguments(harebell_url: str, name: str, hook: str) -> None:
    seen: list[Any] = []
    case = CALLS[hook]
    async with bench(harebell_url, name, Middlewares().add(hook, around(hook, seen))) as b:
        if case.ready is not None:
            await case.ready(b)
        seen.clear()
        await case.do(b)
        assert len(seen) == 1
        assert isinstance(seen[0], HOOKS[hook].record)  # type: ignore[arg-type]
        assert {key: getattr(seen[0], key) for key in case.sees} == {
            key: named(value, name) for key, value in case.sees.items()
        }
        where = getattr(seen[0], h.where_of(HOOKS[hook].record))  # type: ignore[arg-type]
        assert where is (b.connection if hook == "update_secret" else b.channel)


@pytest.mark.parametrize("hook", CALLS)
async def test_it_may_change_the_arguments(harebell_url: str, name: str, hook: str) -> None:
    case = CALLS[hook]
    change = {key: named(value, name) for key, value in case.change.items()}
    seen: list[Any] = []
    innermost: list[Any] = []
    middlewares = Middlewares().add(hook, around(hook, seen, lambda args: replace(args, **change)))
    middlewares.add(hook, around(hook, innermost))
    async with bench(harebell_url, name, middlewares) as b:
        if case.ready is not None:
            await case.ready(b)
        b.sent.clear()
        await case.do(b)
        assert innermost[-1] == replace(seen[-1], **change)
        if case.wire is not None:
            kind, wanted = case.wire
            sent = [method for method in b.sent if isinstance(method, kind)]
            assert len(sent) == 1
            assert {key: getattr(sent[0], key) for key in wanted} == {
                key: named(value, name) for key, value in wanted.items()
            }
        else:
            assert case.check is not None
            await case.check(b)


@pytest.mark.parametrize("hook", CALLS)
async def test_it_may_change_the_result_or_give_one_itself(harebell_url: str, name: str, hook: str) -> None:
    case, result, calling = CALLS[hook], object(), False

    async def awaited(call_next: Callable[[Any], Awaitable[object]], args: Any) -> object:
        return result if calling else await call_next(args)

    def plain(call_next: Callable[[Any], object], args: Any) -> object:
        return result if calling else call_next(args)

    async with bench(
        harebell_url, name, Middlewares().add(hook, awaited if HOOKS[hook].kind == "async" else plain)
    ) as b:
        if case.ready is not None:
            await case.ready(b)
        b.sent.clear()
        before = (await b.count(name), await b.count(f"{name}.other"), set(b.channel.core.deliveries.unacked))
        calling = True
        # These stand inside of what the program calls, which has no result of its own.
        assert await case.do(b) is (None if hook in ("subscribe", "cancel", "ack", "nack", "reject") else result)
        calling = False
        assert not [method for method in b.sent if not isinstance(method, m.ChannelClose)]
        await b.channel.queue_inspect(name)
        assert before == (await b.count(name), await b.count(f"{name}.other"), set(b.channel.core.deliveries.unacked))


@pytest.mark.parametrize("hook", CALLS)
async def test_it_may_raise(harebell_url: str, name: str, hook: str) -> None:
    case, raising = CALLS[hook], False

    async def awaited(call_next: Callable[[Any], Awaitable[object]], args: Any) -> object:
        if raising:
            raise LookupError("not today")
        return await call_next(args)

    def plain(call_next: Callable[[Any], object], args: Any) -> object:
        if raising:
            raise LookupError("not today")
        return call_next(args)

    async with bench(
        harebell_url, name, Middlewares().add(hook, awaited if HOOKS[hook].kind == "async" else plain)
    ) as b:
        if case.ready is not None:
            await case.ready(b)
        b.sent.clear()
        raising = True
        with pytest.raises(LookupError, match="not today"):
            await case.do(b)
        raising = False
        assert not b.sent
        await b.channel.queue_inspect(name)  # the channel is as usable as before


async def test_consume_gives_the_consumer_of_the_changed_queue(harebell_url: str, name: str) -> None:
    seen: list[Any] = []
    middlewares = Middlewares().add("consume", around("consume", seen, lambda a: replace(a, queue=f"{name}.other")))
    async with bench(harebell_url, name, middlewares) as b:
        await b.other.publish(b"m", "", f"{name}.other")
        async with asyncio.timeout(60), b.channel.consume(name) as consumer:
            assert (await anext(consumer)).body == b"m"


async def test_what_stands_above_the_channels_passes_the_hooks(harebell_url: str, name: str) -> None:
    seen: list[Any] = []
    middlewares = Middlewares()
    for hook in ("publish", "send", "publish_nowait", "publish_many"):
        middlewares.add(hook, around(hook, seen))
    async with bench(harebell_url, name, middlewares) as b:
        async with b.connection.producer() as producer:
            await producer.publish(b"one", name)
            await producer.publish_many([harebell.Publication(b"two", "", name)])
        assert [args.message for args in seen] == [b"one", b"two"]


async def test_close_of_a_connection(harebell_url: str, name: str) -> None:
    seen: list[Any] = []
    async with bench(harebell_url, name, Middlewares().add("close", around("close", seen))) as b:
        await b.connection.close(timeout=5)
        await b.channel.close()  # closed with it: no error, but a call
        assert [(args.timeout, args.source) for args in seen] == [(5, b.connection), (None, b.channel)]
    seen.clear()
    connection_only = Middlewares().add("close", around("close", seen), level="connection")
    async with harebell.connect(harebell_url, middleware=connection_only) as connection:
        async with connection.channel():
            pass
        assert seen == []
    assert len(seen) == 1


@pytest.mark.parametrize("hook", ["notify_close", "notify_dial", "notify_disconnect"])
async def test_asking_a_connection(harebell_url: str, name: str, hook: str) -> None:
    seen: list[Any] = []
    other: list[Any] = []

    def instead(call_next: Callable[[Any], object], args: Any) -> object:
        seen.append(args)
        return call_next(replace(args, callback=other.append))

    heard: list[Any] = []
    async with bench(harebell_url, name, Middlewares().add(hook, instead, level="connection")) as b:
        stop = getattr(b.connection, hook)(heard.append)
        assert [(args.callback, args.source) for args in seen] == [(heard.append, b.connection)]
        await b.connection.test().force_reconnect()
        told = len(other)
        assert told == (0 if hook == "notify_close" else 1)
        stop()
        await b.connection.test().force_reconnect()
        await b.connection.close()
        assert len(other) == told
        assert not heard


async def test_asking_what_is_closed_already(harebell_url: str, name: str) -> None:
    async with bench(harebell_url, name, Middlewares()) as b:
        await b.channel.close()
        heard: list[Any] = []
        b.channel.notify_close(heard.append)
        assert [event.source for event in heard] == [b.channel]


async def test_a_callback_that_fails_is_logged(harebell_url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []

    def fail(event: object) -> None:
        raise LookupError("a mistake in a callback")

    async with bench(harebell_url, name, Middlewares()) as b:
        b.channel.notify_flow(fail)
        b.channel.notify_flow(lambda event: heard.append(event.active))
        await b.channel.test().force_reconnect()
        assert heard == [False, True]
    assert "a mistake in a callback" in caplog.text


async def test_an_abandoned_publication_is_told_of_all_the_same(harebell_url: str, name: str) -> None:
    heard: list[int] = []
    async with bench(harebell_url, name, Middlewares()) as b:
        await b.channel.confirm_select()
        b.channel.notify_publish(lambda confirmation: heard.append(confirmation.publish_tag))
        waiting = asyncio.ensure_future(b.channel.publish(b"m", "", name))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await b.channel.publish(b"m", "", name)
        assert heard == [1, 2]


async def test_an_acknowledgement_of_the_delivery_itself(harebell_url: str, name: str) -> None:
    """A delivery knows its wire channel; the middleware stands there too, and on the ones that follow."""
    seen: list[Any] = []
    async with bench(harebell_url, name, Middlewares().add("ack", around("ack", seen))) as b:
        (await b.delivery()).ack()
        await b.channel.test().force_reconnect()
        (await b.delivery()).ack()
        assert [args.delivery_tag for args in seen] == [1, 2]


async def test_connection_reconnect(harebell_url: str, name: str) -> None:
    seen: list[Any] = []
    wires: list[WireConnection] = []

    async def reconnect(call_next: Callable[[Any], Awaitable[WireConnection]], args: Any) -> WireConnection:
        seen.append(args)
        if len(seen) == 1:
            raise LookupError("not at the first attempt")
        wire = await call_next(args)
        wire.skipped.append(e.Skipped("mine", errors.NotFound("gone")))
        wires.append(wire)
        return wire

    async with bench(harebell_url, name, Middlewares().add("connection_reconnect", reconnect)) as b:
        events = b.connection.events()
        await b.connection.test().force_reconnect()
        assert [args.attempt for args in seen] == [1, 2]
        assert "a middleware failed in connection_reconnect: LookupError('not at the first" in str(seen[1].error)
        assert wires[0].peer == b.connection.parameters.peer
        assert wires[0].server_properties["product"]
        recovered = [event for event in events.waiting if isinstance(event, e.Recovered)]
        assert [skip.entity for skip in recovered[0].skipped] == ["mine"]


async def test_channel_reconnect(harebell_url: str, name: str) -> None:
    seen: list[Any] = []

    async def reconnect(call_next: Callable[[Any], Awaitable[WireChannel]], args: Any) -> WireChannel:
        seen.append(args)
        wire = await call_next(args)
        answer = await wire.request(m.QueueDeclare(name, passive=True))
        assert isinstance(answer, m.QueueDeclareOk)
        assert wire.number == b.channel.number
        return wire

    async with bench(harebell_url, name, Middlewares().add("channel_reconnect", reconnect)) as b:
        await b.channel.test().force_reconnect()
        await b.connection.test().force_reconnect()
        assert [(args.attempt, args.alone) for args in seen] == [(1, True), (1, False)]
        assert all("the test cut" in str(args.error) for args in seen)
        await b.channel.queue_inspect(name)


@pytest.mark.parametrize("mistake", ["raise", "nothing"])
async def test_a_middleware_that_cannot_put_a_channel_back_ends_it(harebell_url: str, name: str, mistake: str) -> None:
    async def reconnect(call_next: Callable[[Any], Awaitable[WireChannel]], args: Any) -> object:
        await call_next(args)
        if mistake == "raise":
            raise LookupError("never")
        return None

    async with bench(harebell_url, name, Middlewares().add("channel_reconnect", reconnect)) as b:
        closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        b.channel.notify_close(lambda event: closed.set_result(str(event.error)))
        b.channel.test().disconnect_transport()
        async with asyncio.timeout(60):
            assert "channel_reconnect" in await closed
        assert b.channel.is_closed
        assert not b.connection.is_closed


async def test_next_may_be_called_twice(harebell_url: str, name: str) -> None:
    """What was opened first is closed again."""

    async def twice(call_next: Callable[[Any], Awaitable[object]], args: Any) -> object:
        await call_next(args)
        return await call_next(args)

    middlewares = Middlewares().add("channel_reconnect", twice).add("connection_reconnect", twice)
    async with bench(harebell_url, name, middlewares) as b:
        await b.channel.test().force_reconnect()
        await b.connection.test().force_reconnect()
        await b.channel.queue_inspect(name)
        transport = b.connection.recovery.availability.transport
        assert len(transport.channels) <= 2  # the first one's close may still be on its way


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass
class Happening:
    """listen   gives a list of what the program hears
    cause    makes it happen
    other    what the middleware makes of it
    differs  whether what was heard is that
    """

    listen: Callable[[Bench], list[Any]]
    cause: Doing
    other: Callable[[Any], Any]
    differs: Callable[[Any], bool]


def listening(method: str, level: str = "channel") -> Callable[[Bench], list[Any]]:
    def listen(b: Bench) -> list[Any]:
        heard: list[Any] = []
        getattr(getattr(b, level), method)(heard.append)
        return heard

    return listen


def listening_to_confirms(method: str, count: int) -> Callable[[Bench], list[Any]]:
    def listen(b: Bench) -> list[Any]:
        heard: list[Any] = []
        callbacks = [lambda tag, kind=kind: heard.append((kind, tag)) for kind in ("ack", "nack", "orphaned")]
        getattr(b.channel, method)(*callbacks[:count])
        return heard

    return listen


async def _publish_confirmed(b: Bench) -> None:
    await b.channel.confirm_select()
    await b.channel.publish(b"m", "", b.name)


async def _publish_in_vain(b: Bench) -> None:
    await b.channel.publish(b"m", "", "nowhere at all", mandatory=True)
    await b.channel.queue_inspect(b.name)


async def _lose_the_queue(b: Bench) -> None:
    async with b.channel.consume(b.name) as consumer:
        await b.other.queue_delete(b.name)
        with pytest.raises(errors.ConsumerCancelled):
            await anext(consumer)


def _consumer(b: Bench) -> list[Any]:
    b.consumer = b.channel.consume(b.name, no_ack=True)  # type: ignore[attr-defined]
    return b.consumer.subscription.buffer  # type: ignore[attr-defined,no-any-return]


def _reader(b: Bench) -> list[Any]:
    b.reader = b.connection.events()  # type: ignore[attr-defined]
    return b.reader.waiting  # type: ignore[attr-defined,no-any-return]


async def _deliver(b: Bench) -> None:
    await b.consumer.start()  # type: ignore[attr-defined]
    await b.channel.publish(b"m", "", b.name)
    await b.channel.publish(b"last", "", b.name)

    async def both_came() -> bool:
        await b.channel.queue_inspect(b.name)
        return b.channel.statistics().delivered == 2

    await eventually(both_came)


_CHANNEL_LOSS: Doing = lambda b: b.channel.test().force_reconnect()  # noqa: E731
_CONNECTION_LOSS: Doing = lambda b: b.connection.test().force_reconnect()  # noqa: E731

EVENTS: dict[tuple[str, str], Happening] = {
    ("dial_event", "connection"): Happening(
        listening("notify_dial", "connection"),
        _CONNECTION_LOSS,
        lambda event: replace(event, target="other"),
        lambda event: event.target == "other",
    ),
    ("dial_event", "channel"): Happening(
        listening("notify_dial"),
        _CHANNEL_LOSS,
        lambda event: replace(event, target="other"),
        lambda event: event.target == "other",
    ),
    ("disconnect_event", "connection"): Happening(
        listening("notify_disconnect", "connection"),
        _CONNECTION_LOSS,
        lambda event: replace(event, error=errors.DataLoss("other")),
        lambda event: str(event.error) == "other",
    ),
    ("disconnect_event", "channel"): Happening(
        listening("notify_disconnect"),
        _CHANNEL_LOSS,
        lambda event: replace(event, error=errors.DataLoss("other")),
        lambda event: str(event.error) == "other",
    ),
    ("close_event", "connection"): Happening(
        listening("notify_close", "connection"),
        lambda b: b.connection.close(),
        lambda event: replace(event, error=errors.DataLoss("other")),
        lambda event: str(event.error) == "other",
    ),
    ("close_event", "channel"): Happening(
        listening("notify_close"),
        lambda b: b.channel.close(),
        lambda event: replace(event, error=errors.DataLoss("other")),
        lambda event: str(event.error) == "other",
    ),
    ("event", "connection"): Happening(
        _reader,
        _CONNECTION_LOSS,
        lambda event: e.Connecting("other"),
        lambda event: event == e.Connecting("other"),
    ),
    ("publish_event", "channel"): Happening(
        listening("notify_publish"),
        _publish_confirmed,
        lambda event: harebell.Confirmation(99, False),
        lambda event: event.publish_tag == 99,
    ),
    ("confirm_event", "channel"): Happening(
        listening_to_confirms("notify_confirm", 2),
        _publish_confirmed,
        lambda event: harebell.Confirmation(99, False),
        lambda event: event == ("nack", 99),
    ),
    ("confirm_or_orphaned_event", "channel"): Happening(
        listening_to_confirms("notify_confirm_or_orphaned", 3),
        _publish_confirmed,
        lambda event: harebell.Confirmation(99, False, orphaned=True),
        lambda event: event == ("orphaned", 99),
    ),
    ("return_event", "channel"): Happening(
        listening("notify_return"),
        _publish_in_vain,
        lambda event: harebell.Returned(event._content, 1, "other", "", ""),
        lambda event: event.reply_text == "other",
    ),
    ("cancel_event", "channel"): Happening(
        listening("notify_cancel"),
        _lose_the_queue,
        lambda event: replace(event, consumer_tag="other"),
        lambda event: event.consumer_tag == "other",
    ),
    ("flow_event", "channel"): Happening(
        listening("notify_flow"),
        _CHANNEL_LOSS,
        lambda event: replace(event, active=7),
        lambda event: event.active == 7,
    ),
    ("delivery_event", "channel"): Happening(
        _consumer,
        _deliver,
        lambda event: _stamped(event),
        lambda event: event.consumer_tag == "other",
    ),
}


def _stamped(delivery: harebell.Delivery) -> harebell.Delivery:
    delivery.consumer_tag = "other"
    return delivery


@pytest.mark.parametrize("hook, level", EVENTS)
@pytest.mark.parametrize("what", ["see", "replace", "drop", "raise", "raise late"])
async def test_an_event(
    harebell_url: str, name: str, hook: str, level: Any, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = EVENTS[hook, level]
    seen: list[Any] = []
    on = False

    def middleware(call_next: Callable[[Any], None], event: Any) -> None:
        if not on:
            call_next(event)
            return
        seen.append(event)
        if what == "raise":
            raise LookupError("a mistake in a middleware")
        if what != "drop":
            call_next(case.other(event) if what == "replace" else event)
        if what == "raise late":
            raise LookupError("a mistake in a middleware")

    async with bench(harebell_url, name, Middlewares().add(hook, middleware, level=level)) as b:
        heard = case.listen(b)
        on = True
        await case.cause(b)
        on = False
        assert seen
        source = HOOKS[hook].record
        if isinstance(source, type):
            assert isinstance(seen[0], source)
        if what == "drop":
            assert len(heard) == 0
        else:
            assert len(heard) == len(seen)  # each once, and in spite of a mistake
            assert all(case.differs(event) for event in heard) == (what == "replace")
        assert ("a mistake in a middleware" in caplog.text) == what.startswith("raise")
    caplog.set_level(logging.NOTSET)

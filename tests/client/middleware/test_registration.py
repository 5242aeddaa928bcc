"""Registering middlewares: functions, providers, one for all, in their order; what is refused, and how it is said."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from types import MethodType
from typing import Any, cast

import pytest

import harebell
from harebell import errors, middleware as mw
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import QueueInfo
from harebell.client.middleware.registry import FEATURES, Middlewares
from tests.client.outages import FAST


def noting(log: list[str], word: str) -> Callable[..., Any]:
    async def note(call_next: Callable[[Any], Awaitable[Any]], args: Any) -> Any:
        log.append(f"> {word}")
        result = await call_next(args)
        log.append(f"< {word}")
        return result

    return note


class Counter:
    """A provider."""

    id = "counter"

    def __init__(self) -> None:
        self.count = 0

    async def queue_inspect(
        self, call_next: mw.Next[mw.QueueInspectArgs, QueueInfo], args: mw.QueueInspectArgs
    ) -> QueueInfo:
        self.count += 1
        return await call_next(args)

    def helper(self) -> None:
        """No hook: not called."""


class Dials:
    """A provider with a hook of connections and channels."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.heard: list[mw.DialEvent] = []

    def dial_event(self, call_next: mw.Pass[mw.DialEvent], event: mw.DialEvent) -> None:
        self.heard.append(event)
        call_next(event)


async def test_first_registered_is_called_first(harebell_url: str) -> None:
    log: list[str] = []
    middlewares = Middlewares().add("queue_inspect", noting(log, "a")).add("queue_inspect", noting(log, "b"))
    more = Middlewares().add("queue_inspect", noting(log, "c"))
    async with harebell.connect(harebell_url, middleware=middlewares) as connection:
        async with connection.channel(middleware=more) as channel, connection.channel() as plain:
            await channel.queue_declare("q", exclusive=True)
            await channel.queue_inspect("q")
            assert log == ["> a", "> b", "> c", "< c", "< b", "< a"]
            log.clear()
            await plain.queue_inspect("q")
            assert log == ["> a", "> b", "< b", "< a"]


async def test_a_method_without_middlewares_is_the_bare_one(harebell_url: str) -> None:
    async with harebell.connect(harebell_url) as connection, connection.channel() as channel:
        for name in ("publish", "send", "publish_nowait", "publish_many", "get", "consume", "ack", "nack", "reject"):
            assert getattr(type(channel), name) is getattr(Channel, name)
            assert name not in channel.core.__dict__
        assert type(channel).queue_declare is not Channel.queue_declare  # the feature topology
        assert type(connection) is Connection
        assert type(await connection.channel()) is type(channel)
        # More attributes than the interpreter keeps in one place would make each method slower to find.
        assert len(channel.__dict__) < 30
        assert channel.core.observer is None
        assert cast("MethodType", channel.core.publish).__func__ is type(channel.core).publish
        consumer = channel.consume("q")
        assert consumer.subscription.deliver is None


async def test_a_provider_is_fresh_for_each_channel(harebell_url: str) -> None:
    async with harebell.connect(harebell_url, middleware=Middlewares().add_provider(Counter)) as connection:
        one, two = await connection.channel(), await connection.channel()
        await one.queue_declare("q", exclusive=True)
        await one.queue_inspect("q")
        await one.queue_inspect("q")
        await two.queue_inspect("q")
        counters = [channel.test().provider("counter") for channel in (one, two)]
        assert [counter.count for counter in counters if isinstance(counter, Counter)] == [2, 1]
        with pytest.raises(AssertionError, match="no provider 'counter' serves this; there are logging, topology"):
            connection.test().provider("counter")  # it has no hook of a connection's


async def test_one_provider_for_any_number_of_channels(harebell_url: str) -> None:
    counter = Counter()
    middlewares = Middlewares().add_shared(counter)
    for _ in range(2):
        async with harebell.connect(harebell_url, middleware=middlewares) as connection:
            for _ in range(3):
                async with connection.channel() as channel:
                    await channel.queue_declare("q", exclusive=True)
                    await channel.queue_inspect("q")
                    assert channel.test().provider("counter") is counter
    assert counter.count == 6


@pytest.mark.parametrize("per, made", [("transport", 3), ("connection", 1), ("channel", 2)])
async def test_how_many_a_factory_makes(
    harebell_url: str, monkeypatch: pytest.MonkeyPatch, per: Any, made: int
) -> None:
    monkeypatch.setattr(Dials, "made", 0)
    middlewares = Middlewares().add_provider(Dials, per=per)
    async with harebell.connect(harebell_url, recovery=FAST, middleware=middlewares) as connection:
        channels = [await connection.channel() for _ in range(2)]
        await connection.test().force_reconnect()
        assert Dials.made == made
        heard = {id(d): d for channel in channels if isinstance(d := channel.test().provider("Dials"), Dials)}
        if per != "channel":
            own = connection.test().provider("Dials")
            assert isinstance(own, Dials)
            heard[id(own)] = own
        assert len(heard) == made
        sources = [event.source for dials in heard.values() for event in dials.heard]
        # The connection: at first, and again. A channel has no first dial of its own.
        assert sources.count(connection) == (0 if per == "channel" else 2)
        assert [sources.count(channel) for channel in channels] == [1, 1]


async def test_the_hooks_of_a_factory_that_is_no_class(harebell_url: str) -> None:
    middlewares = Middlewares().add_provider(functools.partial(Counter), id="mine")
    async with harebell.connect(harebell_url, middleware=middlewares) as connection, connection.channel() as channel:
        assert isinstance(channel.test().provider("mine"), Counter)

    def empty() -> object:
        return object()

    with pytest.raises(errors.InvalidArgument, match="provider 'empty' has no method that is named like a hook"):
        async with harebell.connect(harebell_url, middleware=Middlewares().add_provider(empty)):
            pass


async def test_a_provider_may_be_any_object(harebell_url: str) -> None:
    log: list[str] = []

    class Anything:
        def __init__(self) -> None:
            self.queue_inspect = noting(log, "an attribute")

    async with harebell.connect(harebell_url, middleware=Middlewares().add_shared(Anything())) as connection:
        async with connection.channel() as channel:
            await channel.queue_declare("q", exclusive=True)
            await channel.queue_inspect("q")
    assert log == ["> an attribute", "< an attribute"]


async def test_what_is_registered_later_has_no_effect(harebell_url: str) -> None:
    log: list[str] = []
    middlewares = Middlewares()
    async with harebell.connect(harebell_url, middleware=middlewares) as connection:
        middlewares.add("queue_inspect", noting(log, "late"))
        async with connection.channel() as channel:
            await channel.queue_declare("q", exclusive=True)
            await channel.queue_inspect("q")
    assert log == []


async def awaited(call_next: Any, args: Any) -> Any:
    return await call_next(args)


def plain(call_next: Any, args: Any) -> Any:
    return call_next(args)


class AwaitedAck:
    async def ack(self, call_next: Any, args: Any) -> None: ...


class OneArgument:
    async def qos(self, args: Any) -> None: ...


@pytest.mark.parametrize(
    "register, text",
    [
        (lambda: Middlewares().add("queue_declear", awaited), "no hook 'queue_declear': did you mean queue_declare or"),
        (lambda: Middlewares().add("zzz", awaited), "there is no hook 'zzz'$"),
        (lambda: Middlewares().add("qos", awaited, level="connection"), "'qos' stands on a channel only"),
        (lambda: Middlewares().add("ack", awaited), "is called without await: awaited must be a plain function"),
        (lambda: Middlewares().add("dial_event", awaited), "is called without await"),
        (lambda: Middlewares().add("qos", lambda args: None), "must take \\(call_next, args\\)"),
        (lambda: Middlewares().add("dial_event", lambda: None), "must take \\(call_next, event\\)"),
        (lambda: Middlewares().add("qos", 7), "7 cannot be called"),  # type: ignore[arg-type]
        (lambda: Middlewares().add_provider(int), "provider 'int' has no method that is named like a hook"),
        (lambda: Middlewares().add_shared(object()), "provider 'object' has no method"),
        (lambda: Middlewares().add_provider(AwaitedAck), "'ack' is called without await: AwaitedAck.ack must be"),
        (lambda: Middlewares().add_provider(OneArgument), "'qos': OneArgument.qos.* must take"),
        (lambda: Middlewares().add_provider(Counter()), "is no factory: give its class, or use add_shared"),  # type: ignore[arg-type]
        (lambda: Middlewares().add_shared(Counter), "Counter is a class: give an object, or use add_provider"),
        (lambda: Middlewares().add_provider(lambda: Counter()), "has no name: give id="),
        (lambda: Middlewares().add_provider(Counter, per="queue"), "transport, connection or channel is needed"),  # type: ignore[arg-type]
        (lambda: Middlewares().add_provider(Counter).add_shared(Counter()), "with id 'counter' is registered"),
        (lambda: Middlewares().without("topologie"), "no feature 'topologie': did you mean topology"),
    ],
)
def test_what_is_refused(register: Callable[[], object], text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        register()


async def test_what_is_no_middlewares(harebell_url: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="which takes functions and providers"):
        await harebell.connect(harebell_url, middleware=awaited)  # type: ignore[arg-type]
    async with harebell.connect(harebell_url) as connection:
        with pytest.raises(errors.InvalidArgument, match="which takes functions and providers"):
            await connection.channel(middleware=[awaited])  # type: ignore[arg-type]


async def test_ids_and_features(harebell_url: str) -> None:
    taken = Middlewares().add_provider(Counter, id="topology")
    with pytest.raises(errors.InvalidArgument, match="two providers have the id 'topology'; a feature of that name"):
        await harebell.connect(harebell_url, middleware=taken)
    async with harebell.connect(harebell_url, middleware=taken.without("topology")) as connection:
        async with connection.channel() as channel:
            assert isinstance(channel.test().provider("topology"), Counter)
        with pytest.raises(errors.InvalidArgument, match="two providers have the id 'topology'"):
            await connection.channel(middleware=Middlewares().add_provider(Counter, id="topology"))


async def test_what_stands_on_a_connection_is_refused_on_a_channel(harebell_url: str) -> None:
    async with harebell.connect(harebell_url) as connection:
        with pytest.raises(errors.InvalidArgument, match="'update_secret' stands on a connection: register it with"):
            await connection.channel(middleware=Middlewares().add("update_secret", awaited))
        with pytest.raises(errors.InvalidArgument, match="'close' stands on a connection"):
            await connection.channel(middleware=Middlewares().add("close", awaited, level="connection"))
        with pytest.raises(errors.InvalidArgument, match="'counter' is one per connection"):
            await connection.channel(middleware=Middlewares().add_provider(Counter, per="connection"))
        assert not connection.recovery.channels


async def test_every_feature_is_a_provider(harebell_url: str) -> None:
    async with harebell.connect(harebell_url) as connection, connection.channel() as channel:
        assert all(channel.test().provider(feature) is not None for feature in FEATURES)
        assert connection.test().provider("topology") is channel.test().provider("topology")
        assert channel.test().provider("qos") is not None
    bare = Middlewares().without(*FEATURES)
    async with harebell.connect(harebell_url, middleware=bare) as connection, connection.channel() as channel:
        assert not channel.chains.providers
        assert type(channel) is Channel
        await channel.queue_declare("q", exclusive=True)
        await channel.publish(b"m", "", "q")
        assert (await channel.get("q", no_ack=True)) is not None

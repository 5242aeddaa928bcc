"""The blocking API has the methods of the asyncio API, with the same parameters, types and docstrings."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from harebell import blocking, events as e
from harebell.client import channel, confirms, connection, consumer, harness
from harebell.client.patterns import dead_letters, outbox, pools, producer, reader, rpc, workers

PAIRS = [
    (connection.Connection, blocking.Connection),
    (channel.Channel, blocking.Channel),
    (consumer.Consumer, blocking.Consumer),
    (confirms.Confirmations, blocking.Confirmations),
    (confirms.Bulk, blocking.Bulk),
    (e.Events, blocking.Events),
    (harness.ConnectionHarness, blocking.ConnectionHarness),
    (harness.ChannelHarness, blocking.ChannelHarness),
    (harness.ReconnectSignal, blocking.ReconnectSignal),
    (producer.Producer, blocking.Producer),
    (outbox.Relay, blocking.Relay),
    (dead_letters.DeadLetters, blocking.DeadLetters),
    (rpc.Rpc, blocking.Rpc),
    (workers.Workers, blocking.Workers),
    (workers.Workers, blocking.Server),
    (reader.QueueReader, blocking.QueueReader),
    (pools.Pool, blocking.ChannelPool),
    (pools.Pool, blocking.ConnectionPool),
]

# The known differences.
# The client calls these on the asyncio objects; no program does.
INTERNAL: dict[type, set[str]] = {
    confirms.Confirmations: {"settle", "returned", "refused", "orphaned", "end", "put"},
    confirms.Bulk: {"begin", "settle", "returned", "refused", "orphaned"},
    e.Events: {"put"},
}
# What the client calls on others of its own. `acquire` gives a block; `take` stands for awaiting it.
ASYNCIO_ONLY: dict[type, set[str]] = {
    connection.Connection: {"stream", "super_stream"},
    producer.Producer: {"channel", "has_room", "begin"},
    pools.Pool: {"acquire"},
    workers.Workers: {"take_no_more"},
    reader.QueueReader: {"consumer", "take", "batch", "goes_on", "renew"},
}
# Functions that a thread calls, and not the loop; a thread cannot be given up after a time.
OTHERWISE: dict[type, set[str]] = {
    connection.Connection: {"consume", "serve", "channel_pool", "rpc"},
    rpc.Rpc: {"call"},
    pools.Pool: {"release"},
}
# Attributes of the asyncio objects are properties here.
MORE: dict[type, set[str]] = {
    blocking.Channel: {"parked"},
    blocking.Bulk: {"settled", "returns", "refusals"},
    blocking.DeadLetters: {"close"},
    blocking.ChannelPool: {"acquire", "take"},
    blocking.ConnectionPool: {"acquire", "take"},
    blocking.Relay: {"published", "refused"},
}
DUNDERS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
TYPES = {
    "Opening[Channel]": "Channel",
    "Opening[Session]": "Session",
    "e.Events": "Events",
    "AsyncIterator[None]": "Iterator[None]",
    " | AsyncIterable[Publication]": "",
    "Event": "e.Event",
}


def public(cls: type) -> dict[str, Any]:
    """Its methods and properties."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__[:-1]):
        found.update(vars(base))
    return {
        name: member
        for name, member in found.items()
        if (inspect.isfunction(member) or isinstance(member, property))
        and (name in DUNDERS or name in DUNDERS.values() or not name.startswith("_"))
    }


def shape(member: Any) -> list[object]:
    """A property's or a method's parameters and types, as the blocking API spells them."""
    function: Any = member.fget if isinstance(member, property) else member
    signature = inspect.signature(function)
    parts: list[object] = [isinstance(member, property)]
    for parameter in signature.parameters.values():
        parts += [parameter.name, parameter.kind, parameter.default, spelled(parameter.annotation)]
    return [*parts, spelled(signature.return_annotation)]


def spelled(annotation: object) -> str:
    text = str(annotation)
    for theirs, ours in TYPES.items():
        text = ours if text == theirs else text.replace(theirs, ours) if theirs.startswith(" ") else text
    return text


@pytest.mark.parametrize("model, twin", PAIRS, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_both_have_the_same_members(model: type, twin: type) -> None:
    theirs = public(model)
    left_out = INTERNAL.get(model, set()) | ASYNCIO_ONLY.get(model, set())
    assert left_out <= theirs.keys()
    wanted = {DUNDERS.get(name, name): member for name, member in theirs.items() if name not in left_out}
    ours = public(twin)
    assert sorted(ours.keys() - MORE.get(twin, set())) == sorted(wanted)
    for name, member in wanted.items():
        if name not in OTHERWISE.get(model, ()):
            assert shape(ours[name]) == shape(member), name
        assert not inspect.iscoroutinefunction(ours[name])
        assert ours[name].__doc__ or name.startswith("__") or not member.__doc__, name


def test_both_connect_alike() -> None:
    theirs, ours = inspect.signature(connection.connect), inspect.signature(blocking.connect)
    assert ours.parameters == theirs.parameters
    assert theirs.return_annotation == f"Opening[{ours.return_annotation}]"

"""The blocking API: the asyncio client for programs that have no loop, usable from any thread.

    with harebell.blocking.connect("amqp://guest:guest@localhost/") as connection, connection.channel() as channel:
        for delivery in channel.consume("work", prefetch=500):
            ...
            delivery.ack()

It has the names, arguments and errors of the asyncio API, without `await`, and nothing of its own but the thread that
it runs on: recovery, deadlines, confirms and numbers are the same code. In addition a consumer gives its deliveries in
batches (`Consumer.receive`). `sessions` is the same for AMQP 0-10. The modules are named as their counterparts in
`harebell.client`. Methods that only forward are generated (`forwarded_...`); the rules of threads stand at the top of
`thread`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from harebell.client.blocking.channel import Channel
from harebell.client.blocking.confirms import Bulk, Confirmations
from harebell.client.blocking.connection import Connection, connect
from harebell.client.blocking.consumer import Consumer
from harebell.client.blocking.events import Events
from harebell.client.blocking.harness import ChannelHarness, ConnectionHarness, ReconnectSignal

if TYPE_CHECKING:
    from harebell.client.blocking import sessions as sessions
    from harebell.client.blocking.patterns.dead_letters import DeadLetters as DeadLetters
    from harebell.client.blocking.patterns.pools import ChannelPool as ChannelPool, ConnectionPool as ConnectionPool
    from harebell.client.blocking.patterns.producer import Pending as Pending, Producer as Producer, Relay as Relay
    from harebell.client.blocking.patterns.reader import QueueReader as QueueReader
    from harebell.client.blocking.patterns.rpc import Rpc as Rpc, Server as Server
    from harebell.client.blocking.patterns.workers import Workers as Workers

__all__ = [
    "Bulk",
    "Channel",
    "ChannelHarness",
    "ChannelPool",
    "Confirmations",
    "Connection",
    "ConnectionHarness",
    "ConnectionPool",
    "Consumer",
    "DeadLetters",
    "Events",
    "Pending",
    "Producer",
    "QueueReader",
    "ReconnectSignal",
    "Relay",
    "Rpc",
    "Server",
    "Workers",
    "connect",
    "sessions",
]


_PATTERNS: Final = {
    "ChannelPool": "pools",
    "ConnectionPool": "pools",
    "DeadLetters": "dead_letters",
    "Pending": "producer",
    "Producer": "producer",
    "QueueReader": "reader",
    "Relay": "producer",
    "Rpc": "rpc",
    "Server": "rpc",
    "Workers": "workers",
}


def __getattr__(name: str) -> object:
    if name == "sessions":  # loads the other dialect, which few programs need
        return import_module("harebell.client.blocking.sessions")
    if name in _PATTERNS:
        value: object = getattr(import_module(f"harebell.client.blocking.patterns.{_PATTERNS[name]}"), name)
        return value
    raise AttributeError(f"module 'harebell.client.blocking' has no attribute {name!r}")

"""AMQP for Python, whole: a broker, a robust client, a channel layer and Spark pipelines.

`import harebell` loads nothing else but what chooses the build; a name is loaded with its module at the first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from harebell.builds import choose

if TYPE_CHECKING:
    from harebell import (
        blocking as blocking,
        errors as errors,
        events as events,
        middleware as middleware,
        sessions as sessions,
    )
    from harebell.client.channel import Channel as Channel
    from harebell.client.connection import Connection as Connection, connect as connect
    from harebell.client.connection_pool import ConnectionPool as ConnectionPool
    from harebell.client.messages import (
        Confirmation as Confirmation,
        Delivery as Delivery,
        Message as Message,
        Publication as Publication,
        QueueInfo as QueueInfo,
        Returned as Returned,
    )
    from harebell.client.patterns.codec import JSON as JSON, Codec as Codec
    from harebell.client.patterns.outbox import Outbox as Outbox, OutboxEntry as OutboxEntry, Relay as Relay
    from harebell.client.patterns.pending import Pending as Pending
    from harebell.client.patterns.pools import ChannelPool as ChannelPool
    from harebell.client.patterns.postgres_outbox import PostgresOutbox as PostgresOutbox
    from harebell.client.patterns.producer import Producer as Producer
    from harebell.client.patterns.reader import QueueReader as QueueReader
    from harebell.client.patterns.retry import DeadLetter as DeadLetter, Retry as Retry
    from harebell.client.patterns.rpc import Rpc as Rpc
    from harebell.client.patterns.server import Server as Server
    from harebell.client.patterns.sqlite_outbox import SQLiteOutbox as SQLiteOutbox
    from harebell.client.patterns.streams.offsets import FileOffsets as FileOffsets, QueueOffsets as QueueOffsets
    from harebell.client.patterns.streams.reader import StreamReader as StreamReader
    from harebell.client.patterns.streams.super_stream import SuperStream as SuperStream
    from harebell.client.patterns.workers import Workers as Workers
    from harebell.client.recovery.policy import Backoff as Backoff, Recovery as Recovery
    from harebell.client.settling import Reject as Reject, Requeue as Requeue
    from harebell.protocol.v091.methods import Properties as Properties

__all__ = [
    "connect",
    "Connection",
    "Channel",
    "Message",
    "Publication",
    "Delivery",
    "Returned",
    "QueueInfo",
    "Confirmation",
    "Properties",
    "Recovery",
    "Backoff",
    "blocking",
    "JSON",
    "Codec",
    "Producer",
    "Pending",
    "SQLiteOutbox",
    "PostgresOutbox",
    "Relay",
    "Outbox",
    "OutboxEntry",
    "Workers",
    "QueueReader",
    "StreamReader",
    "SuperStream",
    "FileOffsets",
    "QueueOffsets",
    "Retry",
    "DeadLetter",
    "Reject",
    "Requeue",
    "Rpc",
    "Server",
    "ChannelPool",
    "ConnectionPool",
    "errors",
    "events",
    "middleware",
    "sessions",
]

__version__ = "0.1.0"

build: Final = choose(__path__[0])  # before any other module of the package

_MODULES: Final = ("blocking", "errors", "events", "middleware", "sessions")
_HOMES: Final = {
    "connect": "harebell.client.connection",
    "Connection": "harebell.client.connection",
    "Channel": "harebell.client.channel",
    "Message": "harebell.client.messages",
    "Publication": "harebell.client.messages",
    "Delivery": "harebell.client.messages",
    "Returned": "harebell.client.messages",
    "QueueInfo": "harebell.client.messages",
    "Confirmation": "harebell.client.messages",
    "Properties": "harebell.protocol.v091.methods",
    "Recovery": "harebell.client.recovery.policy",
    "Backoff": "harebell.client.recovery.policy",
    "JSON": "harebell.client.patterns.codec",
    "Codec": "harebell.client.patterns.codec",
    "Producer": "harebell.client.patterns.producer",
    "Pending": "harebell.client.patterns.pending",
    "SQLiteOutbox": "harebell.client.patterns.sqlite_outbox",
    "PostgresOutbox": "harebell.client.patterns.postgres_outbox",
    "Relay": "harebell.client.patterns.outbox",
    "Outbox": "harebell.client.patterns.outbox",
    "OutboxEntry": "harebell.client.patterns.outbox",
    "Workers": "harebell.client.patterns.workers",
    "QueueReader": "harebell.client.patterns.reader",
    "StreamReader": "harebell.client.patterns.streams.reader",
    "SuperStream": "harebell.client.patterns.streams.super_stream",
    "FileOffsets": "harebell.client.patterns.streams.offsets",
    "QueueOffsets": "harebell.client.patterns.streams.offsets",
    "Retry": "harebell.client.patterns.retry",
    "DeadLetter": "harebell.client.patterns.retry",
    "Reject": "harebell.client.settling",
    "Requeue": "harebell.client.settling",
    "Rpc": "harebell.client.patterns.rpc",
    "Server": "harebell.client.patterns.server",
    "ChannelPool": "harebell.client.patterns.pools",
    "ConnectionPool": "harebell.client.connection_pool",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"harebell.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'harebell' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

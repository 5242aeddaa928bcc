"""AMQP for Python, whole: a broker, a robust client, a channel layer and Spark pipelines.

`import warren` loads nothing else; a name is loaded with its module at the first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from warren import errors as errors
    from warren.client import blocking as blocking, events as events
    from warren.client.channel import Channel as Channel
    from warren.client.codec import JSON as JSON, Codec as Codec
    from warren.client.connection import Connection as Connection, connect as connect
    from warren.client.pending import Pending as Pending
    from warren.client.pools import ChannelPool as ChannelPool, ConnectionPool as ConnectionPool
    from warren.client.producer import Producer as Producer
    from warren.client.reader import QueueReader as QueueReader
    from warren.client.records import (
        Confirmation as Confirmation,
        Delivery as Delivery,
        Message as Message,
        Publication as Publication,
        QueueInfo as QueueInfo,
        Returned as Returned,
    )
    from warren.client.recovery import Backoff as Backoff, Recovery as Recovery
    from warren.client.retry import DeadLetter as DeadLetter, Retry as Retry
    from warren.client.rpc import Rpc as Rpc, Server as Server
    from warren.client.settling import Reject as Reject, Requeue as Requeue
    from warren.client.workers import Workers as Workers
    from warren.protocol.v091.methods import Properties as Properties

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
    "Workers",
    "QueueReader",
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
]

__version__ = "0.1.0"

_HOMES: Final = {
    "connect": "warren.client.connection",
    "Connection": "warren.client.connection",
    "Channel": "warren.client.channel",
    "Message": "warren.client.records",
    "Publication": "warren.client.records",
    "Delivery": "warren.client.records",
    "Returned": "warren.client.records",
    "QueueInfo": "warren.client.records",
    "Confirmation": "warren.client.records",
    "Properties": "warren.protocol.v091.methods",
    "Recovery": "warren.client.recovery",
    "Backoff": "warren.client.recovery",
    "JSON": "warren.client.codec",
    "Codec": "warren.client.codec",
    "Producer": "warren.client.producer",
    "Pending": "warren.client.pending",
    "Workers": "warren.client.workers",
    "QueueReader": "warren.client.reader",
    "Retry": "warren.client.retry",
    "DeadLetter": "warren.client.retry",
    "Reject": "warren.client.settling",
    "Requeue": "warren.client.settling",
    "Rpc": "warren.client.rpc",
    "Server": "warren.client.rpc",
    "ChannelPool": "warren.client.pools",
    "ConnectionPool": "warren.client.pools",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        return import_module("warren.errors")
    if name in ("blocking", "events"):
        return import_module(f"warren.client.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'warren' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

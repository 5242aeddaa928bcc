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
    from warren.client.connection import Connection as Connection, connect as connect
    from warren.client.records import (
        Confirmation as Confirmation,
        Delivery as Delivery,
        Message as Message,
        Publication as Publication,
        QueueInfo as QueueInfo,
        Returned as Returned,
    )
    from warren.client.recovery import Backoff as Backoff, Recovery as Recovery
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

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
from typing import TYPE_CHECKING

from harebell.client.blocking.channel import Channel
from harebell.client.blocking.confirms import Bulk, Confirmations
from harebell.client.blocking.connection import Connection, connect
from harebell.client.blocking.consumer import Consumer
from harebell.client.blocking.events import Events
from harebell.client.blocking.harness import ChannelHarness, ConnectionHarness, ReconnectSignal

if TYPE_CHECKING:
    from harebell.client.blocking import sessions as sessions

__all__ = [
    "Bulk",
    "Channel",
    "ChannelHarness",
    "Confirmations",
    "Connection",
    "ConnectionHarness",
    "Consumer",
    "Events",
    "ReconnectSignal",
    "connect",
    "sessions",
]


def __getattr__(name: str) -> object:
    if name == "sessions":  # loads the other dialect, which few programs need
        return import_module("harebell.client.blocking.sessions")
    raise AttributeError(f"module 'harebell.client.blocking' has no attribute {name!r}")

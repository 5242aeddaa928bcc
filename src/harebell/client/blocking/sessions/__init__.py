"""The blocking API of sessions: `harebell.sessions` for programs that have no loop, usable from any thread.

    with harebell.blocking.sessions.connect(url) as connection, connection.session("orders") as session:
        with session.consume("orders") as orders:
            for order in orders:
                with session.transaction():
                    session.publish(b"...", "", "invoices")
                    order.accept()

It has the names, arguments and errors of the asyncio API, without `await`. In addition a consumer gives its deliveries
in batches (`Consumer.receive`). The rules of threads, signals and forks are those of `harebell.client.blocking.thread`.
"""

from __future__ import annotations

from harebell.client.blocking.sessions.connection import Connection, connect
from harebell.client.blocking.sessions.consumer import Consumer
from harebell.client.blocking.sessions.delivery import Delivery
from harebell.client.blocking.sessions.harness import ConnectionHarness, ReconnectSignal, SessionHarness
from harebell.client.blocking.sessions.session import Session
from harebell.client.blocking.sessions.transactions import Branch, Transaction
from harebell.client.sessions import (
    ConnectionStatistics,
    ExchangeDescription,
    QueueDescription,
    SessionStatistics,
    Xid,
)

__all__ = [
    "Branch",
    "Connection",
    "ConnectionHarness",
    "ConnectionStatistics",
    "Consumer",
    "Delivery",
    "ExchangeDescription",
    "QueueDescription",
    "ReconnectSignal",
    "Session",
    "SessionHarness",
    "SessionStatistics",
    "Transaction",
    "Xid",
    "connect",
]

"""The client of AMQP 0-10: sessions that survive their connections, in which every command is executed once.

connection      dials, and attaches sessions again
session         what a program calls; consumer, transaction, branch, messages
core            one session over all its transports: what it sent, what it waits for; one transport
"""

from harebell.client.sessions.branch import Branch, Xid
from harebell.client.sessions.connection import Connection, connect
from harebell.client.sessions.consumer import Consumer
from harebell.client.sessions.descriptions import ExchangeDescription, QueueDescription
from harebell.client.sessions.harness import ConnectionHarness, ReconnectSignal, SessionHarness
from harebell.client.sessions.messages import Delivery
from harebell.client.sessions.session import Session
from harebell.client.sessions.statistics import ConnectionStatistics, SessionStatistics
from harebell.client.sessions.transaction import Transaction

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

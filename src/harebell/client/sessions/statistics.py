"""Counters of a connection of AMQP 0-10 and of its sessions, at one moment: plain ints."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

__all__ = ["ConnectionStatistics", "SessionStatistics", "Tally", "of_ended"]

Tally = Counter[str]  # by the names of `Counters`


@dataclass(frozen=True, slots=True)
class Counters:
    """What is counted of sessions.

    published   messages, each once, however often it was sent
    refused     of these: the broker has rejected them, because they reached no queue or a queue was full
    incomplete  commands that were sent and are not complete
    resent      commands that were sent again after a loss
    delivered   messages that came
    accepted    of these; and `released`, `rejected`
    held        of these: wait to be settled
    buffered    of these: lie in a consumer's buffer
    reattached  how often a session was attached again after a loss
    lost        how often the broker no longer had the state of one
    """

    published: int = 0
    refused: int = 0
    incomplete: int = 0
    resent: int = 0
    delivered: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    held: int = 0
    buffered: int = 0
    reattached: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class SessionStatistics(Counters):
    """One session, over all connections that carried it; the subscriptions that it has now."""

    subscriptions: int = 0


@dataclass(frozen=True, slots=True)
class ConnectionStatistics(Counters):
    """One connection, over all its transports and sessions, ended ones too.

    sessions    that have not ended
    reconnects  transports after the first
    """

    sessions: int = 0
    reconnects: int = 0


_PRESENT: Final = ("incomplete", "held", "buffered")


def of_ended(tally: Tally) -> Tally:
    """What remains of a session's numbers once it has ended: nothing is under way any more."""
    return Tally({name: count for name, count in tally.items() if name not in _PRESENT})

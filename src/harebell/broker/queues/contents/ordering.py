"""The kind of backlog that a queue's settings ask for."""

from __future__ import annotations

from harebell.broker.queues.contents.backlog import Backlog
from harebell.broker.queues.contents.fairshare import FairBacklog
from harebell.broker.queues.contents.last_value import LastValueBacklog
from harebell.routing.settings import QueueSettings

__all__ = ["backlog_for"]


def backlog_for(settings: QueueSettings) -> Backlog:
    """A new backlog for a queue with these settings."""
    top = settings.max_priority or 0
    if settings.last_value_key is not None:
        return LastValueBacklog(top, settings.last_value_key)
    if settings.fairshare is not None:
        return FairBacklog(top, settings.fairshare)
    return Backlog(top)

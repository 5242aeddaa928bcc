"""The connection, as the patterns know it: it makes channels, and says what happens to it."""

from __future__ import annotations

from typing import Protocol

from harebell.client import events as e
from harebell.client.channel import Channel
from harebell.client.opening import Opening
from harebell.client.recovery.connection import ConnectionRecovery

__all__ = ["ChannelSource"]


class ChannelSource(Protocol):
    """Where a pattern takes its channels from: a `harebell.Connection`."""

    @property
    def state(self) -> str: ...
    @property
    def blocked(self) -> str | None: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def recovery(self) -> ConnectionRecovery: ...
    def channel(self, *, timeout: float | None = None) -> Opening[Channel]: ...
    def events(self) -> e.Events: ...

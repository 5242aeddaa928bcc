"""The cached targets of a connection's publications: how many there are, and of which topology.

A channel's publisher remembers where each publish frame leads (`publisher.Target`), until the topology changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harebell.broker.v091.channel import Channel

__all__ = ["CachedTargets"]

MAX_TARGETS: Final = 16_384  # distinct publish frames that all channels' caches may have: a few MB at most


class CachedTargets:
    """Of these channels; `topology` is the router's version at the time when the first was cached."""

    __slots__ = ("_channels", "_count", "topology")

    def __init__(self, channels: Mapping[int, Channel]) -> None:
        self._channels = channels
        self._count = 0
        self.topology = -1

    def remember(self) -> None:
        """Count one more; beyond the limit the channels drop them all."""
        self._count += 1
        if self._count > MAX_TARGETS:
            self.forget(self.topology)
            self._count = 1

    def forget(self, topology: int) -> None:
        """Drop them: the topology has this version now."""
        self.topology = topology
        self._count = 0
        for channel in self._channels.values():
            channel.publisher.forget_targets()

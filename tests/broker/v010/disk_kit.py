"""A node on a disk in memory, with clients of AMQP 0-10."""

from __future__ import annotations

from typing import Any

from harebell.broker.store.data_folder import LastStop
from harebell.broker.v010.sessions import Sessions
from tests.broker.disk_node import DiskNode
from tests.broker.v010.kit import Peer

__all__ = ["DiskKit"]


class DiskKit(DiskNode):
    """A node on a disk in memory, for peers."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        super().__init__()

    def start(self, last_stop: LastStop) -> None:
        for peer in self.peers:
            peer.lost = True
        super().start(last_stop)
        self.sessions = Sessions(self.node)

    def run_sync(self) -> None:
        self.commit.run()

    def run_syncs(self) -> None:
        pass

    def settle(self) -> None:
        self.node.run_timers()
        for peer in self.peers:
            peer.receive()

    def peer(self) -> Peer:
        kit: Any = self
        peer = Peer(kit)
        self.peers.append(peer)
        return peer

    def stop(self) -> None:
        """As a broker is stopped."""
        self.sessions.close()
        self.node.stop()
        self.sync()
        self.disk.kill()
        self.start(LastStop.CLEAN)

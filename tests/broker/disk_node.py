"""A node on the disk of `tests.broker.store.faults`: its syncs are run by hand, and it is killed and restarted."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from harebell.broker import batch
from harebell.broker.operations.startup import start_node
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.store.data_folder import LastStop
from harebell.broker.store.open_files import LEAST
from tests.broker.kit import Client, Clock, Stopwatch
from tests.broker.store.faults import Disk, HandCommit

__all__ = ["DiskNode"]


class DiskNode:
    """A node on a disk in memory, whose syncs are run by hand."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.disk = Disk()
        for name in ("queues", "delays", "streams"):
            self.disk.make(f"{self.folder.name}/{name}")
        self.start(LastStop.CLEAN)

    def start(self, last_stop: LastStop) -> None:
        def commit(_: object, on_synced: Any, on_failed: Any, *, sync: bool, files: Any) -> HandCommit:
            self.commit = HandCommit(files, on_failed, on_synced)
            return self.commit

        with patch.object(batch, "GroupCommit", commit):
            self.node = start_node(
                Path(self.folder.name), lambda call: call(), clock=Clock(), last_stop=last_stop, files=self.disk,
                open_files=LEAST, stopwatch=Stopwatch(),
            )  # fmt: skip
        self.client = Client(self.node)

    def restart(self, power: int | None) -> None:
        """After a kill, or after a power cut with this seed."""
        self.node.catalog.close()
        if power is None:
            self.disk.kill()
        else:
            self.disk.power_cut(Random(power))
        self.start(LastStop.KILLED if power is None else LastStop.POWER_CUT)

    def contents(self, queues: Iterable[str]) -> dict[str, list[bytes]]:
        """The bodies in each of these queues, in order, whatever they wait for. They leave it; streams are left out."""
        found: dict[str, list[bytes]] = {}
        for name in queues:
            found[name] = []
            queue = self.node.vhosts["/"].queues[name]
            if isinstance(queue, ClassicQueue):
                while queue.retry_some():
                    pass
                while (content := self.client.get(name)) is not None:
                    found[name].append(content.body)
        return found

    def sync(self) -> None:
        """Sync until nothing waits for it."""
        while self.commit._dirty and self.commit.run():
            pass

    def close(self) -> None:
        self.node.catalog.close()
        self.folder.cleanup()

"""A stand-in for fdatasync: each sync waits until the test lets it go on or fail."""

from __future__ import annotations

from queue import SimpleQueue

__all__ = ["PATIENCE", "HeldSyncs"]

PATIENCE = 30.0  # seconds; what takes that long hangs


class HeldSyncs:
    """`begun` gets the descriptor of each sync that begins; `go` takes what ends it: None, or an error to raise."""

    def __init__(self) -> None:
        self.begun: SimpleQueue[int] = SimpleQueue()
        self.go: SimpleQueue[OSError | None] = SimpleQueue()

    def fdatasync(self, fd: int) -> None:
        self.begun.put(fd)
        error = self.go.get(timeout=PATIENCE)
        if error is not None:
            raise error

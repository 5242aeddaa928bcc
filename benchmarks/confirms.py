"""How long one confirm takes, and beside it, in turn, how long the disk alone takes.

    python benchmarks/confirms.py [--count 300] [--rounds 5] [--data FOLDER]

A persistent message of 100 bytes to a durable queue, then its confirm, one at a time, through `harebell serve` on
FOLDER. Beside it, and in turn with it, the same number of bytes is appended to a file in that folder and synced with
fdatasync: no broker that confirms what is on disk can be faster. The ratio of the medians is what the broker adds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from broker import harebell_server, machine
from load import Peer, publication

from harebell.protocol.v091 import Properties, methods as m

RECORD_BYTES = 186  # what such a message takes in the log
TURN = 20  # measurements of one kind before those of the other


class Bare:
    """A file that is written and synced as a broker's log is, with nothing else around it."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / "bare", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._data, self._at = os.urandom(RECORD_BYTES), 0

    def once(self) -> None:
        os.pwrite(self._fd, self._data, self._at)
        self._at += RECORD_BYTES
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class Confirmed:
    """A publisher that waits for every confirm."""

    def __init__(self, port: int) -> None:
        self._peer, self._sent = Peer(port), 0
        self._peer.call(m.QueueDeclare("confirms", durable=True), m.QueueDeclareOk)
        self._peer.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        self._blob = publication("", "confirms", Properties(delivery_mode=2), 100)

    def once(self) -> None:
        self._sent += 1
        self._peer.socket.sendall(self._blob)
        while self._peer.confirmed < self._sent:
            self._peer.take_confirms()

    def close(self) -> None:
        self._peer.wait_count("confirms", self._sent)
        self._peer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=300, help="of each kind in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, help="a folder on the disk to measure")
    options = parser.parse_args()
    ratios = []
    print(f"{machine()}; milliseconds")
    with tempfile.TemporaryDirectory(dir=options.data) as data, harebell_server(Path(data)) as (port, _):
        bare, confirmed = Bare(Path(data)), Confirmed(port)
        for number in range(options.rounds):
            took: dict[str, list[float]] = {"fdatasync": [], "confirm": []}
            for _ in range(options.count // TURN):
                for name, once in (("fdatasync", bare.once), ("confirm", confirmed.once)):
                    for _ in range(TURN):
                        began = time.perf_counter()
                        once()
                        took[name].append((time.perf_counter() - began) * 1000)
            middle = {name: statistics.median(times) for name, times in took.items()}
            ratios.append(middle["confirm"] / middle["fdatasync"])
            bare_ms, ms = middle["fdatasync"], middle["confirm"]
            print(f"  round {number + 1}: fdatasync p50 {bare_ms:.3f}, confirm p50 {ms:.3f}, {ratios[-1]:.2f}x")
        bare.close()
        confirmed.close()
    print(f"a confirm takes {statistics.median(ratios):.2f}x one write and fdatasync (median of the rounds)")


if __name__ == "__main__":
    main()

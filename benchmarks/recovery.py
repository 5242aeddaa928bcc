"""How long `harebell serve` takes to be ready when it finds messages on disk, after a kill and after a proper stop.

    python benchmarks/recovery.py [--messages 1000000] [--queues 1000] [--size 100] [--rounds 3]

Fills durable queues with persistent messages, all confirmed, kills the broker, and then starts it again and again. Each
start is timed from the call that starts the process to its ready line, and every message must be there. The start of
an empty broker is measured in between and printed too: the difference is recovery.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from load import Peer, publication

from harebell.protocol.v091 import Properties, methods as m

READY = re.compile(r"amqp://\S+?:(\d+)/")
BATCH = 100  # messages to one queue, then to the next


class Served:
    """A broker on that folder; `seconds` until it was ready."""

    def __init__(self, folder: Path) -> None:
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harebell", "serve", "--port", "0", "--data", str(folder)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        match = READY.search(self.process.stdout.readline())
        assert match, "the broker does not start"
        self.seconds = time.perf_counter() - began
        self.port = int(match[1])

    @property
    def resident(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def end(self, number: signal.Signals) -> float:
        """End the broker with a signal; returns the seconds until it has ended."""
        began = time.perf_counter()
        self.process.send_signal(number)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return time.perf_counter() - began


def fill(port: int, names: list[str], messages: int, size: int) -> float:
    """Fill the queues; returns the seconds until all messages are confirmed."""
    peer = Peer(port)
    for name in names:
        peer.call(m.QueueDeclare(name, durable=True), m.QueueDeclareOk)
    peer.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    persistent = Properties(delivery_mode=2)
    blobs = [publication("", name, persistent, size) for name in names]
    each, more = divmod(messages, len(names))
    began = time.perf_counter()
    for start in range(0, each, BATCH):
        for blob in blobs:
            peer.socket.sendall(blob * min(BATCH, each - start))
    peer.socket.sendall(b"".join(blobs[:more]))
    while peer.confirmed < messages:
        peer.take_confirms()
    seconds = time.perf_counter() - began
    peer.close()
    return seconds


def count(port: int, names: list[str]) -> int:
    peer = Peer(port)
    found = 0
    for name in names:
        answer = peer.call(m.QueueDeclare(name, passive=True), m.QueueDeclareOk)
        assert isinstance(answer, m.QueueDeclareOk)
        found += answer.message_count
    peer.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=3, help="starts of each kind")
    options = parser.parse_args()
    names = [f"bench-{number:05}" for number in range(options.queues)]
    after_kill: list[float] = []
    after_stop: list[float] = []
    empty: list[float] = []
    stops: list[float] = []
    resident = 0
    with tempfile.TemporaryDirectory(prefix="recovery-") as folder:
        data = Path(folder) / "data"
        served = Served(data)
        seconds = fill(served.port, names, options.messages, options.size)
        served.end(signal.SIGKILL)
        size = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
        for _ in range(options.rounds):
            for times, number in ((after_kill, signal.SIGTERM), (after_stop, signal.SIGKILL)):
                served = Served(data)
                times.append(served.seconds)
                resident = max(resident, served.resident)
                found = count(served.port, names)
                assert found == options.messages, f"{found} messages of {options.messages} are there"
                stops.append(served.end(number)) if number == signal.SIGTERM else served.end(number)
            served = Served(Path(folder) / "empty")
            empty.append(served.seconds)
            served.end(signal.SIGKILL)
    million = (min(after_kill) - min(empty)) / options.messages * 1_000_000
    print(f"{options.messages:,} messages of {options.size} bytes in {options.queues:,} durable queues; {size:,} bytes")
    for what, times in (("after a kill", after_kill), ("after a stop", after_stop), ("empty", empty), ("stop", stops)):
        print(f"  {what:<14} {statistics.median(times):6.2f} s  (least {min(times):.2f}, most {max(times):.2f})")
    print(f"  {'recovery':<14} {million:6.2f} s per million messages")
    print(f"  {'resident':<14} {resident / 1e6:6.0f} MB")
    print(f"  {'filled in':<14} {seconds:6.2f} s, all confirmed")
    print(f"{platform.python_version()} on {platform.machine()}, {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())

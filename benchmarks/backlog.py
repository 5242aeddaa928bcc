"""How much memory a long durable backlog takes: while it grows, after a restart, and while it is drained.

    python benchmarks/backlog.py [--messages 5000000] [--size 1024] [--drain 1000000] [--data FOLDER]

Fills one durable queue of `harebell serve` with persistent messages, all confirmed, kills the broker, starts it again
on its data folder, and consumes some of the messages with acknowledgements. The figures are the process's peaks of
resident memory in each phase. The messages need disk space: some 6 GB with the defaults; it is freed at the end.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from broker import machine
from load import ACK_EVERY, Peer, delivery_size
from recovery import Served
from scenes import fill

from harebell.protocol.v091 import Properties, methods as m
from harebell.protocol.v091.codec import encode_method

QUEUE = "backlog"
PERSISTENT = Properties(delivery_mode=2)
PREFETCH = 2000


def peak(pid: int) -> int:
    """The most memory that the process had since the last call, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # begin anew
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def drain(port: int, count: int, size: int) -> None:
    """Take so many messages and acknowledge them, and close with nothing unacknowledged."""
    peer = Peer(port)
    peer.call(m.BasicQos(0, PREFETCH), m.BasicQosOk)
    consume = encode_method(1, m.BasicConsumeOk("0"))
    each = delivery_size("0", "", QUEUE, PERSISTENT, size)
    peer.socket.sendall(encode_method(1, m.BasicConsume(QUEUE, "0")))
    view, got, acked = bytearray(1 << 20), -len(consume), 0
    while acked < count:
        got += peer.socket.recv_into(view)
        arrived = min(got // each, count)
        if arrived - acked >= ACK_EVERY or arrived == count:
            peer.socket.sendall(encode_method(1, m.BasicAck(arrived, multiple=True)))
            acked = arrived
    peer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--drain", type=int, default=1_000_000, help="messages consumed at the end")
    parser.add_argument("--data", type=Path, help="a folder on the disk to measure")
    options = parser.parse_args()
    print(f"{machine()}; {options.messages:,} messages of {options.size:,} bytes in one durable queue")

    def report(phase: str, served: Served, seconds: float, count: int) -> None:
        print(f"  {phase:<8} {peak(served.process.pid) / 1e6:6.0f} MB at most, {seconds:7.1f} s, {count:,} messages")

    with tempfile.TemporaryDirectory(prefix="backlog-", dir=options.data) as folder:
        served = Served(Path(folder))
        try:
            report("empty", served, served.seconds, 0)
            peer, began = Peer(served.port), time.perf_counter()
            peer.call(m.QueueDeclare(QUEUE, durable=True), m.QueueDeclareOk)
            fill(peer, QUEUE, PERSISTENT, options.messages, options.size)
            peer.close()
            report("publish", served, time.perf_counter() - began, options.messages)
            served.end(signal.SIGKILL)
            served = Served(Path(folder))
            report("restart", served, served.seconds, options.messages)
            began = time.perf_counter()
            drain(served.port, options.drain, options.size)
            report("drain", served, time.perf_counter() - began, options.drain)
            Peer(served.port).wait_count(QUEUE, options.messages - options.drain)
        finally:
            served.end(signal.SIGKILL)


if __name__ == "__main__":
    main()

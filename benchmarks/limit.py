"""What the kernel alone takes for the bytes of a message, and how many times that the broker takes.

    python benchmarks/limit.py [--rounds 3] [--scale 1.0] [--only persistent] [--list] [--json FILE] [--data FOLDER]

A relay stands in the broker's place, with the same load generator. Before and after the load it speaks AMQP; during it,
it reads the publisher's bytes and writes the bytes of their deliveries, and looks at none. It reads and writes as many
bytes at a time as the broker did in the round before, by the kernel's count. For persistent messages there is the disk
beside it: one write and one fdatasync of the publisher's bytes for each read. A broker that reads and writes as much at
a time takes at least this, whatever it is written in. CPU is that of the process (user and system, all threads).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from broker import PERSISTENT, harebell_server, machine
from figures import Case as Figures, Limit, limit_table, markdown
from load import FRAME_MAX, Load, delivery_size, publication, run

from harebell.protocol.v091 import Engine, Role, methods as m
from harebell.protocol.v091.codec import encode_method
from harebell.protocol.v091.states import ConnectionState

WARM_UP = 20_000  # messages through the broker before anything is measured
SHORTEST = 4096  # bytes of a read and a write of the relay, at least
PUBLISH = b"\0\x3c\0\x28"  # the ids of basic.publish, where a frame has those of its method
IDS = slice(7, 11)


@dataclass(frozen=True)
class Chunks:
    """The bytes of a read and of a write."""

    read: int
    write: int


def cases(scale: float) -> dict[str, Load]:
    def of(count: int) -> int:
        return max(2000, int(count * scale) // 2000 * 2000)

    return {
        "100 B": Load(of(100_000)),
        "1 KiB": Load(of(100_000), size=1024),
        "64 KiB": Load(of(4000), size=65_536),
        "100 B, persistent": Load(of(60_000), confirm=True, durable=True, variants=PERSISTENT),
        "1 KiB, persistent": Load(of(60_000), size=1024, confirm=True, durable=True, variants=PERSISTENT),
        "64 KiB, persistent": Load(of(4000), size=65_536, confirm=True, durable=True, variants=PERSISTENT),
    }


# -- the relay -------------------------------------------------------------------------------------------------------


class Client:
    """A client of the relay: methods are answered, until plain bytes follow."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket, self.engine = connected, Engine(Role.SERVER)
        self.consumes = False
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def publishes(self) -> bool:
        """Whether a publication is what comes next."""
        return self.socket.recv(IDS.stop, socket.MSG_PEEK)[IDS] == PUBLISH

    def answer(self) -> bool:
        """Answer what has come. Returns whether the client is still there."""
        data = self.socket.recv(1 << 16)
        if not data:
            return False
        engine = self.engine
        engine.receive_data(data)
        if engine.state is ConnectionState.AWAIT_START:
            engine.send_method(0, m.ConnectionStart(0, 9, {}, b"PLAIN", b"en_US"))
        for channel, event in engine.events():
            self.consumes = self.consumes or isinstance(event, m.BasicConsume)
            if isinstance(event, m.Method) and (reply := reply_to(event)) is not None:
                engine.send_method(channel, reply)
        self.socket.sendall(engine.data_to_send())
        return True


def reply_to(method: m.Method) -> m.Method | None:
    match method:
        case m.ConnectionStartOk():
            return m.ConnectionTune(2047, FRAME_MAX, 0)
        case m.ConnectionOpen():
            return m.ConnectionOpenOk()
        case m.ChannelOpen():
            return m.ChannelOpenOk()
        case m.QueueDeclare():
            return m.QueueDeclareOk(method.queue, 0, 0)
        case m.QueueDelete():
            return m.QueueDeleteOk(0)
        case m.ConfirmSelect():
            return m.ConfirmSelectOk()
        case m.BasicQos():
            return m.BasicQosOk()
        case m.BasicConsume():
            return m.BasicConsumeOk(method.consumer_tag)
    return None


def serve(listener: socket.socket, load: Load, chunks: Chunks, queue: str) -> None:
    """Accept clients and serve them, until the process is ended."""
    clients: dict[socket.socket, Client] = {}
    publisher: Client | None = None
    while True:
        for ready in select.select([listener, *clients], [], [])[0]:
            if ready is listener:
                connected, _ = listener.accept()
                clients[connected] = Client(connected)
            elif clients[ready].publishes:
                publisher = clients[ready]
            elif not clients[ready].answer():
                clients.pop(ready).socket.close()
        consumer = next((client for client in clients.values() if client.consumes), None)
        if publisher is not None and consumer is not None:
            forward(publisher.socket, consumer.socket, load, chunks, queue)
            publisher, consumer.consumes = None, False


def forward(publisher: socket.socket, consumer: socket.socket, load: Load, chunks: Chunks, queue: str) -> None:
    """Read the load's publications, and write a delivery for each."""
    published = len(publication("", queue, load.variants[0], load.size))
    delivered = delivery_size("0", "", queue, load.variants[0], load.size)
    missing, arrived, written = published * load.count, 0, 0
    into = bytearray(chunks.read)
    out = memoryview(bytes(-(-chunks.read // published) * delivered + delivered))
    publisher.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(chunks.read, missing))  # no wake-up before that
    while missing:
        if missing < chunks.read:
            publisher.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, missing)
        # A read that waits itself has taken a part, and is not woken when what is missing is below the mark.
        select.select([publisher], [], [])
        got = publisher.recv_into(into, min(chunks.read, missing))
        if not got:
            raise RuntimeError("the publisher closed the connection")
        missing -= got
        arrived += got
        count = arrived // published
        size = (count - written) * delivered
        for start in range(0, size, chunks.write):
            consumer.sendall(out[start : min(size, start + chunks.write)])
        if load.confirm and count > written:
            publisher.sendall(encode_method(1, m.BasicAck(count, multiple=True)))
        written = count
    publisher.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


@contextmanager
def relay(load: Load, chunks: Chunks) -> Iterator[tuple[int, int]]:
    """The relay for this load: (port, pid)."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        queue = f"bench-{os.getpid()}-0"
        process = multiprocessing.get_context("fork").Process(
            target=serve, args=(listener, load, chunks, queue), daemon=True
        )
        process.start()
        assert process.pid is not None
        try:
            yield listener.getsockname()[1], process.pid
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.join()


# -- the disk --------------------------------------------------------------------------------------------------------


def disk_us(folder: Path, load: Load, chunks: Chunks) -> float:
    """CPU us for each message to write and sync the publisher's bytes, a read of them at a time."""
    published = len(publication("", "bench", load.variants[0], load.size))
    data, count = os.urandom(chunks.read), int(load.count)
    rest = published * count
    with tempfile.TemporaryFile(dir=folder) as file:
        began = time.process_time()
        while rest > 0:
            os.write(file.fileno(), data[:rest])
            os.fdatasync(file.fileno())
            rest -= len(data)
        return (time.process_time() - began) * 1e6 / count


# -- the broker ------------------------------------------------------------------------------------------------------


def calls(pid: int) -> tuple[int, int, int, int]:
    """Bytes read, bytes written, reads and writes of a process, sockets and files."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    figures = {name: int(value) for name, value in (line.split(": ") for line in lines)}
    return figures["rchar"], figures["wchar"], figures["syscr"], figures["syscw"]


def measure_broker(port: int, pid: int, load: Load) -> tuple[float, Chunks]:
    """CPU us for each message, and the bytes of a read and of a write in the middle."""
    before = calls(pid)
    used = run(port, pid, load).cpu_us
    assert used is not None
    read, written, reads, writes = (now - then for now, then in zip(calls(pid), before, strict=True))
    return used, Chunks(max(SHORTEST, read // max(1, reads)), max(SHORTEST, written // max(1, writes)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often every case runs")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the messages")
    parser.add_argument("--only", default="", metavar="NAME,...", help="cases whose names hold one of these")
    parser.add_argument("--list", action="store_true", help="name the cases")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    parser.add_argument("--data", type=Path, help="a folder on the disk to measure")
    options = parser.parse_args()
    wanted = [part.strip() for part in options.only.split(",") if part.strip()]
    chosen = {
        name: load
        for name, load in cases(options.scale).items()
        if not wanted or any(part in name for part in wanted)
    }  # fmt: skip
    if options.list:
        print("\n".join(chosen))
        return
    if not chosen:
        parser.error(f"no case has {options.only} in its name: --list names them")
    measured = measure_all(chosen, options.rounds, options.data)
    print(f"{measured['machine']}; the least of {options.rounds} rounds\n")
    print(markdown(limit_table(measured)))
    if options.json is not None:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")


def measure_all(chosen: dict[str, Load], rounds: int, data: Path | None) -> Limit:
    """Every case on the broker and on the relay, in turn, round by round."""
    limit: Limit = {"machine": machine(), "cases": {}}
    with (
        tempfile.TemporaryDirectory(prefix="limit-", dir=data) as folder,
        harebell_server(Path(folder) / "data") as (port, pid),
    ):
        run(port, pid, Load(WARM_UP))
        for done in range(rounds * len(chosen)):
            name, load = list(chosen.items())[done % len(chosen)]
            if sys.stderr.isatty():
                print(f"\r\033[K[{done + 1}/{rounds * len(chosen)}] {name}", end="", file=sys.stderr, flush=True)
            empty: Figures = {"loopback": [], "disk": [], "harebell": [], "read": [], "write": []}
            case = limit["cases"].setdefault(name, empty)
            used, chunks = measure_broker(port, pid, load)
            case["harebell"].append(round(used, 3))
            case["read"].append(chunks.read)
            case["write"].append(chunks.write)
            with relay(load, chunks) as (relay_port, relay_pid):
                least = run(relay_port, relay_pid, load).cpu_us
            assert least is not None
            case["loopback"].append(round(least, 3))
            if load.durable:
                case["disk"].append(round(disk_us(Path(folder), load, chunks), 3))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return limit


if __name__ == "__main__":
    main()

"""What a message of AMQP 0-10 costs the broker beside one of 0-9-1, on one `harebell serve`.

    python benchmarks/v010.py [--rounds 5] [--messages 30000] [--only publish,deliver] [--json FILE]

CPU is that of the broker process (user and system, all threads). The two dialects do the same work in turn: messages
of 100 bytes through one queue, whole batches of 1,000 confirmed or completed together. Where nothing else is said, all
messages have the same header. The last two rows have no counterpart in 0-9-1: they compare a session that lasts with
one that does not, and time a replay.
"""

from __future__ import annotations

import argparse
import json
import platform
import socket
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

sys.path.insert(0, str(Path(__file__).parent))
from broker import harebell_server
from load import Peer, cpu_seconds

from harebell.protocol import v010
from harebell.protocol.v010 import commands as c, controls as k
from harebell.protocol.v010.content import encode_content, encode_header
from harebell.protocol.v010.frames import command_frames
from harebell.protocol.v091 import Content, Properties, encode_content as encode_content_091, methods as m
from harebell.protocol.v091.codec import encode_method

BATCH = 1000
BODY = b"x" * 100
FRAME = 65_535
TIMEOUT = 120.0
EVERYTHING = 0xFFFF_FFFF
SETTLE = 500  # deliveries that are acknowledged, or accepted, at a time
REPLAYED = 10_000


class Peer010:
    """A raw connection with one session attached."""

    def __init__(self, port: int, name: bytes, timeout: int = 0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.engine = v010.Engine(v010.Role.CLIENT)
        self.complete = 0  # all commands below are
        self.sent = self.received = 0
        self.engine.send_header()
        self.until(k.ConnectionStart)
        self.control(0, k.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"))
        self.until(k.ConnectionTune)
        self.control(0, k.ConnectionTuneOk(10, FRAME, 0))
        self.control(0, k.ConnectionOpen("/"))
        self.until(k.ConnectionOpenOk)
        self.control(1, k.SessionAttach(name))
        self.until(k.SessionAttached)
        self.control(1, k.SessionRequestTimeout(timeout))
        self.control(1, k.SessionExpected(((0, 0),)))
        self.control(1, k.SessionCommandPoint(0, 0))

    def control(self, channel: int, control: v010.Control) -> None:
        self.engine.send_control(channel, control)
        self.socket.sendall(self.engine.data_to_send())

    def events(self) -> list[object]:
        """What has arrived; waits for something."""
        self.socket.sendall(self.engine.data_to_send())
        while not (events := self.engine.events()):
            data = self.socket.recv(1 << 18)
            if not data:
                raise RuntimeError("the broker closed the connection")
            self.engine.receive_data(data)
        for _, event in events:
            if isinstance(event, k.SessionCompleted):
                for _, high in event.commands or ():
                    self.complete = max(self.complete, high + 1)
                if event.timely_reply:
                    self.engine.send_control(1, k.SessionKnownCompleted(event.commands))
            elif isinstance(event, (c.ExecutionException, k.SessionDetach, k.ConnectionClose)):
                raise RuntimeError(str(event))
        return [event for _, event in events]

    def until(self, kind: type[v010.Control]) -> None:
        while not any(isinstance(event, kind) for event in self.events()):
            pass

    def call(self, command: v010.Command) -> None:
        command.sync = True
        self.engine.send_command(1, command)
        self.sent += 1
        self.wait_complete()

    def wait_complete(self) -> None:
        while self.complete < self.sent:
            self.events()

    def publish(self, count: int, batch: bytes, *, wait: bool = True) -> None:
        for _ in range(count // BATCH):
            self.socket.sendall(batch)
            self.sent += BATCH
            if wait:
                self.wait_complete()

    def consume(self, queue: str, count: int, *, accept: bool, subscriptions: int = 1) -> None:
        tags = [f"t{number}" for number in range(subscriptions)]
        for tag in tags:
            self.call(c.MessageSubscribe(queue, tag, accept_mode=0 if accept else 1))
            self.call(c.MessageSetFlowMode(tag, 1))
            self.call(c.MessageFlow(tag, 1, EVERYTHING))
        first = settled = seen = self.received
        for tag in tags:
            self.engine.send_command(1, c.MessageFlow(tag, 0, 4 * SETTLE // subscriptions))
            self.sent += 1
        while seen < first + count:
            seen += sum(isinstance(event, v010.Content) for event in self.events())
            if seen - settled >= SETTLE or seen == first + count:
                ranges = ((settled, seen - 1),)
                if accept:
                    self.engine.send_command(1, c.MessageAccept(ranges))
                    self.sent += 1
                self.engine.send_control(1, k.SessionCompleted(ranges))
                settled = seen
        self.received = seen
        for tag in tags:
            self.call(c.MessageCancel(tag))

    def close(self) -> None:
        self.socket.close()


def batch_010(queue: str, *, durable: bool, differ: bool = False) -> bytes:
    """Frames of a batch of transfers, of which the last asks for its completion. `differ`: each has its message-id."""
    pieces = []
    for number in range(BATCH):
        structs: list[v010.Struct] = [v010.DeliveryProperties(delivery_mode=2 if durable else 1, routing_key=queue)]
        if differ:
            structs.append(v010.MessageProperties(message_id=UUID(int=number)))
        command = c.MessageTransfer("", sync=number == BATCH - 1)
        content = encode_content(1, encode_header(structs), BODY, FRAME)
        pieces.append(command_frames(1, command.encode(), FRAME, True) + content)
    return b"".join(pieces)


def batch_091(queue: str, *, durable: bool, differ: bool = False) -> bytes:
    pieces = []
    for number in range(BATCH):
        properties = Properties(delivery_mode=2 if durable else 1)
        if differ:
            properties.message_id = str(UUID(int=number))
        pieces.append(encode_method(1, m.BasicPublish("", queue)) + encode_content_091(1, properties, BODY, 131_072))
    return b"".join(pieces)


@dataclass(frozen=True)
class Run:
    """One run of a row: the broker's CPU in microseconds per message, and the wall time in seconds."""

    cpu: float
    seconds: float


class Bench:
    def __init__(self, port: int, pid: int, messages: int) -> None:
        self.port, self.pid, self.messages = port, pid, messages
        self._names = 0

    def timed(self, work: Callable[[], None], count: int) -> Run:
        began, cpu = time.perf_counter(), cpu_seconds(self.pid)
        work()
        return Run((cpu_seconds(self.pid) - cpu) / count * 1e6, time.perf_counter() - began)

    def name(self) -> bytes:
        self._names += 1
        return b"bench %d" % self._names

    def queue(self, *, durable: bool) -> str:
        """A new queue, empty."""
        peer, name = Peer(self.port), f"bench.{self.name().decode()}"
        peer.call(m.QueueDeclare(name, durable=durable), m.QueueDeclareOk)
        peer.close()
        return name

    def drop(self, queue: str, count: int) -> None:
        peer = Peer(self.port)
        peer.wait_count(queue, count)
        peer.call(m.QueueDelete(queue), m.QueueDeleteOk)
        peer.close()

    # -- rows ----------------------------------------------------------------------------------------------------

    def publish_010(self, *, durable: bool, timeout: int = 0, differ: bool = False) -> Run:
        queue, peer = self.queue(durable=durable), Peer010(self.port, self.name(), timeout)
        batch = batch_010(queue, durable=durable, differ=differ)
        run = self.timed(lambda: peer.publish(self.messages, batch), self.messages)
        peer.close()
        self.drop(queue, self.messages)
        return run

    def publish_091(self, *, durable: bool, differ: bool = False) -> Run:
        queue, peer = self.queue(durable=durable), Peer(self.port)
        peer.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        batch = batch_091(queue, durable=durable, differ=differ)

        def work() -> None:
            for sent in range(BATCH, self.messages + 1, BATCH):
                peer.socket.sendall(batch)
                while peer.confirmed < sent:
                    peer.take_confirms()

        run = self.timed(work, self.messages)
        peer.close()
        self.drop(queue, self.messages)
        return run

    def filled(self, *, durable: bool, by_010: bool) -> str:
        """A queue with the messages of a run."""
        queue = self.queue(durable=durable)
        if by_010:
            publisher = Peer010(self.port, self.name())
            publisher.publish(self.messages, batch_010(queue, durable=durable))
            publisher.close()
        else:
            peer = Peer(self.port)
            batch = batch_091(queue, durable=durable)
            for _ in range(self.messages // BATCH):
                peer.socket.sendall(batch)
            peer.wait_count(queue, self.messages)
            peer.close()
        return queue

    def deliver_010(self, *, accept: bool, durable: bool = False, foreign: bool = False, subscriptions: int = 1) -> Run:
        """`foreign`: 0-9-1 has published the messages."""
        queue, peer = self.filled(durable=durable, by_010=not foreign), Peer010(self.port, self.name())
        run = self.timed(
            lambda: peer.consume(queue, self.messages, accept=accept, subscriptions=subscriptions), self.messages
        )
        peer.close()
        self.drop(queue, 0)
        return run

    def deliver_091(self, *, accept: bool, durable: bool = False, foreign: bool = False, subscriptions: int = 1) -> Run:
        queue, peer = self.filled(durable=durable, by_010=foreign), Peer(self.port)
        if accept:
            peer.call(m.BasicQos(0, 4 * SETTLE // subscriptions), m.BasicQosOk)

        def work() -> None:
            for number in range(subscriptions):
                peer.send(1, m.BasicConsume(queue, f"t{number}", no_ack=not accept))
            seen = settled = 0
            while seen < self.messages:
                seen += sum(isinstance(event, Content) for _, event in peer.events())
                if accept and (seen - settled >= SETTLE or seen == self.messages):
                    peer.send(1, m.BasicAck(seen, multiple=True))
                    settled = seen
            for number in range(subscriptions):
                peer.call(m.BasicCancel(f"t{number}"), m.BasicCancelOk)

        run = self.timed(work, self.messages)
        peer.close()
        self.drop(queue, 0)
        return run

    def replay(self) -> Run:
        """Commands that were executed, sent again after a loss: the broker drops them."""
        queue, name = self.queue(durable=False), self.name()
        batch = batch_010(queue, durable=False)
        lost = Peer010(self.port, name, timeout=60)
        lost.publish(REPLAYED, batch)
        lost.close()
        peer = Peer010(self.port, name, timeout=60)

        def work() -> None:
            peer.publish(REPLAYED, batch, wait=False)
            peer.wait_complete()

        run = self.timed(work, REPLAYED)
        peer.close()
        self.drop(queue, REPLAYED)
        return run


def rows(bench: Bench) -> list[tuple[str, Callable[[], Run], Callable[[], Run] | None]]:
    """Name, the run of 0-10, and what it is compared with."""

    def both(name: str, ours: str, **options: bool | int) -> tuple[str, Callable[[], Run], Callable[[], Run]]:
        mine, other = getattr(bench, f"{ours}_010"), getattr(bench, f"{ours}_091")
        return name, lambda: mine(**options), lambda: other(**options)

    return [
        both("publish, transient", "publish", durable=False),
        both("publish, durable", "publish", durable=True),
        both("publish, transient, each its message-id", "publish", durable=False, differ=True),
        both("publish, durable, each its message-id", "publish", durable=True, differ=True),
        both("deliver, not accepted", "deliver", accept=False),
        both("deliver, accepted", "deliver", accept=True),
        both("deliver from disk, accepted", "deliver", accept=True, durable=True),
        both("deliver to ten subscribers, accepted", "deliver", accept=True, subscriptions=10),
        both("deliver what the other published, accepted", "deliver", accept=True, foreign=True),
        (
            "publish, durable: lasting beside timeout 0",
            lambda: bench.publish_010(durable=True, timeout=60),
            lambda: bench.publish_010(durable=True),
        ),
        (f"replay of {REPLAYED:,} commands", bench.replay, None),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=30_000, help="of each run, a multiple of 1,000")
    parser.add_argument("--only", default="", metavar="NAME,...", help="rows whose names hold one of these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    options = parser.parse_args()
    wanted = [part.strip() for part in options.only.split(",") if part.strip()]
    found: dict[str, tuple[list[Run], list[Run]]] = {}
    with harebell_server() as (port, pid):
        chosen = [
            row
            for row in rows(Bench(port, pid, options.messages))
            if not wanted or any(part in row[0] for part in wanted)
        ]
        for turn in range(options.rounds):
            for number, (name, ours, peer) in enumerate(chosen):
                if sys.stderr.isatty():
                    done = turn * len(chosen) + number + 1
                    print(
                        f"\r\033[K[{done}/{options.rounds * len(chosen)}] {name}", end="", file=sys.stderr, flush=True
                    )
                mine, other = found.setdefault(name, ([], []))
                mine.append(ours())
                if peer is not None:
                    other.append(peer())
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(f"{len(BODY)}-byte messages; Python {platform.python_version()}, {platform.machine()}; medians")
    print(
        f"{'':44} {'CPU':>6} {'0-10':>8} {'peer':>8} {'rate':>6} {'0-10':>8} {'peer':>8}   CPU us per message, seconds"
    )
    for name, (mine, other) in found.items():
        print(
            f"{name:44} {_columns(mine, other, 'cpu', 2)} {_columns(mine, other, 'seconds', 3, inverse=True)}".rstrip()
        )
    if options.json is not None:
        figures = {
            name: {"0-10": [run.__dict__ for run in mine], "peer": [run.__dict__ for run in other]}
            for name, (mine, other) in found.items()
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def _columns(mine: list[Run], other: list[Run], what: str, digits: int, *, inverse: bool = False) -> str:
    """The ratio of the medians, and both; `inverse`: of rates where the medians are times."""
    own = _median(mine, what)
    if not other:
        return f"{'':6} {own:8.{digits}f} {'':8}"
    peer = _median(other, what)
    return f"{peer / own if inverse else own / peer:5.2f}x {own:8.{digits}f} {peer:8.{digits}f}"


def _median(runs: list[Run], what: str) -> float:
    return float(statistics.median(getattr(run, what) for run in runs))


if __name__ == "__main__":
    sys.exit(main())

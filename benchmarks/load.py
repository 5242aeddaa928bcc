"""A load generator that costs next to nothing per message, so that what is measured is the broker.

Publishers and consumers are processes of their own (`measure`). A publisher writes the same pre-encoded bytes again and
again; a consumer knows how long each delivery will be and counts bytes. Both speak real AMQP for everything else,
through the client's engine (`Peer`). A run fails when a message is missing.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import struct
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

from harebell.protocol.v091 import (
    Content,
    Engine,
    Event as EngineEvent,
    Properties,
    Role,
    Table,
    encode_content,
    methods as m,
)
from harebell.protocol.v091.codec import encode_method

BATCH = 200  # messages per write, or as many as BATCH_BYTES hold
BATCH_BYTES = 1 << 18
ACK_EVERY = 500  # deliveries per multiple acknowledgement
WINDOW = 4000  # unconfirmed messages of a publisher
KEY = "key.0.blue"  # of every message
FRAME_MAX = 131_072
TIMEOUT = 120.0  # seconds for one run
BURST = 1 << 18  # bytes per write of a Loader
REPLIES = "amq.rabbitmq.reply-to"
PERSISTENT, TRANSIENT = Properties(delivery_mode=2), Properties()
DEAD = "-dead"  # what the name of a dead-letter queue ends with

ack_frame = struct.Struct(">BHIHHQBB")  # basic.ack, which a consumer with a small window sends for every message


@dataclass(frozen=True)
class Load:
    """The load of a case: `count` messages of `size` bytes through one queue, or through `queues` of them at once.

    `prefetch` 0: the consumer takes without acknowledging; `ack_each`: one basic.ack a message instead of a multiple
    one periodically. `drain`: fill the queue first, then start the consumer; `get`: with basic.get. `reject`: the
    consumer rejects, and messages count when they arrive in the dead-letter queue. `keep`: so many are left in the
    queue at the end, and there is no consumer. `confirm`: the publisher has at most WINDOW unconfirmed; `commit`:
    messages per tx.commit. `exchange`: the type of an exchange on the way; `bindings`: how many it has besides the one
    that matches. `variants`: messages take these properties in turn, which are all of the same length on the wire.
    """

    count: int
    size: int = 100
    prefetch: int = 0
    ack_each: bool = False
    drain: bool = False
    get: bool = False
    reject: bool = False
    keep: int | None = None
    confirm: bool = False
    commit: int = 0
    exchange: str = ""
    bindings: int = 0
    queues: int = 1
    durable: bool = False
    arguments: Table | None = None
    variants: tuple[Properties, ...] = (Properties(),)

    @property
    def stream(self) -> bool:
        return (self.arguments or {}).get("x-queue-type") == "stream"


@dataclass(frozen=True)
class Result:
    """The figures of one run; None for what the case does not measure.

    per_second: messages (or operations) from the first to the last; cpu_us: the broker's CPU for each; p50 and p99:
    round trips in milliseconds; size: bytes of memory for each.
    """

    per_second: float | None = None
    cpu_us: float | None = None
    p50: float | None = None
    p99: float | None = None
    size: float | None = None


class Peer:
    """A raw connection: blocking calls before the load, plain bytes during it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.engine = Engine(Role.CLIENT)
        self._beyond: set[int] = set()  # confirmed out of turn
        self.confirmed = 0  # up to this tag all are
        self.engine.send_header()
        self.wait(m.ConnectionStart)
        self.send(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"))
        tune = self.wait(m.ConnectionTune)
        assert isinstance(tune, m.ConnectionTune)
        self.send(0, m.ConnectionTuneOk(tune.channel_max, tune.frame_max, 0))
        self.send(0, m.ConnectionOpen("/"))
        self.wait(m.ConnectionOpenOk)
        self.call(m.ChannelOpen(), m.ChannelOpenOk)

    def call(self, method: m.Method, reply: type[m.Method]) -> m.Method:
        self.send(1, method)
        return self.wait(reply)

    def send(self, channel: int, method: m.Method) -> None:
        self.engine.send_method(channel, method)
        self.socket.sendall(self.engine.data_to_send())

    def message_count(self, queue: str) -> int:
        """Ready messages; answered when the broker has processed everything that this connection sent before."""
        answer = self.call(m.QueueDeclare(queue, passive=True), m.QueueDeclareOk)
        assert isinstance(answer, m.QueueDeclareOk)
        return answer.message_count

    def wait_count(self, queue: str, count: int) -> None:
        """Wait until so many messages are ready. A RabbitMQ may answer the declaration before the last publish."""
        deadline = time.monotonic() + TIMEOUT
        while (found := self.message_count(queue)) != count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} messages are in {queue}, not {count}")
            time.sleep(0.005)

    def events(self) -> list[EngineEvent]:
        """The events that have arrived; waits for one if there are none."""
        while not (events := self.engine.events()):
            data = self.socket.recv(1 << 16)
            if not data:
                raise RuntimeError("the broker closed the connection")
            self.engine.receive_data(data)
        return events

    def wait(self, reply: type[m.Method]) -> m.Method:
        self.socket.sendall(self.engine.data_to_send())
        while True:
            for _, event in self.events():
                if isinstance(event, reply):
                    return event
                if isinstance(event, m.ConnectionClose | m.ChannelClose):
                    raise RuntimeError(f"{event.reply_code} {event.reply_text}")

    def content(self) -> Content:
        """The next message, for peers with at most one message on its way."""
        while True:
            for _, event in self.events():
                if isinstance(event, Content):
                    return event

    def take_confirms(self) -> None:
        for _, event in self.events():
            if isinstance(event, m.BasicAck):
                if event.multiple:
                    self.confirmed = max(self.confirmed, event.delivery_tag)
                else:
                    self._beyond.add(event.delivery_tag)
            elif isinstance(event, m.BasicNack | m.ChannelClose | m.ConnectionClose):
                raise RuntimeError(f"refused: {event}")
        while self.confirmed + 1 in self._beyond:
            self.confirmed += 1
            self._beyond.discard(self.confirmed)

    def close(self) -> None:
        self.socket.close()


class Loader(Peer):
    """The client that keeps the broker busy."""

    def declare(self, name: str, *, durable: bool = False, arguments: Table | None = None) -> None:
        self.call(m.QueueDeclare(name, durable=durable, arguments=arguments or {}), m.QueueDeclareOk)

    def encoded(self, methods: Iterable[m.Method]) -> bytes:
        """The methods as one write; their answers come with those of `sync`."""
        for method in methods:
            self.engine.send_method(1, method)
        return self.engine.data_to_send()

    def sync(self) -> None:
        """Wait until the broker has processed everything sent before."""
        self.call(m.BasicQos(0, 0), m.BasicQosOk)

    def write(self, *methods: m.Method) -> None:
        """Send methods, and wait until the broker has processed them."""
        self.socket.sendall(self.encoded(methods))
        self.sync()

    def fill(self, queue: str, count: int, properties: Properties = TRANSIENT, size: int = 10) -> None:
        message = publication("", queue, properties, size)
        per_write = max(1, BURST // len(message))
        for start in range(0, count, per_write):
            self.socket.sendall(message * min(per_write, count - start))
        self.wait_count(queue, count)

    def take(self, queue: str, count: int, content: Properties = TRANSIENT) -> None:
        """Consume so many messages, and acknowledge none."""
        deliver = encode_method(1, m.BasicDeliver("taken", 1, False, "", queue))
        missing = len(encode_method(1, m.BasicConsumeOk("taken")))
        missing += count * (len(deliver) + len(encode_content(1, content, b"x" * 10, FRAME_MAX)))
        self.send(1, m.BasicConsume(queue, "taken"))
        view = bytearray(1 << 20)
        while missing:
            missing -= self.socket.recv_into(view)

    def confirm(self, messages: bytes, count: int = 1) -> None:
        """Publish, and wait for the confirms."""
        self.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        self.socket.sendall(messages)
        while self.confirmed < count:
            self.take_confirms()

    def ask(self, service: str, request: dict[str, object] | None = None) -> object:
        """The answer of a service of Harebell. RuntimeError for a refusal."""
        body = json.dumps(request).encode() if request else b""
        self.engine.send_content(1, m.BasicPublish("amq.system", service), Properties(reply_to=REPLIES), body)
        self.socket.sendall(self.engine.data_to_send())
        answer = json.loads(self.content().body)
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(answer["reason"])
        return answer


class Stage:
    """The state that the processes of a run share. Each is `ready` once; a process `after` others waits for them."""

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("fork")
        self._start: Barrier = context.Barrier(workers + 1)
        self._filled: Event = context.Event()

    def ready(self) -> None:
        self._start.wait(TIMEOUT)

    def filled(self) -> None:
        self._filled.set()

    def wait_filled(self) -> None:
        if not self._filled.wait(TIMEOUT):
            raise TimeoutError("the publisher did not end")


Worker = Callable[[Stage], object]


@dataclass(frozen=True)
class Measured:
    seconds: float
    cpu: float  # the broker's, in seconds
    answers: list[object]  # what the workers returned

    def result(self, count: int) -> Result:
        return Result(per_second=count / self.seconds, cpu_us=self.cpu * 1e6 / count)


def measure(pid: int, workers: Sequence[Worker]) -> Measured:
    """Run each worker in a process of its own, all from the same moment on. `pid` is the broker."""
    context = multiprocessing.get_context("fork")
    stage, answers = Stage(len(workers)), context.Queue()

    def work(worker: Worker) -> None:
        try:
            answer = worker(stage)
            answers.put((True, time.perf_counter(), answer))
        except BaseException:
            answers.put((False, 0.0, traceback.format_exc()))

    processes = [context.Process(target=work, args=(worker,), daemon=True) for worker in workers]
    for process in processes:
        process.start()
    try:
        stage.ready()
        cpu, began = cpu_seconds(pid), time.perf_counter()
        got = []
        for _ in workers:
            fine, at, answer = answers.get(timeout=TIMEOUT)
            if not fine:
                raise RuntimeError(f"a worker failed:\n{answer}")
            got.append((at, answer))
        used = cpu_seconds(pid) - cpu
        return Measured(max(at for at, _ in got) - began, used, [answer for _, answer in got])
    finally:
        for process in processes:
            process.kill() if process.is_alive() and not answers.empty() else process.join(5)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process: of all its threads, in nanoseconds where the kernel counts them."""
    try:
        tasks = [Path(task, "schedstat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int(task.split()[0]) for task in tasks) / 1e9
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def publication(
    exchange: str, key: str, properties: Properties, size: int, body: bytes = b"", channel: int = 1
) -> bytes:
    """The frames of one basic.publish."""
    return encode_method(channel, m.BasicPublish(exchange, key)) + encode_content(
        channel, properties, body or b"x" * size, FRAME_MAX
    )


def delivery_size(tag: str, exchange: str, key: str, properties: Properties, size: int) -> int:
    """How long one basic.deliver with its content is."""
    deliver = encode_method(1, m.BasicDeliver(tag, 1, False, exchange, key))
    return len(deliver) + len(encode_content(1, properties, b"x" * size, FRAME_MAX))


def publish(port: int, name: str, load: Load, stage: Stage) -> None:
    peer = Peer(port)
    place = (name, KEY) if load.exchange else ("", f"{name}-0")
    messages = [publication(*place, properties, load.size) for properties in load.variants]
    batch = load.commit or max(1, min(BATCH, BATCH_BYTES // len(messages[0])))
    blob = b"".join(messages[number % len(messages)] for number in range(batch))
    if load.confirm:
        peer.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    if load.commit:
        peer.call(m.TxSelect(), m.TxSelectOk)
    stage.ready()
    sent = 0
    while sent < load.count:
        part = min(batch, load.count - sent)
        peer.socket.sendall(blob if part == batch else blob[: part * len(messages[0])])
        sent += part
        if load.commit:
            peer.call(m.TxCommit(), m.TxCommitOk)
        while load.confirm and (sent - peer.confirmed > WINDOW or (sent == load.count and peer.confirmed < sent)):
            peer.take_confirms()
    if load.keep is not None or load.drain:
        peer.wait_count(f"{name}-0", load.count if load.keep is None else load.keep)
    else:
        peer.message_count(f"{name}-0")
    stage.filled()
    peer.close()


def consume(port: int, name: str, load: Load, stage: Stage) -> None:
    peer = Peer(port)
    if load.prefetch:
        peer.call(m.BasicQos(0, load.prefetch), m.BasicQosOk)
    address = (name, KEY) if load.exchange else ("", f"{name}-0")
    width = len(str(load.queues - 1))  # of each consumer's tag
    each = delivery_size("0" * width, *address, load.variants[0], load.size)
    stage.ready()
    if load.drain:
        stage.wait_filled()
    missing, count = 0, load.count * load.queues
    for number in range(load.queues):
        tag = f"{number:0{width}}"
        peer.engine.send_method(1, m.BasicConsume(f"{name}-{number}", tag, no_ack=not load.prefetch))
        missing += len(encode_method(1, m.BasicConsumeOk(tag)))
    peer.socket.sendall(peer.engine.data_to_send())
    missing += each * count
    view, acked, total = bytearray(1 << 20), 0, missing
    settle = encode_settlement(load)
    while missing:
        got = peer.socket.recv_into(view)
        if not got:
            raise RuntimeError("the broker closed the connection")
        missing -= got
        arrived = (total - missing) // each
        if load.prefetch and (load.ack_each or arrived - acked >= ACK_EVERY or arrived == count):
            peer.socket.sendall(settle(acked, arrived))
            acked = arrived
    if missing < 0:
        raise RuntimeError("more arrived than was sent")
    if load.reject:
        peer.wait_count(name + DEAD, load.count)
    peer.call(m.BasicQos(0, 1), m.BasicQosOk)  # the broker has processed the last acknowledgement
    peer.close()


def encode_settlement(load: Load) -> Callable[[int, int], bytes]:
    """The frames that settle the deliveries after the tag settled last, up to the tag delivered last."""
    if load.reject:
        return lambda last, tag: encode_method(1, m.BasicNack(tag, multiple=True, requeue=False))
    if not load.ack_each:
        return lambda last, tag: encode_method(1, m.BasicAck(tag, multiple=True))
    return lambda last, tag: b"".join(
        ack_frame.pack(1, 1, 13, 60, 80, each, 0, 206) for each in range(last + 1, tag + 1)
    )


def get(port: int, name: str, load: Load, stage: Stage) -> None:
    """Empty the queue with basic.get, one at a time, as a poller does."""
    peer = Peer(port)
    stage.ready()
    stage.wait_filled()
    ask = encode_method(1, m.BasicGet(f"{name}-0", no_ack=True))
    for _ in range(load.count):
        peer.socket.sendall(ask)
        peer.content()
    peer.close()


def read_stream(port: int, name: str, load: Load) -> None:
    """Read a stream from its beginning, and check that it has every message."""
    peer = Peer(port)
    peer.call(m.BasicQos(0, 2000), m.BasicQosOk)
    peer.send(1, m.BasicConsume(f"{name}-0", "0", arguments={"x-stream-offset": "first"}))
    arrived = 0
    while arrived < load.count:
        fresh = sum(isinstance(event, Content) for _, event in peer.events())
        if fresh:
            arrived += fresh
            peer.send(1, m.BasicAck(arrived, multiple=True))
    peer.close()


def declare(peer: Peer, name: str, load: Load) -> None:
    """The queues, and the exchange with its bindings."""
    arguments = dict(load.arguments or {})
    if load.reject:
        arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name + DEAD}
        peer.call(m.QueueDeclare(name + DEAD), m.QueueDeclareOk)
    for number in range(load.queues):
        peer.call(
            m.QueueDeclare(f"{name}-{number}", durable=load.durable or load.stream, arguments=arguments),
            m.QueueDeclareOk,
        )
    if not load.exchange:
        return
    peer.call(m.ExchangeDeclare(name, load.exchange), m.ExchangeDeclareOk)
    for number in range(load.queues):
        match: Table = {"x-match": "all", "colour": "red"} if load.exchange == "headers" else {}
        peer.call(m.QueueBind(f"{name}-{number}", name, KEY, arguments=match), m.QueueBindOk)
    for number in range(1, load.bindings + 1):
        key = f"key.{number}.*" if load.exchange == "topic" else str(number)
        other: Table = {"x-match": "all", "colour": str(number)} if load.exchange == "headers" else {}
        peer.call(m.QueueBind(f"{name}-0", name, key, arguments=other), m.QueueBindOk)


def clear(peer: Peer, name: str, load: Load) -> None:
    for number in range(load.queues):
        peer.call(m.QueueDelete(f"{name}-{number}"), m.QueueDeleteOk)
    if load.reject:
        peer.call(m.QueueDelete(name + DEAD), m.QueueDeleteOk)
    if load.exchange:
        peer.call(m.ExchangeDelete(name), m.ExchangeDeleteOk)


def run(port: int, pid: int, load: Load) -> Result:
    """Put one load on the broker at that port, whose process is `pid`."""
    control, name = Peer(port), f"bench-{os.getpid()}"
    declare(control, name, load)
    workers: list[Worker] = [lambda stage: publish(port, name, load, stage)]
    if load.keep is None and not load.stream:
        taker = get if load.get else consume
        workers.append(lambda stage: taker(port, name, load, stage))
    measured = measure(pid, workers)
    if load.stream:
        read_stream(port, name, load)
    elif load.keep is None:
        control.wait_count(f"{name}-0", 0)
    clear(control, name, load)
    control.close()
    return measured.result(load.count)

"""How the broker's CPU and memory grow with what it has: connections, queues, bytes, waiting messages, bindings.

    python benchmarks/growth.py [--rounds 3] [--scale 1.0] [--only waiting,channels] [--long] [--list] [--json FILE]

Each curve makes more and more of one thing, tenfold each time, on a newly started broker each time, and measures three
costs there: CPU for each message that goes through, CPU to make and remove one more of the thing, and the memory of
each. The messages are the same whatever the size. CPU is that of the broker process (user and system, all threads).

The exponent says how a cost grows: the slope of the logarithm of the cost over that of the size, by least squares over
the points. 0: the cost is the same at any size; 1: twice the size, twice the cost of each. A step from the first point
to the second, and no growth after it, has an exponent too: read the row.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import load as generator
import scenes
from broker import BROKERS, STARTS, machine
from figures import BYTES, Curve as Figures, Growth, growth_tables, markdown
from load import (
    BATCH,
    BATCH_BYTES,
    Load,
    Loader,
    Peer,
    Stage,
    Worker,
    ack_frame,
    cpu_seconds,
    delivery_size,
    measure,
    publication,
    run,
)
from scenes import memory

from harebell.protocol.v091 import Properties, Table, methods as m
from harebell.protocol.v091.codec import encode_method

WARM_UP = 20_000  # messages through a newly started broker before anything is measured
LEAST = 1000  # objects whose memory can be told from the process's own ups and downs
MORE = 200  # objects made and removed beside those that are there
TAKEN = 1000  # deliveries that are acknowledged together while others wait
KEYS = 20_000  # routing keys in turn: more than a connection remembers the routes of
QUIET = 0.002  # seconds of CPU in PAUSE, below which the broker has nothing left to do
PAUSE = 0.05
LONGEST = 30.0  # seconds until it has
SMALL = 10  # bytes of a message that nobody takes
AVERAGE = 2600  # bytes: of messages above this size there are fewer, so that all together have as many
FEWEST = 20  # messages of any size
AGAIN = 50  # messages of each channel or queue at least: the first one costs the search for its route
NUMBERS = itertools.count()


@dataclass(frozen=True)
class Point:
    """The costs at one size; None for what is not measured there. The names are those of figures.Curve."""

    message: float | None = None
    more: float | None = None
    memory: float | None = None


Work = Callable[[int, int, int, int], Point]
"""What measures a point: the broker's port and pid, the size, and the number of messages."""


@dataclass(frozen=True)
class Curve:
    """What grows, the sizes it has, and the work that measures a point."""

    name: str
    sizes: tuple[int, ...]
    work: Work
    messages: int = 20_000


def tens(first: int, last: int) -> tuple[int, ...]:
    """first, ten times that, and so on, up to `last`."""
    sizes = []
    while first < last:
        sizes.append(first)
        first *= 10
    return (*sizes, last)


def curves(*, long: bool = False) -> list[Curve]:
    """All curves; `long`: ten million messages wait, which takes 4 GB of memory."""
    most = 10_000_000 if long else 1_000_000
    leveled = tuple(Properties(priority=level) for level in range(10))
    persistent, expiring = (Properties(delivery_mode=2),), (Properties(expiration="600000"),)
    return [
        Curve("connections", tens(1, 1000), connections),
        Curve("channels of a connection", tens(1, 2000), channels),
        Curve("queues", tens(1, 10_000), queues),
        Curve("queues of a fanout, per delivery", tens(1, 1000), fan_out),
        Curve("bindings of a topic exchange", tens(1, 10_000), partial(bindings, keys=1)),
        Curve("bindings of a topic exchange, many keys", tens(1, 10_000), partial(bindings, keys=KEYS)),
        Curve("consumers of a queue", tens(1, 1000), consumers),
        Curve("consumers of a queue, one is free", tens(1, 1000), busy_consumers),
        Curve("unacknowledged messages", tens(10, 100_000), unacknowledged),
        Curve("unacknowledged messages, in a window", tens(10, 60_000), window),
        Curve("waiting messages", (0, *tens(10, most)), waiting),
        Curve("waiting messages, durable", (0, *tens(10, most)), partial(waiting, variants=persistent, durable=True)),
        Curve("waiting messages, expiring", (0, *tens(10, most)), partial(waiting, variants=expiring)),
        Curve(
            "waiting messages, 10 priorities",
            (0, *tens(10, most)),
            partial(waiting, variants=leveled, arguments={"x-max-priority": 9}),
        ),
        Curve("priorities of a queue", (1, 10, 100, 255), priorities),
        Curve(BYTES, (16, 256, 4096, 65_536, 1 << 20), sizes, 100_000),
    ]


# -- what grows ------------------------------------------------------------------------------------------------------


def connections(port: int, pid: int, size: int, messages: int) -> Point:
    """Idle ones for memory and for one more; the messages go through all of them in turn, five at a time."""
    each = scenes.connection_memory(port, pid, count=size).size
    settle(pid)
    idle = [Peer(port) for _ in range(size)]
    more = scenes.connection_churn(port, pid, count=MORE // 2).cpu_us
    for peer in idle:
        peer.close()
    settle(pid)
    through = scenes.many_connections(port, pid, connections=size, rounds=max(1, messages // (5 * size)), batch=5)
    return Point(through.cpu_us, more, each if size >= LEAST else None)


def channels(port: int, pid: int, size: int, messages: int) -> Point:
    """Of one publisher, which uses them in turn. One more: closed and opened again."""
    name, control, messages = new_queue(), Loader(port), max(messages, AGAIN * size)
    control.declare(name)
    publisher = Loader(port)
    blob = encode_each(m.ChannelOpen(), range(2, size + 1))

    def make() -> None:
        publisher.socket.sendall(blob)
        wait_bytes(publisher, sum(len(encode_method(number, m.ChannelOpenOk())) for number in range(2, size + 1)))

    each = grown(pid, size, make)

    def again() -> None:
        for number in range(MORE):
            which = 1 + number % size
            publisher.socket.sendall(encode_method(which, m.ChannelClose(200, "", 0, 0)))
            wait_bytes(publisher, len(encode_method(which, m.ChannelCloseOk())))
            publisher.socket.sendall(encode_method(which, m.ChannelOpen()))
            wait_bytes(publisher, len(encode_method(which, m.ChannelOpenOk())))

    more = spent(pid, again) / MORE
    turn = [publication("", name, Properties(), 100, channel=number) for number in range(1, size + 1)]
    workers: list[Worker] = [
        lambda stage: write_in_turn(publisher, turn, messages, name, stage),
        lambda stage: generator.consume(port, name[:-2], Load(messages), stage),
    ]
    return Point(measure(pid, workers).cpu * 1e6 / messages, more, each)


def queues(port: int, pid: int, size: int, messages: int) -> Point:
    """The messages go to all of them in turn, each with a consumer. One more: declared, bound, unbound and deleted."""
    each = scenes.queue_memory(port, pid, count=size).size
    control, name = Loader(port), f"more-{os.getpid()}"
    control.write(*(m.QueueDeclare(f"{name}-{number}") for number in range(size)))
    more = scenes.declarations(port, pid, queues=MORE).cpu_us
    control.write(*(m.QueueDelete(f"{name}-{number}") for number in range(size)))
    settle(pid)
    through = scenes.many_queues(port, pid, queues=size, rounds=max(AGAIN, messages // size), connections=1)
    return Point(through.cpu_us, None if more is None else 4 * more, each if size >= LEAST else None)


def fan_out(port: int, pid: int, size: int, messages: int) -> Point:
    """Each message goes to all of the queues, which have one consumer connection."""
    load = Load(max(BATCH, messages // size), exchange="fanout", queues=size)
    through = run(port, pid, load).cpu_us
    return Point(None if through is None else through / size)


def bindings(port: int, pid: int, size: int, messages: int, *, keys: int) -> Point:
    """Of amq.topic, to one queue; each message fits one of them. `keys`: of the messages, in turn.

    With many keys the route of no message is remembered. One more: a queue declared, bound, unbound and deleted.
    """
    name, control, exchange = new_queue(), Loader(port), "amq.topic"
    control.declare(name)
    patterns = ["item.*", *(f"key.{number}.*" for number in range(1, size))]
    each = grown(pid, size, lambda: control.write(*(m.QueueBind(name, exchange, pattern) for pattern in patterns)))
    more = scenes.declarations(port, pid, queues=MORE).cpu_us
    turn = [publication(exchange, f"item.{number:05}", Properties(), 100) for number in range(keys)]
    expected = delivery_size("0", exchange, "item.00000", Properties(), 100) * messages

    def publish(stage: Stage) -> None:
        write_in_turn(Peer(port), turn, messages, name, stage)

    def take(stage: Stage) -> None:
        peer = Peer(port)
        peer.call(m.BasicConsume(name, "0", no_ack=True), m.BasicConsumeOk)
        stage.ready()
        wait_bytes(peer, expected)

    through = measure(pid, [publish, take]).cpu * 1e6 / messages
    return Point(through, None if more is None or keys > 1 else 4 * more, each if keys == 1 else None)


def consumers(port: int, pid: int, size: int, messages: int) -> Point:
    """Of one connection, each served in its turn. One more: a consumer that comes and goes."""
    name, idle = new_queue(), Loader(port)
    idle.declare(name)
    tags = [f"{number:04}" for number in range(size)]
    each = grown(pid, size, lambda: idle.write(*(m.BasicConsume(name, tag) for tag in tags)))

    def come_and_go() -> None:
        for number in range(MORE):
            idle.call(m.BasicConsume(name, f"more-{number}"), m.BasicConsumeOk)
            idle.call(m.BasicCancel(f"more-{number}"), m.BasicCancelOk)

    more = spent(pid, come_and_go) / MORE
    idle.write(*(m.BasicCancel(tag) for tag in tags))
    return Point(through_consumers(port, pid, name, tags, messages), more, each)


def busy_consumers(port: int, pid: int, size: int, messages: int) -> Point:
    """Each has a window of one message, which is full, but for one of them."""
    name, control, busy = new_queue(), Loader(port), Loader(port)
    control.declare(name)
    busy.call(m.BasicQos(0, 1), m.BasicQosOk)
    busy.socket.sendall(busy.encoded(m.BasicConsume(name, f"{number:04}") for number in range(1, size)))
    busy.message_count(name)  # they are consumers now; the prefetch of `sync` would be theirs too
    publish_all(control, publication("", name, Properties(), SMALL), size - 1)
    control.wait_count(name, 0)
    return Point(through_consumers(port, pid, name, ["free"], messages))


def through_consumers(port: int, pid: int, queue: str, tags: list[str], messages: int) -> float:
    """CPU us for each message that goes through the queue to these consumers of one connection."""
    settle(pid)

    def consume(stage: Stage) -> None:
        peer = Loader(port)
        peer.write(*(m.BasicConsume(queue, tag, no_ack=True) for tag in tags))
        stage.ready()
        wait_bytes(peer, delivery_size(tags[0], "", queue, Properties(), 100) * messages)
        stage.wait_filled()
        peer.close()

    workers: list[Worker] = [lambda stage: generator.publish(port, queue[:-2], Load(messages), stage), consume]
    return float(measure(pid, workers).cpu) * 1e6 / messages


def unacknowledged(port: int, pid: int, size: int, messages: int) -> Point:
    """Older than all others of their channel, and not acknowledged; each later message is, by itself."""
    name, holder = new_queue(), Loader(port)
    holder.declare(name)
    holder.fill(name, size)
    each = grown(pid, size, lambda: holder.take(name, size))
    expected = delivery_size("taken", "", name, Properties(), 100)

    def settle_each(stage: Stage) -> None:
        stage.ready()
        view, missing, acked = bytearray(1 << 20), expected * messages, 0
        while missing:
            missing -= holder.socket.recv_into(view)
            arrived = messages - -(-missing // expected)
            tags = range(size + acked + 1, size + arrived + 1)
            holder.socket.sendall(b"".join(ack_frame.pack(1, 1, 13, 60, 80, tag, 0, 206) for tag in tags))
            acked = arrived
        holder.sync()

    workers: list[Worker] = [lambda stage: generator.publish(port, name[:-2], Load(messages), stage), settle_each]
    return Point(measure(pid, workers).cpu * 1e6 / messages, None, each)


def window(port: int, pid: int, size: int, messages: int) -> Point:
    """As many as the consumer's window: it acknowledges the oldest ten together when it has ten more than that."""
    name, step = new_queue(), 10
    control = Loader(port)
    control.declare(name)
    control.fill(name, size + messages)
    holder = Loader(port)
    holder.call(m.BasicQos(0, size), m.BasicQosOk)
    holder.take(name, size)
    expected = delivery_size("taken", "", name, Properties(), SMALL) * step

    def slide(stage: Stage) -> None:
        stage.ready()
        for tag in range(step, messages + 1, step):
            holder.socket.sendall(encode_method(1, m.BasicAck(tag, multiple=True)))
            wait_bytes(holder, expected)
        holder.sync()

    return Point(measure(pid, [slide]).cpu * 1e6 / messages)


def waiting(
    port: int,
    pid: int,
    size: int,
    messages: int,
    *,
    variants: tuple[Properties, ...] = (Properties(),),
    durable: bool = False,
    arguments: Table | None = None,
) -> Point:
    """In one queue, which always has so many: as many messages come in as are taken."""
    name, filler = new_queue(), Loader(port)
    filler.declare(name, durable=durable, arguments=arguments)

    def fill() -> None:
        for properties in variants:
            publish_all(filler, publication("", name, properties, 100), size // len(variants))
        filler.wait_count(name, size)

    each = grown(pid, size, fill)
    settle(pid)
    load = Load(messages, variants=variants)
    workers: list[Worker] = [
        lambda stage: generator.publish(port, name[:-2], load, stage),
        lambda stage: take_some(port, name, load, stage),
    ]
    return Point(measure(pid, workers).cpu * 1e6 / messages, None, each)


def priorities(port: int, pid: int, size: int, messages: int) -> Point:
    """That a queue has; the messages have them in turn."""
    variants = tuple(Properties(priority=number * size // 200) for number in range(200))
    load = Load(messages, prefetch=2000, arguments={"x-max-priority": size}, variants=variants)
    return Point(run(port, pid, load).cpu_us)


def sizes(port: int, pid: int, size: int, messages: int) -> Point:
    """Bytes of a message's body."""
    count = max(FEWEST, min(messages, messages * AVERAGE // size))
    return Point(run(port, pid, Load(count, size=size)).cpu_us)


# -- parts of a point ------------------------------------------------------------------------------------------------


def settle(pid: int) -> None:
    """Wait until the broker does nothing: what was closed or deleted before is gone."""
    deadline = time.monotonic() + LONGEST
    while time.monotonic() < deadline:
        before = cpu_seconds(pid)
        time.sleep(PAUSE)
        if cpu_seconds(pid) - before < QUIET:
            return
    raise RuntimeError(f"the broker is busy after {LONGEST:.0f} s without a client's request")


def spent(pid: int, work: Callable[[], None]) -> float:
    """The broker's CPU during the work, in microseconds."""
    before: float = cpu_seconds(pid)
    work()
    after: float = cpu_seconds(pid)
    return (after - before) * 1e6


def grown(pid: int, count: int, make: Callable[[], None]) -> float | None:
    """The memory of each of `count` objects, in bytes; None when they are too few to tell."""
    before = memory(pid) if count >= LEAST else 0
    make()
    return (memory(pid) - before) / count if count >= LEAST else None


def new_queue() -> str:
    """A name that no queue has had. What load.py publishes to and consumes from is its name without the last two."""
    return f"growth-{os.getpid()}-{next(NUMBERS)}-0"


def encode_each(method: m.Method, channels: Iterable[int]) -> bytes:
    return b"".join(encode_method(number, method) for number in channels)


def wait_bytes(peer: Peer, missing: int) -> None:
    """Read so many bytes from a connection and look at none."""
    view = bytearray(min(1 << 20, max(1, missing)))
    while missing:
        got = peer.socket.recv_into(view, min(missing, len(view)))
        if not got:
            raise RuntimeError("the broker closed the connection")
        missing -= got


def publish_all(peer: Peer, message: bytes, count: int) -> None:
    per_write = max(1, BATCH_BYTES // len(message))
    for start in range(0, count, per_write):
        peer.socket.sendall(message * min(per_write, count - start))


def write_in_turn(peer: Peer, turn: list[bytes], messages: int, queue: str, stage: Stage) -> None:
    """Publish these messages in turn, BATCH of them in a write; their number is a power of ten, or twice one."""
    cycle = turn * -(-BATCH // len(turn))
    writes = itertools.cycle([b"".join(cycle[start : start + BATCH]) for start in range(0, len(cycle), BATCH)])
    stage.ready()
    for _ in range(0, messages, BATCH):
        peer.socket.sendall(next(writes))
    peer.message_count(queue)


def take_some(port: int, queue: str, load: Load, stage: Stage) -> None:
    """Take the load's messages of a queue that has more: TAKEN at a time, which are acknowledged together."""
    peer = Peer(port)
    peer.call(m.BasicQos(0, TAKEN), m.BasicQosOk)
    each = delivery_size("0", "", queue, load.variants[0], load.size)
    stage.ready()
    peer.socket.sendall(encode_method(1, m.BasicConsume(queue, "0")))
    wait_bytes(peer, len(encode_method(1, m.BasicConsumeOk("0"))))
    for tag in range(TAKEN, load.count + 1, TAKEN):
        wait_bytes(peer, each * TAKEN)
        if tag == load.count:  # else the acknowledgement brings the next ones
            peer.call(m.BasicCancel("0"), m.BasicCancelOk)
        peer.socket.sendall(encode_method(1, m.BasicAck(tag, multiple=True)))
    peer.call(m.BasicQos(0, TAKEN), m.BasicQosOk)
    stage.wait_filled()
    peer.close()


# -- the command -----------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often every point is measured")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the messages")
    parser.add_argument("--only", default="", metavar="NAME,...", help="curves whose names hold one of these")
    parser.add_argument("--most", type=int, metavar="N", help="leave out sizes above this one")
    parser.add_argument("--long", action="store_true", help="up to 10 million waiting messages: 4 GB of memory")
    parser.add_argument("--broker", choices=BROKERS, default="harebell")
    parser.add_argument("--list", action="store_true", help="name the curves")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    options = parser.parse_args()
    wanted = [part.strip() for part in options.only.split(",") if part.strip()]
    chosen = [each for each in curves(long=options.long) if not wanted or any(part in each.name for part in wanted)]
    if options.list:
        print("\n".join(each.name for each in chosen))
        return
    if not chosen:
        parser.error(f"no curve has {options.only} in its name: --list names them")
    raise_open_files()
    os.environ.setdefault("HAREBELL_LOG_LEVEL", "error")  # of the broker: hundreds of connections come and go
    measured = measure_all(chosen, options)
    print(f"{measured['machine']}; the least of {options.rounds} rounds\n")
    for table in growth_tables(measured):
        print(markdown(table), end="\n\n")
    if options.json is not None:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")


def raise_open_files() -> None:
    """Let this process and the broker have a socket for each connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else max(soft, 65_536), hard))


def measure_all(chosen: list[Curve], options: argparse.Namespace) -> Growth:
    """Every point of every curve, round by round, each on a newly started broker."""
    growth: Growth = {"machine": machine(), "broker": options.broker, "curves": {}}
    points = [(curve, size) for curve in chosen for size in curve.sizes if not options.most or size <= options.most]
    for curve, _ in points:
        growth["curves"][curve.name] = {"message": {}, "more": {}, "memory": {}}
    steps = [(curve, size) for _ in range(options.rounds) for curve, size in points]
    for done, (curve, size) in enumerate(steps):
        if sys.stderr.isatty():
            print(f"\r\033[K[{done + 1}/{len(steps)}] {curve.name}: {size:,}", end="", file=sys.stderr, flush=True)
        try:
            note(growth["curves"][curve.name], size, measure_point(curve, size, options))
        except Exception as error:
            raise RuntimeError(f"{curve.name}, {size:,}: {error}") from error
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return growth


def measure_point(curve: Curve, size: int, options: argparse.Namespace) -> Point:
    messages = max(TAKEN, int(curve.messages * options.scale) // TAKEN * TAKEN)
    with STARTS[options.broker]() as (port, pid):
        run(port, pid, Load(max(TAKEN, int(WARM_UP * min(1.0, options.scale)))))
        settle(pid)
        return curve.work(port, pid, size, messages)


def note(figures: Figures, size: int, point: Point) -> None:
    for rounds, figure in (
        (figures["message"], point.message),
        (figures["more"], point.more),
        (figures["memory"], point.memory),
    ):
        if figure is not None:
            rounds.setdefault(str(size), []).append(round(figure, 3))


if __name__ == "__main__":
    main()

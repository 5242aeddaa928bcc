"""What the kernel alone takes for messages that come one at a time, beside what Harebell and RabbitMQ take.

    python benchmarks/one_by_one.py [--rounds 3] [--scale 1.0] [--only basic.get,round] [--list]

A stand-in for the broker waits for a request, reads it and writes bytes as long as the broker's answer, one request
after the other; it looks at none of them. A persistent message is written and synced before it is answered. A broker
has to do as much for each, whatever it is written in. The cases are those of broker.py. CPU is that of the process
(user and system, all threads).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import select
import socket
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).parent))
from broker import BROKERS, STARTS, Case, cases, machine
from figures import markdown, number
from load import Load, cpu_seconds, delivery_size, publication, run
from scenes import REPLY_TO

from harebell.protocol.v091 import Properties, methods as m
from harebell.protocol.v091.codec import encode_method

COUNT = 4000  # requests to the stand-in, in each round
SIZE = 100  # of a body
QUEUE = "bench-12345-0"
ACK = encode_method(1, m.BasicAck(1))
PERSISTENT, PLAIN = Properties(delivery_mode=2), Properties()


@dataclass(frozen=True)
class Hop:
    """What is read, and how much is written for it, in bytes. `onward`: to another client than the one that asked."""

    read: int
    written: int
    synced: bool = False
    onward: bool = False


def published(properties: Properties, size: int) -> int:
    return len(publication("", QUEUE, properties, size))


def delivered(properties: Properties, size: int) -> int:
    delivery: int = delivery_size("0", "", QUEUE, properties, size)
    return delivery


GET = Hop(len(encode_method(1, m.BasicGet(QUEUE, no_ack=True))), delivered(PLAIN, SIZE))
SETTLE = Hop(len(ACK), delivered(PLAIN, SIZE))
CONFIRM = Hop(published(PERSISTENT, SIZE), len(ACK), synced=True)
ASK = Hop(published(Properties(reply_to=REPLY_TO), 8), delivered(Properties(reply_to=REPLY_TO), 8), onward=True)
ANSWER = Hop(published(PLAIN, 8), delivered(PLAIN, 8), onward=True)
HOPS = {
    "prefetch 1, each acknowledged": (SETTLE,),
    "basic.get": (GET,),
    "persistent, confirmed one by one": (CONFIRM,),
    "round trip, direct reply-to": (ASK, ANSWER),
    "round trip, reply queue": (ASK, ANSWER),
}


def stand_in(listener: socket.socket, hops: tuple[Hop, ...], file: IO[bytes]) -> None:
    """Accept a client for each hop, and answer what they send until the process is ended."""
    clients = [listener.accept()[0] for _ in hops]
    waiting = select.epoll()
    turns: dict[int, tuple[socket.socket, socket.socket, Hop, bytes]] = {}
    for place, (client, hop) in enumerate(zip(clients, hops, strict=True)):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting.register(client, select.EPOLLIN)
        to = clients[(place + hop.onward) % len(clients)]
        turns[client.fileno()] = client, to, hop, bytes(hop.written)
    while True:
        for descriptor, _ in waiting.poll():
            client, to, hop, answer = turns[descriptor]
            asked = client.recv(1 << 16)
            if not asked:
                return
            if hop.synced:
                os.write(file.fileno(), asked)
                os.fdatasync(file.fileno())
            to.sendall(answer)


def take(client: socket.socket, size: int) -> None:
    while size:
        size -= len(client.recv(size))


def ask(client: socket.socket, hops: tuple[Hop, ...], count: int) -> None:
    """Send the first hop's request and wait for the last hop's answer, again and again."""
    request = bytes(hops[0].read)
    for _ in range(count):
        client.sendall(request)
        take(client, hops[-1].written)


def respond(client: socket.socket, hops: tuple[Hop, ...], count: int) -> None:
    """Take what the first hop brings and send the second hop's request, again and again."""
    request = bytes(hops[1].read)
    for _ in range(count):
        take(client, hops[0].written)
        client.sendall(request)


def kernel_us(hops: tuple[Hop, ...], count: int, folder: Path) -> float:
    """CPU us of the stand-in for each request."""
    context = multiprocessing.get_context("fork")
    with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.TemporaryFile(dir=folder) as file:
        process = context.Process(target=stand_in, args=(listener, hops, file), daemon=True)
        process.start()
        assert process.pid is not None
        with ExitStack() as stack:
            stack.callback(process.join)
            stack.callback(process.kill)
            clients = [stack.enter_context(socket.create_connection(listener.getsockname())) for _ in hops]
            for client in clients:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            others = [
                context.Process(target=respond, args=(client, hops, count + 1), daemon=True) for client in clients[1:]
            ]
            for other in others:
                other.start()
            ask(clients[0], hops, 1)  # all have begun
            before = cpu_seconds(process.pid)
            ask(clients[0], hops, count)
            used: float = cpu_seconds(process.pid) - before
            for other in others:
                other.join()
            return used * 1e6 / count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often every case runs")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the messages")
    parser.add_argument("--only", default="", metavar="NAME,...", help="cases whose names hold one of these")
    parser.add_argument("--list", action="store_true", help="name the cases")
    options = parser.parse_args()
    wanted = [part.strip() for part in options.only.split(",") if part.strip()]
    chosen = [
        case
        for case in cases(options.scale)
        if case.name in HOPS and (not wanted or any(part in case.name for part in wanted))
    ]
    if options.list:
        print("\n".join(case.name for case in chosen))
        return
    if not chosen:
        parser.error(f"no case has {options.only} in its name: --list names them")
    print(f"{machine()}; CPU us each, medians of {options.rounds} rounds\n")
    print(markdown(table(measure_all(chosen, options.rounds, max(10, int(COUNT * options.scale))))))


def measure_all(chosen: list[Case], rounds: int, count: int) -> dict[str, dict[str, list[float]]]:
    """CPU us by case, and by who took them: the kernel alone and both brokers, in turn, round by round."""
    measured: dict[str, dict[str, list[float]]] = {
        case.name: {name: [] for name in ("kernel", *BROKERS)} for case in chosen
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="one-by-one-")))
        places = {name: stack.enter_context(STARTS[name]()) for name in BROKERS}
        for place in places.values():
            run(*place, Load(20_000))
        for _ in range(rounds):
            for case in chosen:
                measured[case.name]["kernel"].append(kernel_us(HOPS[case.name], count, folder))
                for name, place in places.items():
                    used = case.work(*place).cpu_us
                    assert used is not None
                    measured[case.name][name].append(used)
    return measured


def table(measured: dict[str, dict[str, list[float]]]) -> list[list[str]]:
    rows = [["one at a time", "kernel alone", "harebell", "rabbitmq", "a quarter of rabbitmq", "harebell's own"]]
    for name, figures in measured.items():
        kernel, harebell, rabbitmq = (statistics.median(each) for each in figures.values())
        rows.append([name, *map(number, (kernel, harebell, rabbitmq, rabbitmq / 4, harebell - kernel))])
    return rows


if __name__ == "__main__":
    main()

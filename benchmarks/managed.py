"""Brokers with their management, and what admin.py puts on them: queues, connections, requests, open consoles."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import multiprocessing
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from broker import harebell_server
from load import TRANSIENT, Loader, Peer, publication

from harebell.protocol.v091 import methods as m
from harebell.testing import RabbitMQ
from harebell.testing.rabbitmq import free_ports

TOGETHER = 250  # methods of a write, whose answers the client does not read meanwhile
PATIENCE = 300.0  # seconds for a broker to do what is waited for
POLL = 0.25
SHARES = 200  # parts of the traffic to all queues
RESERVE = 1500  # descriptors of a process that are not for the connections of a measurement
SIZE = 100  # bytes of a message
LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}

ALWAYS = ("node", "vhosts", "changes")
"""The topics of a console whatever it shows."""
CONSOLES = {"overview": ALWAYS, "queues": (*ALWAYS, "queues"), "connections": (*ALWAYS, "connections")}
"""The topics that a console listens to while it shows this view."""


class Place(NamedTuple):
    """A broker: its AMQP port and process, and the ports of its HTTP API and of its metrics (0: none)."""

    port: int
    pid: int
    api: int = 0
    metrics: int = 0


@contextmanager
def harebell_managed(*, managed: bool = True) -> Iterator[Place]:
    """`harebell serve`, with its management or without it."""
    api = free_ports(1)[0] if managed else 0
    flags = ("--management", "--management-port", str(api)) if managed else ("--no-management",)
    with harebell_server(flags=flags) as (port, pid):
        wait_listening(api)
        yield Place(port, pid, api, api)


@contextmanager
def rabbitmq_managed() -> Iterator[Place]:
    """RabbitMQ with its plug-ins for management and Prometheus."""
    api, metrics = free_ports(2)
    config = {"management.tcp.ip": "127.0.0.1", "management.tcp.port": str(api)}
    config |= {"prometheus.tcp.ip": "127.0.0.1", "prometheus.tcp.port": str(metrics)}
    with RabbitMQ(config=config, plugins=("rabbitmq_management", "rabbitmq_prometheus")) as server:
        wait_listening(api, metrics)
        yield Place(server.port, server.pid, api, metrics)


def wait_listening(*ports: int) -> None:
    """Wait until there are listeners on these ports, which begin after AMQP's; 0 is none."""
    deadline = time.monotonic() + PATIENCE
    for port in filter(None, ports):
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
                break
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL)


STARTS: Mapping[str, Callable[[], AbstractContextManager[Place]]] = {
    "harebell": harebell_managed,
    "rabbitmq": rabbitmq_managed,
}


# -- what a broker has


def room_for(connections: int) -> int:
    """So many connections, or as many as this process and a broker may have: raises the limit of descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else max(soft, 1 << 16)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    room = max(1, most - RESERVE)
    if room < connections:
        print(f"{room:,} connections, not {connections:,}: a process has at most {most:,} descriptors", file=sys.stderr)
    return min(room, connections)


def queue_name(number: int) -> str:
    return f"managed-{number:05}"


def make_queues(port: int, count: int) -> Loader:
    """Declare so many queues. Returns the connection."""
    peer = Loader(port)
    for numbers in _parts(count):
        peer.write(*(m.QueueDeclare(queue_name(number)) for number in numbers))
    return peer


def publish_to_each(peer: Loader, count: int) -> None:
    """A message to each of so many queues."""
    for numbers in _parts(count):
        peer.socket.sendall(b"".join(publication("", queue_name(each), TRANSIENT, SIZE) for each in numbers))
        peer.sync()


def purge_each(peer: Loader, count: int) -> None:
    for numbers in _parts(count):
        peer.write(*(m.QueuePurge(queue_name(number)) for number in numbers))


def _parts(count: int) -> Iterator[range]:
    for start in range(0, count, TOGETHER):
        yield range(start, min(count, start + TOGETHER))


def make_connections(port: int, count: int) -> list[socket.socket]:
    """So many connections with a channel each, which has published a message that no queue got."""
    message, sockets = publication("", "nowhere", TRANSIENT, SIZE), []
    for _ in range(count):
        peer = Peer(port)
        peer.socket.sendall(message)
        sockets.append(peer.socket)
    return sockets


def close_all(sockets: Sequence[socket.socket]) -> None:
    for each in sockets:
        each.close()


# -- what it is asked


class Api:
    """A client of an HTTP API, with a connection for each request: RabbitMQ closes one that is idle."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str) -> bytes:
        """The body of the answer. RuntimeError for any status but 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        try:
            connection.request("GET", path, headers=LOGIN)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise RuntimeError(f"GET {path}: {answer.status} {body[:200]!r}")
        return body

    def wait_totals(self, **totals: int) -> None:
        """Wait until the overview's totals are these: `queues`, `connections`, `messages`."""
        deadline = time.monotonic() + PATIENCE
        while True:
            overview = json.loads(self.get("/api/overview"))
            found = overview["object_totals"] | overview["queue_totals"]
            if all(found.get(name) == value for name, value in totals.items()):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"the overview says {found}, not {totals}")
            time.sleep(POLL)


# -- who looks at it


@contextmanager
def process(work: Callable[[Event], None], what: str) -> Iterator[None]:
    """Run this in a process of its own, from when it sets the event until the end of the block."""
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    child = context.Process(target=work, args=(ready,), daemon=True)
    child.start()
    try:
        if not ready.wait(PATIENCE):
            raise RuntimeError(f"{what} did not begin")
        yield
        if not child.is_alive():
            raise RuntimeError(f"{what} ended too early")
    finally:
        child.terminate()
        child.join(10)


@contextmanager
def consoles(api: int) -> Iterator[None]:
    """Three open consoles, which show the views of CONSOLES and have received all rows of these."""
    with ExitStack() as stack:
        for view, topics in CONSOLES.items():
            stack.enter_context(process(partial(_listen, api, topics), f"the console of {view}"))
        yield


def _listen(api: int, topics: Sequence[str], ready: Event) -> None:
    """Take what the stream of these topics has, until the broker ends it."""
    head = f"GET /api/events?topics={','.join(topics)} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in LOGIN.items())
    missing, last = sum(name != "changes" for name in topics), b""
    mark = b"event: complete\n"
    with socket.create_connection(("127.0.0.1", api)) as stream:
        stream.sendall(f"{head}\r\n".encode())
        while data := stream.recv(1 << 18):
            if missing > 0:
                missing -= (last + data).count(mark)
                last = data[1 - len(mark) :]
                if missing <= 0:
                    ready.set()


@contextmanager
def lists_every(api: int, paths: Sequence[str], seconds: float) -> Iterator[None]:
    """A monitoring program, which asks for all of these so often."""

    def ask(ready: Event) -> None:
        client = Api(api)
        while True:
            began = time.monotonic()
            for path in paths:
                client.get(path)
            ready.set()
            time.sleep(max(0.0, began + seconds - time.monotonic()))

    with process(ask, "the monitoring program"):
        yield


@contextmanager
def traffic(port: int, count: int, seconds: float) -> Iterator[None]:
    """A client that publishes a message to each of so many queues in so many seconds, evenly, and purges it."""
    together = max(1, count // SHARES)

    def work(ready: Event) -> None:
        peer, turn, began = Loader(port), itertools.cycle(range(count)), time.monotonic()
        for step in itertools.count(1):
            numbers = list(itertools.islice(turn, together))
            peer.socket.sendall(b"".join(publication("", queue_name(each), TRANSIENT, SIZE) for each in numbers))
            peer.write(*(m.QueuePurge(queue_name(each)) for each in numbers))
            ready.set()
            time.sleep(max(0.0, began + step * together * seconds / count - time.monotonic()))

    with process(work, "the traffic"):
        yield


os.environ.setdefault("HAREBELL_LOG_LEVEL", "error")  # of the broker: thousands of connections come and go

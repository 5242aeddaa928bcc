"""What management costs: requests beside RabbitMQ's, and a broker's round trips, rate and memory with it and without.

    python benchmarks/admin.py [--only requests,probe] [--scale 1.0] [--rounds 3] [--list] [--json F]

requests    the time, and the broker's CPU, of listings and of metrics: Harebell and RabbitMQ in turn
probe       round trips of a client (that of fairness.py), without management and with three open consoles
throughput  messages a second, and CPU for each, without management and with three open consoles
memory      bytes of a queue and of a connection, without management, with its history, and with three open consoles

The last three are Harebell's alone. There are 10,000 queues and 5,000 connections at --scale 1, or as many connections
as a process may have descriptors for. A console is a client that listens to what the console in a browser listens to.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).parent))
import fairness
from broker import BROKERS, machine
from figures import Row, markdown, number
from growth import LEAST
from load import Load, Loader, cpu_seconds, run
from managed import (
    PATIENCE,
    POLL,
    STARTS,
    Api,
    Place,
    close_all,
    consoles,
    harebell_managed,
    lists_every,
    make_connections,
    make_queues,
    publish_to_each,
    purge_each,
    room_for,
    traffic,
)
from scenes import memory

from harebell.admin.history.series import LARGEST

QUEUES, CONNECTIONS = 10_000, 5_000
SIZES = (1000, 10_000)  # queues of the requests; a tenth as many connections
CACHED = 6  # RabbitMQ may use an answer again for five times as long as it took to make it
SECONDS = 20.0  # of the probe in each row
TURN = 2.0  # seconds in which the traffic comes to each queue
LISTS = 5.0  # seconds between two rounds of a monitoring program
MESSAGES = 4_000_000  # of a load: some ten seconds, so that management does in each what it does periodically
SAMPLES = 2  # of history, at least, before memory is looked at
SAMPLED = 5.0  # seconds between two samples


@dataclass(frozen=True)
class Request:
    """A request, and what its answer must have: so many objects of a list, or this text."""

    name: str
    path: str
    shows: str


REQUESTS = (
    Request("/api/queues", "/api/queues", "queues"),
    Request("/api/queues, a page of 100 by messages", "/api/queues?page=1&page_size=100&sort=messages", "page"),
    Request("/api/overview", "/api/overview", "object_totals"),
    Request("/api/connections", "/api/connections", "connections"),
    Request("/metrics", "/metrics", "rabbitmq_queues"),
    Request("/metrics/per-object", "/metrics/per-object", 'queue="managed-00000"'),
)


@dataclass(frozen=True)
class Cost:
    """Of one request: milliseconds until the answer was there, milliseconds of the broker's CPU, and its bytes."""

    milliseconds: float
    cpu_ms: float
    size: int


@dataclass(frozen=True)
class Trips:
    """The probe's round trips in milliseconds, how many there were, and the broker's CPU in percent of a core."""

    maximum: float
    p99: float
    median: float
    count: int
    cpu: float


@dataclass(frozen=True)
class Rate:
    per_second: float
    cpu_us: float


@dataclass(frozen=True)
class Bytes:
    """Of each object: without management, with it and history, and with three consoles. `records`: of its history."""

    without: float
    managed: float
    watched: float
    records: int

    @property
    def history(self) -> float:
        """Bytes of each record of history, with all else that management has of the object."""
        return (self.managed - self.without) / self.records


Figures: TypeAlias = dict[str, object]


@dataclass(frozen=True)
class Part:
    """`measure` gives all figures for the file, and `table` the rows to print of them."""

    name: str
    about: str
    measure: Callable[[argparse.Namespace], Figures]
    table: Callable[[Figures], list[Row]]


def say(text: str) -> None:
    """Progress, for a person who waits."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def scaled(count: int, scale: float) -> int:
    return max(1, round(count * scale))


# -- requests


def measure_requests(options: argparse.Namespace) -> Figures:
    """{"1,000": {request: {broker: [cost of each round]}}}"""
    found: Figures = {}
    for size in SIZES:
        count = scaled(size, options.scale)
        found[f"{count:,}"] = costs = {request.name: dict[str, list[Cost]]() for request in REQUESTS}
        for broker in (options.broker,) if options.broker else BROKERS:
            with STARTS[broker]() as place:
                for name, each in costs_of(broker, place, count, options.rounds).items():
                    costs[name][broker] = each
    return found


def costs_of(broker: str, place: Place, queues: int, rounds: int) -> dict[str, list[Cost]]:
    """The costs of all requests on a broker with so many queues, and a tenth as many connections."""
    say(f"requests: {queues:,} queues, {broker}")
    peer, connections = make_queues(place.port, queues), room_for(max(1, queues // 10) - 1)
    publish_to_each(peer, queues)
    idle = make_connections(place.port, connections)
    api, metrics = Api(place.api), Api(place.metrics)
    api.wait_totals(queues=queues, messages=queues, connections=connections + 1)
    found = {}
    for request in REQUESTS:
        say(f"requests: {queues:,} queues, {broker}: {request.name}")
        client = metrics if request.path.startswith("/metrics") else api
        began = time.monotonic()
        check(request, client.get(request.path), queues, connections + 1)
        pause = CACHED * (time.monotonic() - began)
        found[request.name] = [cost_of(client, place.pid, request.path, pause) for _ in range(rounds)]
    close_all(idle)
    return found


def cost_of(client: Api, pid: int, path: str, pause: float) -> Cost:
    time.sleep(pause)
    cpu, began = cpu_seconds(pid), time.perf_counter()
    body = client.get(path)
    took = time.perf_counter() - began
    return Cost(took * 1000, (cpu_seconds(pid) - cpu) * 1000, len(body))


def check(request: Request, body: bytes, queues: int, connections: int) -> None:
    """Raise RuntimeError for an answer that lacks something."""
    match request.shows:
        case "queues":
            right = len(json.loads(body)) == queues
        case "connections":
            right = len(json.loads(body)) == connections
        case "page":
            page = json.loads(body)
            right = page["total_count"] == queues and len(page["items"]) == min(100, queues)
        case text:
            right = text.encode() in body
    if not right:
        raise RuntimeError(f"{request.path}: {body[:200]!r}")


def requests_table(figures: Figures) -> list[Row]:
    """Ratios of the medians first, where there are two brokers."""
    rows: list[Row] = []
    for count, costs in figures.items():
        assert isinstance(costs, dict)
        for name, by_broker in costs.items():
            brokers = list(by_broker)
            medians = {broker: median_cost(each) for broker, each in by_broker.items()}
            if not rows:
                better = ["CPU: better by", "time: better by"] if len(brokers) == 2 else []
                heads = [f"{broker}: {what}" for broker in brokers for what in ("CPU ms", "ms", "KiB")]
                rows.append(["request", "queues", *better, *heads])
            cells = [f"`{name.partition(', ')[0]}`{name[len(name.partition(', ')[0]) :]}", count]
            if len(brokers) == 2:
                ours, theirs = (medians[broker] for broker in brokers)
                cells.append(times(theirs.cpu_ms, ours.cpu_ms))
                cells.append(times(theirs.milliseconds, ours.milliseconds))
            for cost in medians.values():
                cells += [number(cost.cpu_ms), number(cost.milliseconds), number(cost.size / 1024)]
            rows.append(cells)
    return rows


def median_cost(costs: Sequence[Cost]) -> Cost:
    return Cost(
        statistics.median(each.milliseconds for each in costs),
        statistics.median(each.cpu_ms for each in costs),
        round(statistics.median(each.size for each in costs)),
    )


def times(theirs: float, ours: float) -> str:
    return f"{theirs / ours:.1f}x" if ours > 0 else ""


# -- the broker of the other parts


@contextmanager
def full(options: argparse.Namespace, *, managed: bool) -> Iterator[Place]:
    """Harebell with all queues and connections."""
    queues, connections = scaled(QUEUES, options.scale), room_for(scaled(CONNECTIONS, options.scale))
    with harebell_managed(managed=managed) as place:
        peer = make_queues(place.port, queues)
        idle = make_connections(place.port, connections)
        peer.sync()
        yield place
        close_all(idle)


@contextmanager
def watched(place: Place) -> Iterator[None]:
    """Three consoles, if the broker has management."""
    with ExitStack() as stack:
        if place.api:
            stack.enter_context(consoles(place.api))
        yield


# -- the probe


def measure_probe(options: argparse.Namespace) -> Figures:
    """{row: round trips}. The rows with traffic come to each queue every TURN seconds, so that all rows change."""
    found: Figures = {}
    queues, seconds = scaled(QUEUES, options.scale), max(1.0, SECONDS * min(1.0, options.scale))
    lists = ("/api/queues", "/metrics/per-object")
    for managed, name in ((False, "without management"), (True, "three consoles")):
        with full(options, managed=managed) as place, watched(place):
            say(f"probe: {name}")
            found[name] = trips(place, seconds)
            with traffic(place.port, queues, TURN):
                say(f"probe: {name}, traffic")
                found[f"{name}, traffic"] = trips(place, seconds)
                if managed:
                    with lists_every(place.api, lists, LISTS):
                        found[f"{name}, traffic, lists"] = trips(place, seconds)
    return found


def trips(place: Place, seconds: float) -> Trips:
    """The probe's round trips in so many seconds."""
    cpu = [0.0]

    def wait() -> None:
        before = cpu_seconds(place.pid)
        time.sleep(seconds)
        cpu[0] = cpu_seconds(place.pid) - before

    waits = fairness.measure(place.port, lambda port, scale: wait, 1.0)
    count = round(waits.seconds / fairness.INTERVAL)
    return Trips(waits.maximum, waits.p99, waits.median, count, 100 * cpu[0] / waits.seconds)


def probe_table(figures: Figures) -> list[Row]:
    rows = [["round trips", "longest ms", "99 % ms", "median ms", "CPU, % of a core"]]
    for name, each in figures.items():
        assert isinstance(each, Trips)
        rows.append([name, f"{each.maximum:.1f}", f"{each.p99:.1f}", f"{each.median:.2f}", f"{each.cpu:.1f}"])
    return rows


# -- throughput


def measure_throughput(options: argparse.Namespace) -> Figures:
    """{row: [rate of each round]}: in turn on a broker without management and on one with it."""
    found: Figures = {}
    rates: dict[str, list[Rate]] = {"without management": [], "three consoles": []}
    load = Load(max(2000, scaled(MESSAGES, options.scale)), prefetch=2000)
    for turn in range(options.rounds):
        for managed, name in ((False, "without management"), (True, "three consoles")):
            say(f"throughput: {name}, round {turn + 1}")
            with full(options, managed=managed) as place, watched(place):
                run(place.port, place.pid, Load(20_000, prefetch=2000))
                result = run(place.port, place.pid, load)
            assert result.per_second is not None
            assert result.cpu_us is not None
            rates[name].append(Rate(result.per_second, result.cpu_us))
    found.update(rates)
    return found


def throughput_table(figures: Figures) -> list[Row]:
    rows, first = [["load", "per second", "CPU us each", "rate", "CPU"]], None
    for name, rates in figures.items():
        assert isinstance(rates, list)
        median = Rate(*(statistics.median(getattr(each, what) for each in rates) for what in ("per_second", "cpu_us")))
        first = first or median
        cells = [name, number(median.per_second), f"{median.cpu_us:.2f}"]
        rows.append([*cells, f"{median.per_second / first.per_second:.2f}", times(median.cpu_us, first.cpu_us)])
    return rows


# -- memory


def measure_memory(options: argparse.Namespace) -> Figures:
    """{object: bytes}"""
    queues = max(LEAST, scaled(QUEUES, options.scale))
    connections = room_for(max(LEAST, scaled(CONNECTIONS, options.scale)))
    return {
        "a queue": bytes_of(queues, 1, grow_queues),
        "a connection with a channel": bytes_of(connections, 2, grow_connections),
    }


def bytes_of(count: int, records: int, grow: Callable[[Place, int], object]) -> Bytes:
    """The memory of each object, with so many records of history when there is management."""
    say(f"memory: {count:,}")
    with harebell_managed(managed=False) as place:
        without, _ = each_of(place, count, grow)
    with harebell_managed() as place:
        managed, watched = each_of(place, count, grow, count * records)
    return Bytes(without, managed, watched, records)


def each_of(place: Place, count: int, grow: Callable[[Place, int], object], records: int = 0) -> tuple[float, float]:
    """The bytes of each, without consoles and with three of them; wait until there are so many records of history."""
    Loader(place.port).close()
    before = memory(place.pid)
    grown = grow(place, count)  # alive until the end: connections
    if records:
        wait_history(place.api, records)
    after = last = memory(place.pid)
    if records:
        with consoles(place.api):
            last = memory(place.pid)
    del grown
    return (after - before) / count, (last - before) / count


def wait_history(port: int, records: int) -> None:
    """Wait until the broker has a history of so many objects, and then for more samples."""
    api, deadline = Api(port), time.monotonic() + PATIENCE
    while True:
        parts = json.loads(api.get("/api/nodes/" + json.loads(api.get("/api/overview"))["node"] + "/memory"))["memory"]
        if parts["mgmt_db"] >= records * LARGEST:
            break
        if time.monotonic() > deadline:
            raise RuntimeError(f"a history of {parts['mgmt_db'] // LARGEST:,} objects, not {records:,}")
        time.sleep(POLL)
    time.sleep(SAMPLED * SAMPLES)


def grow_queues(place: Place, count: int) -> object:
    """Queues that have had a message each."""
    peer = make_queues(place.port, count)
    publish_to_each(peer, count)
    purge_each(peer, count)
    return peer


def grow_connections(place: Place, count: int) -> object:
    return make_connections(place.port, count)


def memory_table(figures: Figures) -> list[Row]:
    rows = [["bytes", "without management", "with history", "with three consoles", "management, each record"]]
    for name, each in figures.items():
        assert isinstance(each, Bytes)
        rows.append([name, *map(number, (each.without, each.managed, each.watched, each.history))])
    return rows


# -- the command

PARTS = (
    Part("requests", "medians of the rounds; no answer is one that was made before", measure_requests, requests_table),
    Part("probe", "the probe's round trips; traffic: to each queue every 2 s; lists: every 5 s",
         measure_probe, probe_table),
    Part("throughput", "medians of the rounds; 100 bytes, acknowledged, prefetch 2000",
         measure_throughput, throughput_table),
    Part("memory", "bytes of each; a connection has two records of history, of itself and of its channel",
         measure_memory, memory_table),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", default="", metavar="NAME,...", help="parts whose names hold one of these")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the queues, connections and messages")
    parser.add_argument("--rounds", type=int, default=3, help="how often each request and each load is measured")
    parser.add_argument("--broker", choices=BROKERS, help="this one alone, in the part `requests`")
    parser.add_argument("--list", action="store_true", help="name the parts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    options = parser.parse_args()
    wanted = [part.strip() for part in options.only.split(",") if part.strip()]
    chosen = [each for each in PARTS if not wanted or any(part in each.name for part in wanted)]
    if options.list:
        print("\n".join(each.name for each in chosen))
        return
    if not chosen:
        parser.error(f"no part has {options.only} in its name: --list names them")
    print(f"{machine()}; {options.rounds} rounds\n")
    measured = {}
    for part in chosen:
        figures = measured[part.name] = part.measure(options)
        say("")
        print(f"{part.name}: {part.about}\n\n{markdown(part.table(figures))}\n", flush=True)
    if options.json is not None:
        written = {"machine": machine(), "parts": measured}
        options.json.write_text(json.dumps(written, indent=1, default=asdict) + "\n")


if __name__ == "__main__":
    main()

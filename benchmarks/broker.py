"""Harebell and RabbitMQ side by side: rates, broker CPU, round trips and memory, case by case, in turn.

    python benchmarks/broker.py [--rounds 2] [--scale 1.0] [--only drain,topic] [--list] [--json FILE]
    python benchmarks/broker.py --against pure      after `make fast`: what is gained by compiling

Ratios come first: both brokers run on the same machine in the same minutes, so the ratio holds where single figures
drift. CPU is that of the broker process (user and system, all threads), which is steadier than wall time on a shared
machine. Both brokers do the same work, and a run in which a message is missing fails.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import scenes
from load import Load, Peer, Result, run

import harebell
from harebell.protocol.v091 import Properties
from harebell.testing import RabbitMQ

BROKERS = ("harebell", "rabbitmq")
PERSISTENT = (Properties(delivery_mode=2),)
QUIETLY = ("--log-level", "warning")  # a line for each connection would hide the tables
STOP = 60  # seconds for a broker to stop, with millions of messages


@dataclass(frozen=True)
class Case:
    """`work` takes the broker's port and pid. `once`: the case needs a newly started broker."""

    name: str
    work: Callable[[int, int], Result]
    once: bool = False


def cases(scale: float) -> list[Case]:
    def of(count: int) -> int:
        return max(2000, int(count * scale) // 2000 * 2000)

    def load(name: str, load: Load) -> Case:
        return Case(name, lambda port, pid: run(port, pid, load))

    def scene(name: str, work: Callable[..., Result], *, once: bool = False, **settings: object) -> Case:
        return Case(name, partial(work, **settings), once)

    return [
        scene("memory: idle connection", scenes.connection_memory, once=True, count=1000),
        scene("memory: idle queue", scenes.queue_memory, once=True, count=1000),
        scene("memory: waiting message", scenes.backlog_memory, once=True, count=of(500_000)),
        load("transient, no acknowledgements", Load(of(100_000))),
        load("acknowledged, prefetch 2000", Load(of(100_000), prefetch=2000)),
        load("fill, then drain", Load(of(100_000), drain=True)),
        scene("drain from memory", scenes.drain, count=of(200_000), durable=False),
        scene("drain from disk", scenes.drain, count=of(200_000), durable=True),
        scene("drain from memory, acknowledged", scenes.drain, count=of(200_000), durable=False, prefetch=2000),
        scene("drain from disk, acknowledged", scenes.drain, count=of(200_000), durable=True, prefetch=2000),
        load("confirmed", Load(of(60_000), confirm=True)),
        load("prefetch 10, each acknowledged", Load(of(20_000), prefetch=10, ack_each=True)),
        load("prefetch 1, each acknowledged", Load(of(10_000), prefetch=1, ack_each=True)),
        load("64 KiB messages", Load(of(2000), size=65_536)),
        load("fan-out, 1 to 10", Load(of(10_000), exchange="fanout", queues=10)),
        load("topic, 1 of 10,000 bindings", Load(of(50_000), exchange="topic", bindings=10_000)),
        load(
            "headers, 1 of 1,000 bindings",
            Load(of(10_000), exchange="headers", bindings=1000, variants=(Properties(headers={"colour": "red"}),)),
        ),
        load(
            "messages with headers",
            Load(of(60_000), prefetch=2000, variants=(Properties(headers={"task": "resize", "retries": 0}),)),
        ),
        scene("1,000 queues, 1 connection", scenes.many_queues, queues=1000, rounds=of(60_000) // 1000, connections=1),
        scene(
            "1,000 queues, 10 connections", scenes.many_queues, queues=1000, rounds=of(60_000) // 1000, connections=10
        ),
        scene("200 connections", scenes.many_connections, connections=200, rounds=of(40_000) // 1000, batch=5),
        load("persistent, confirmed", Load(of(60_000), confirm=True, durable=True, variants=PERSISTENT)),
        load(
            "stream, confirmed",
            Load(of(60_000), confirm=True, arguments={"x-queue-type": "stream"}, variants=PERSISTENT),
        ),
        load("tx, commits of 100", Load(of(20_000), commit=100)),
        load(
            "priorities 0 to 9",
            Load(
                of(40_000),
                prefetch=2000,
                arguments={"x-max-priority": 9},
                variants=tuple(Properties(priority=level) for level in range(10)),
            ),
        ),
        load("queue with a TTL", Load(of(60_000), prefetch=2000, arguments={"x-message-ttl": 600_000})),
        load(
            "messages with an expiration",
            Load(of(40_000), prefetch=2000, variants=(Properties(expiration="600000"),)),
        ),
        load("max-length 1,000, drop-head", Load(of(60_000), arguments={"x-max-length": 1000}, keep=1000)),
        load("rejected, dead-lettered", Load(of(20_000), prefetch=2000, drain=True, reject=True)),
        load("basic.get", Load(of(6000), drain=True, get=True)),
        scene("declare, bind, unbind, delete", scenes.declarations, queues=1000),
        scene("connection churn", scenes.connection_churn, count=150),
        scene("persistent, confirmed one by one", scenes.confirms_one_by_one, count=of(2000) // 4),
        load(
            "persistent, confirmed, fan-out 1 to 10",
            Load(of(10_000), confirm=True, durable=True, exchange="fanout", queues=10, variants=PERSISTENT),
        ),
        scene("round trip, direct reply-to", scenes.round_trips, per_second=2000, seconds=2.0, direct=True),
        scene("round trip, reply queue", scenes.round_trips, per_second=2000, seconds=2.0, direct=False),
    ]


@contextmanager
def harebell_server(
    folder: Path | None = None, *, pure: bool = False, flags: Sequence[str] = ()
) -> Iterator[tuple[int, int]]:
    """`harebell serve` on a free port: (port, pid). Its data folder is `folder`, or a temporary one.

    `pure` runs it as Python, whether or not it is compiled; `flags` are more flags of its command line.
    """
    with tempfile.TemporaryDirectory() as temporary:
        data = str(folder or temporary)
        process = subprocess.Popen(
            [sys.executable, "-m", "harebell", "serve", "--port", "0", "--data", data, *QUIETLY, *flags],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ({"HAREBELL_PURE": "1"} if pure else {}),
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            yield int(line.split("amqp://", 1)[1].split("/")[0].rsplit(":", 1)[1]), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP)


@contextmanager
def rabbitmq_server() -> Iterator[tuple[int, int]]:
    with RabbitMQ() as server:
        yield server.port, server.pid


STARTS: dict[str, Callable[[], AbstractContextManager[tuple[int, int]]]] = {
    "harebell": harebell_server,
    "rabbitmq": rabbitmq_server,
    "pure": partial(harebell_server, pure=True),
}
Results = dict[tuple[str, str], list[Result]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=2, help="how often every case runs; memory cases run once")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the messages")
    parser.add_argument("--only", default="", metavar="NAME,...", help="cases whose names hold one of these")
    parser.add_argument(
        "--against", choices=("rabbitmq", "pure"), default="rabbitmq", help="the other one; pure: not compiled"
    )
    parser.add_argument("--broker", choices=BROKERS, help="this one alone, for a profile")
    parser.add_argument("--list", action="store_true", help="name the cases")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    options = parser.parse_args()
    wanted = [part.strip() for part in options.only.split(",") if part.strip()]
    chosen = [case for case in cases(options.scale) if not wanted or any(part in case.name for part in wanted)]
    if options.list:
        print("\n".join(case.name for case in chosen))
        return
    if not chosen:
        parser.error(f"no case has {options.only} in its name: --list names them")
    brokers = (options.broker,) if options.broker else ("harebell", options.against)
    if options.against == "pure" and harebell.build != "compiled":
        parser.error(f"harebell is {harebell.build}, not compiled: make fast")
    results = measure_all(chosen, brokers, options.rounds)
    show(chosen, results, brokers, options.rounds)
    if options.json is not None:
        write_json(options.json, chosen, results)


def measure_all(chosen: list[Case], brokers: tuple[str, ...], rounds: int) -> Results:
    """Memory first, each broker alone, just started; then every case on one broker and the other, round by round."""
    results: Results = {}
    once, often = [case for case in chosen if case.once], [case for case in chosen if not case.once]
    steps = len(brokers) * (len(once) + rounds * len(often))

    def measure(case: Case, name: str, port: int, pid: int) -> None:
        done = sum(map(len, results.values()))
        if sys.stderr.isatty():
            print(f"\r\033[K[{done + 1}/{steps}] {case.name}: {name}", end="", file=sys.stderr, flush=True)
        try:
            results.setdefault((case.name, name), []).append(case.work(port, pid))
        except Exception as error:
            raise RuntimeError(f"{case.name}, {name}: {error}") from error

    for name in brokers if once else ():
        with STARTS[name]() as (port, pid):
            Peer(port).close()
            for case in once:
                measure(case, name, port, pid)
    if often:
        with ExitStack() as stack:
            places = {name: stack.enter_context(STARTS[name]()) for name in brokers}
            for place in places.values():
                run(*place, Load(20_000))
            for _ in range(rounds):
                for case in often:
                    for name in brokers:
                        measure(case, name, *places[name])
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return results


TABLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("case", ("per_second", "cpu_us")),
    ("round trips", ("p50", "p99", "cpu_us")),
    ("memory", ("size",)),
)
TITLES = {"per_second": "per second", "cpu_us": "CPU us each", "p50": "p50 ms", "p99": "p99 ms", "size": "bytes each"}
FORMS = {"per_second": ",.0f", "cpu_us": ",.1f", "p50": ".2f", "p99": ".2f", "size": ",.0f"}


def machine() -> str:
    model = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        name = re.search(r"^model name\s*: (.*)$", info.read_text(), re.MULTILINE)
        model = f"{model} ({name[1]})" if name else model
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}, {platform.system()}"


def median(results: list[Result], what: str) -> float | None:
    figures = [figure for result in results if (figure := getattr(result, what)) is not None]
    return statistics.median(figures) if figures else None


def show(chosen: list[Case], results: Results, brokers: tuple[str, ...], rounds: int) -> None:
    """Tables in Markdown: how much better Harebell is (more per second; less CPU, time, memory), then the figures."""
    print(
        f"{machine()}; harebell is {harebell.build}; medians of {rounds} rounds; 100 bytes where nothing else is said\n"
    )
    for title, columns in TABLES:
        rows = []
        for case in chosen:
            figures = {name: [median(results[case.name, name], what) for what in columns] for name in brokers}
            if any(None in side for side in figures.values()):
                continue
            rows.append((case.name, figures))
        if title == "case":
            shown = {name for name, _ in rows}
        else:
            rows = [row for row in rows if row[0] not in shown]
        if rows:
            show_table(title, columns, rows, brokers)


def show_table(
    title: str,
    columns: tuple[str, ...],
    rows: list[tuple[str, dict[str, list[float | None]]]],
    brokers: tuple[str, ...],
) -> None:
    both = len(brokers) == 2
    width = max(len(title), *(len(name) for name, _ in rows))
    heads = [f"{TITLES[what]}: better by" for what in columns] if both else []
    heads += [f"{name}: {TITLES[what]}" for name in brokers for what in columns]
    print(f"| {title:{width}} | " + " | ".join(heads) + " |")
    print("|" + "-" * (width + 2) + "|" + "|".join("-" * (len(head) + 1) + ":" for head in heads) + "|")
    for name, figures in rows:
        cells = []
        if both:
            for what, ours, theirs in zip(columns, figures[brokers[0]], figures[brokers[1]], strict=True):
                assert ours is not None
                assert theirs is not None
                better = ours / theirs if what == "per_second" else theirs / ours if ours > 0 else float("inf")
                cells.append(f"{better:.1f}x")
        for broker in brokers:
            cells += [format(figure, FORMS[what]) for what, figure in zip(columns, figures[broker], strict=True)]
        print(f"| {name:{width}} | " + " | ".join(f"{c:>{len(h)}}" for c, h in zip(cells, heads, strict=True)) + " |")
    print()


def write_json(path: Path, chosen: list[Case], results: Results) -> None:
    """{"machine": ..., "cases": {case: {broker: [figures of a round]}}}"""
    figures = {
        case.name: {name: [asdict(result) for result in results[case.name, name]] for name in STARTS
                    if (case.name, name) in results}
        for case in chosen
    }  # fmt: skip
    path.write_text(json.dumps({"machine": machine(), "cases": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()

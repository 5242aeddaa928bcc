"""`harebell spark simulate`: routes traffic through a topology without a broker."""

from __future__ import annotations

import json as to_json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter
from rich.console import Console

from harebell.cli.spark.checks import check_output
from harebell.cli.spark.simulate_input import Messages, topology_from
from harebell.cli.spark.spark_job import DEFAULT_URL, Cluster, Url, run_job
from harebell.cli.spark.tables import (
    binding_text,
    bytes_text,
    count_text,
    file_text,
    listing,
    right,
    time_text,
    wide_console,
)
from harebell.cli.terminal.consoles import add_row
from harebell.cli.terminal.display import Display
from harebell.cli.terminal.output import line, say_json
from harebell.errors import InvalidArgument
from harebell.spark.jobs.simulate import Consumers, Limits, Plan, parse_consumers, plan

if TYPE_CHECKING:
    from harebell.routing.topology import Topology
    from harebell.spark.jobs.simulate import Simulation
    from harebell.spark.runtime.session import SparkSession

__all__ = ["simulate"]

DEFAULT: Final = Limits()


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster: `Limits` as options."""

    cores: Annotated[float, Parameter(help="Processor cores.")] = DEFAULT.cores
    utilisation: Annotated[float, Parameter(help="The share of them to plan with.")] = DEFAULT.utilisation
    publish_us: Annotated[float, Parameter(help="Processor time of a publish, microseconds.")] = DEFAULT.publish_us
    delivery_us: Annotated[
        float, Parameter(help="Processor time of a copy (queued, delivered, acknowledged), microseconds.")
    ] = DEFAULT.delivery_us
    queue_rate: Annotated[float, Parameter(help="Messages a second that one queue takes at most.")] = DEFAULT.queue_rate
    memory_gib: Annotated[float, Parameter(help="Memory, GiB.")] = DEFAULT.memory_gib
    watermark: Annotated[float, Parameter(help="The share of it at which publishers are stopped.")] = DEFAULT.watermark
    connection_bytes: Annotated[int, Parameter(help="Memory of a connection.")] = DEFAULT.connection_bytes
    queue_bytes: Annotated[int, Parameter(help="Memory of a queue.")] = DEFAULT.queue_bytes
    message_bytes: Annotated[int, Parameter(help="Memory of a waiting message.")] = DEFAULT.message_bytes
    disk_gib: Annotated[float | None, Parameter(help="Disk for messages, GiB; no limit unless given.")] = None
    replicas: Annotated[int, Parameter(help="Nodes that hold a quorum queue or a stream.")] = DEFAULT.replicas

    def limits(self) -> Limits:
        """Raises InvalidArgument."""
        return Limits(**asdict(self))


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Consumed:
    """The options about consumers, and about the nodes that hold the queues."""

    consumers: Annotated[Path | None, Parameter(help='A JSON file: {"queue or pattern": messages a second, ...}')] = (
        None
    )
    consumer: Annotated[
        tuple[str, ...],
        Parameter(negative=(), help="A queue (or a pattern with *) and its rate, as QUEUE=RATE; may be repeated."),
    ] = ()
    keep_up: Annotated[
        float | None, Parameter(help="Consumers of the other queues take so many times the average arrivals.")
    ] = None
    connections: Annotated[int | None, Parameter(help="Clients of the cluster; a profile's users unless given.")] = None

    def rates(self) -> Consumers:
        """Raises InvalidArgument."""
        rates: dict[str, float] = {}
        for text in self.consumer:
            name, equals, rate = text.rpartition("=")
            try:
                rates[name] = float(rate)
            except ValueError:
                equals = ""
            if not (name and equals and 0 <= rates[name] < 1e15):
                raise InvalidArgument(f"--consumer takes QUEUE=RATE, not {text!r}")
        if self.consumers is not None:
            try:
                document = to_json.loads(self.consumers.read_bytes())
            except OSError as error:
                raise InvalidArgument(f"{self.consumers}: {error.strerror}") from None
            except ValueError as error:
                raise InvalidArgument(f"{self.consumers}: not JSON: {error}") from None
            rates = {**parse_consumers(document), **rates}
        return Consumers(rates, self.keep_up)


def simulate(
    definitions: Annotated[
        Path | None, Parameter(help="A definitions file of Harebell or RabbitMQ; a profile has its own topology.")
    ] = None,
    *,
    messages: Messages = Messages(),  # noqa: B008  # frozen, as the others
    vhost: Annotated[str | None, Parameter(help="The virtual host, when the file has several.")] = None,
    consumed: Consumed = Consumed(),
    node: Node = Node(),
    top: Annotated[int, Parameter(help="How many queues, keys and bindings are listed.")] = 20,
    html: Annotated[Path | None, Parameter(help="Write a report into this file.")] = None,
    json: Annotated[bool, Parameter(negative=(), help="Print everything as JSON.")] = False,
    save_definitions: Annotated[
        Path | None, Parameter(help="Write a profile's topology into this file, to start from.")
    ] = None,
    url: Url = DEFAULT_URL,
    cluster: Cluster = Cluster(),  # noqa: B008
) -> int:
    """Show what a topology does with traffic: the messages of each queue, unroutable ones, backlogs.

    Nothing is published. The broker's own exchanges and bindings route the messages, and their numbers are exact;
    backlogs and nodes are estimated from them.
    """
    messages.check()
    rates, limits = consumed.rates(), node.limits()
    if top < 1:
        raise InvalidArgument(f"--top is 1 or more, not {top}")
    profile = messages.chosen()
    if definitions is None and profile is None:
        raise InvalidArgument("name a definitions file; only a profile brings a topology of its own")
    if save_definitions is not None and (profile is None or definitions is not None):
        raise InvalidArgument("--save-definitions writes a profile's topology: give --profile, and no definitions")
    topology = _topology(definitions, vhost, messages, save_definitions)
    connections = consumed.connections
    if connections is None:
        connections = profile.users if profile is not None else 0

    check_output("--html", html)
    cluster.settings()
    messages.ask(url)

    def work(spark: SparkSession, display: Display) -> Simulation:
        from harebell.spark.jobs.simulate import simulate as simulated

        frame = messages.frame(spark, url)
        with display.stage("route the messages"):
            return simulated(
                frame, topology, exchange=messages.exchange, window=messages.width(frame),
                duration=messages.duration, top=top,
            )  # fmt: skip

    result = run_job("simulate", cluster, work)
    planned = plan(result, topology, rates, limits, connections=connections)
    if html is not None:
        from harebell.cli.spark.simulate_page import page

        file_text(html, page(messages.what, result, planned, rates, limits, profile, top))
    if json:
        say_json(as_json(result, planned), indent=2)
    else:
        show(wide_console(), result, planned, rates.given, top)
    return 0


def _topology(definitions: Path | None, vhost: str | None, messages: Messages, save: Path | None) -> Topology:
    if definitions is not None:
        return topology_from(definitions, vhost)
    from harebell.routing.definitions import emit_definitions
    from harebell.spark.jobs.simulate import topology_of

    profile = messages.chosen()
    assert profile is not None
    text = to_json.dumps(emit_definitions(profile.definitions()), indent=1)
    if save is not None:
        file_text(save, text)
    return topology_of(text, vhost)


def as_json(result: Simulation, planned: Plan | None) -> dict[str, Any]:
    """All results, as --json prints them."""
    return {
        **asdict(result),
        "fan_out": result.fan_out,
        "unroutable_share": result.unroutable_share,
        "plan": None if planned is None else asdict(planned),
    }


def show(console: Console, result: Simulation, planned: Plan | None, consumers: bool, top: int) -> None:
    """Print the tables on the terminal."""
    say = console.print
    for remark in result.remarks:
        say(f"definitions: {remark}", highlight=False)
    over = f" in {time_text(result.seconds)}" if result.seconds else ""
    say(
        f"{result.messages:,} messages, {bytes_text(result.bytes)}{over}; {result.copies:,} copies in queues, "
        f"{result.fan_out:.2f} for each message",
        highlight=False,
    )
    if result.undated and result.undated == result.messages:
        say("no message has a timestamp: give --duration for rates, backlog and nodes", highlight=False)
    elif result.undated:
        say(f"{result.undated:,} messages have no timestamp, and are in no rate", highlight=False)
    _queues(console, result, planned, consumers, top)
    say(
        f"unroutable: {result.unroutable:,} messages, {result.unroutable_share:.2%}, "
        f"of {result.unroutable_key_count:,} keys",
        highlight=False,
    )
    if result.unroutable_keys:
        keys = listing("exchange", "routing key", right("messages"))
        for key in result.unroutable_keys:
            add_row(keys, key.exchange, key.routing_key, f"{key.messages:,}")
        say(keys)
    for reason, count in result.refused.items():
        say(f"refused: {count:,} messages: {reason}", highlight=False)
    _bindings(console, result, top)
    if planned is not None:
        _nodes(console, planned, consumers)


def _queues(console: Console, result: Simulation, planned: Plan | None, consumers: bool, top: int) -> None:
    columns = ["messages", "bytes"]
    if planned is not None:
        columns += ["a second", "at most"]
        if consumers:
            columns += ["consumed", "waits", "drained"]
    table = listing("queue", "type", *map(right, columns))
    for number, queue in enumerate(result.queues[:top]):
        cells = [queue.name, queue.queue_type, f"{queue.messages:,}", bytes_text(queue.bytes)]
        if planned is not None:
            its = planned.queues[number]
            cells += [count_text(sum(queue.arrivals) / result.seconds), count_text(its.peak_rate)]
            if consumers:
                waits = its.backlog
                cells += [count_text(waits.rate), count_text(waits.peak), time_text(waits.drain_seconds)]
        add_row(table, *cells)
    console.print(table)
    rest = result.queues[top:]
    if rest:
        console.print(f"{len(rest):,} more queues get {sum(q.messages for q in rest):,} copies", highlight=False)


def _bindings(console: Console, result: Simulation, top: int) -> None:
    used = [binding for binding in result.bindings if binding.messages]
    if used:
        table = listing("hot bindings", "from", "to", right("messages"))
        for each in used[: min(top, 10)]:
            to = f"{each.destination_type} {each.destination}"
            add_row(table, binding_text(each.binding_key, each.arguments), each.source, to, f"{each.messages:,}")
        console.print(table)
    idle = result.idle_bindings
    console.print(f"{len(idle):,} of {len(result.bindings):,} bindings took no message", highlight=False)
    for each in idle[: min(top, 10)]:
        to = f"{each.destination_type} {each.destination}"
        key = binding_text(each.binding_key, each.arguments)
        console.print(line(f"  {each.source} -> {to}: '{key}'"), highlight=False)


def _nodes(console: Console, planned: Plan, consumers: bool) -> None:
    its = planned.cluster
    waiting = "" if consumers else " (consumers are taken to keep up)"
    nodes = "1 node" if its.nodes == 1 else f"{its.nodes} nodes"
    console.print(
        f"a RabbitMQ cluster of {nodes} would carry it{waiting}: decided by {its.decided_by}; {its.cores:.1f} cores, "
        f"{bytes_text(its.memory_bytes)} of memory, {bytes_text(its.disk_bytes)} of messages at the busiest",
        highlight=False,
    )
    for queue, rate in its.too_busy:
        text = f"queue {queue} gets {rate:,.0f} messages a second: more than one queue can take"
        console.print(line(text), highlight=False)

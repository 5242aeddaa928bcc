"""What is measured, with RabbitMQ's names, so that its dashboards and rules work; our own begin with harebell_.

The three pages are those of RabbitMQ's plug-in: /metrics has the sums of all objects, /metrics/per-object a sample for
each queue, connection and channel, /metrics/detailed what is asked for, by the names of RabbitMQ's tables. A figure
that the broker does not have, because it would cost each message, is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import harebell
from harebell.admin.about import PRODUCT, PYTHON, VERSION, rabbitmq_version
from harebell.admin.context import Context
from harebell.admin.metrics.exposition import Family, Page, kind_of, labels
from harebell.admin.metrics.queues import QueueFigures, adding
from harebell.admin.metrics.rows import (
    CHANNEL,
    CHANNEL_LEFT,
    CHANNEL_PUBLISHED,
    CONNECTION,
    CONNECTION_COARSE,
    GLOBAL_LEFT,
    GLOBAL_PUBLISHED,
    LOGINS,
    QUEUE,
    QUEUE_COARSE,
    QUEUE_CONSUMERS,
    Row,
)
from harebell.admin.metrics.sums import PROTOCOLS, Sums, summing
from harebell.broker.clients import Channel, Connection
from harebell.broker.counts import ChannelCounts
from harebell.broker.queues.base import Queue
from harebell.broker.vhost import VirtualHost
from harebell.routing.steps import Steps

__all__ = ["TABLES", "Objects", "detailed", "per_object", "totals"]

STEP: Final = 64  # objects in one step
QUEUES: Final = (*QUEUE_COARSE, *QUEUE_CONSUMERS, *QUEUE)
STREAM_ERRORS: Final = (
    "access_refused", "authentication_failure", "frame_too_large", "internal_error", "precondition_failed",
    "publisher_does_not_exist", "sasl_authentication_failure_loopback", "sasl_challenge", "sasl_error",
    "sasl_mechanism_not_supported", "stream_already_exists", "stream_does_not_exist", "stream_not_available",
    "subscription_id_already_exists", "subscription_id_does_not_exist", "unknown_frame", "vhost_access_failure",
)  # fmt: skip
TYPES: Final = ("classic", "quorum", "stream")
DEATHS: Final = ("expired", "rejected", "maxlen", "delivery_limit")


class Objects(NamedTuple):
    """Which queues a page has: of these virtual hosts, and with names that match."""

    vhosts: list[VirtualHost]
    matches: Callable[[str], object] | None = None

    def queues(self) -> Iterator[tuple[VirtualHost, Queue]]:
        """The queues of these virtual hosts, whatever their names are."""
        for vhost in self.vhosts:
            for queue in tuple(vhost.queues.values()):
                if not queue.deleted:
                    yield vhost, queue


Table: TypeAlias = Callable[[Page, Context, Objects], Steps[None]]


def _families(page: Page, rows: Iterable[Row]) -> list[tuple[Family, Callable[[Any], float]]]:
    return [(page.family(name, kind_of(name), about), take) for name, about, take in rows]


def _writers(page: Page, rows: Iterable[Row]) -> list[tuple[str, Callable[[str], None], Callable[[Any], float]]]:
    """For rows of thousands of objects: the name of each family, what appends a line to it, and what takes a value."""
    return [(family.name, family.lines.append, take) for family, take in _families(page, rows)]


def _add(page: Page, rows: Iterable[Row], it: object, labels: str = "") -> None:
    for family, take in _families(page, rows):
        family.add(take(it), labels)


# -- the pages


def totals(context: Context) -> Steps[Page]:
    """The sums of all objects."""
    page = Page("rabbitmq_")
    yield from context.counts.refreshing()
    sums = yield from summing(context.node, context.told)
    there = (queue for _, queue in Objects(list(context.node.vhosts.values())).queues())
    queues = yield from adding(there, context.counts.unacked)
    yield from _node(page, context, "aggregated", queues)
    _add_globals(page, context, sums)
    everything = sums.channels[PROTOCOLS[0]]
    for protocol in PROTOCOLS[1:]:
        everything.add(sums.channels[protocol])
    _add(page, (*CHANNEL_PUBLISHED, *CHANNEL_LEFT), everything)
    yield from _add_sums(page, QUEUES, (queues,), sums)
    yield from _add_sums(page, (*CONNECTION_COARSE, *CONNECTION), _alive(tuple(context.node.connections)), sums)
    yield from _add_sums(page, CHANNEL, _channels(context), sums)
    return page


def per_object(context: Context) -> Steps[Page]:
    """A sample for each queue, connection and channel, and what there is one of."""
    page = Page("rabbitmq_")
    yield from context.counts.refreshing()
    sums = yield from summing(context.node, context.told)
    yield from _node(page, context, "per-object")
    _add_globals(page, context, sums)
    for table in PER_OBJECT:
        yield from table(page, context, Objects(list(context.node.vhosts.values())))
    return page


def detailed(context: Context, tables: Iterable[str], objects: Objects) -> Steps[Page]:
    """The tables that are asked for."""
    page = Page("rabbitmq_detailed_")
    yield from context.counts.refreshing()
    _identity(page, context, "detailed", "rabbitmq_")
    for name in tables:
        yield from TABLES[name](page, context, objects)
    return page


def _alive(connections: Iterable[Connection]) -> Iterable[Connection]:
    return (each for each in connections if each.user)


def _channels(context: Context) -> Iterable[Channel]:
    for connection in tuple(context.node.connections):
        yield from tuple(connection.channels.values())


def _add_sums(page: Page, rows: tuple[Row, ...], objects: Iterable[object], sums: Sums) -> Steps[None]:
    """The sums of these rows, but for those that must not become smaller when an object goes."""
    lasting: dict[str, float] = {
        "queue_messages_published_total": sum(each.publish for each in sums.queues.values()),
        "connection_incoming_bytes_total": sums.recv_oct,
        "connection_outgoing_bytes_total": sums.send_oct,
        "connection_incoming_packets_total": sums.recv_cnt,
        "connection_outgoing_packets_total": sums.send_cnt,
    }
    found: dict[str, float] = dict.fromkeys([name for name, _, _ in rows], 0)
    taken = [(name, take) for name, _, take in rows if name not in lasting]
    for number, each in enumerate(objects):
        for name, take in taken:
            found[name] += take(each)
        if not number % STEP:
            yield
    for name, about, _ in rows:
        page.family(name, kind_of(name), about).add(lasting.get(name, found[name]))


# -- what there is one of


def _identity(page: Page, context: Context, endpoint: str, prefix: str) -> None:
    node, kept = context.node, page.prefix
    page.prefix = prefix
    cluster = node.parameters.global_parameters.get("cluster_name")
    name = str(cluster.value) if cluster is not None else node.name
    page.family("identity_info", "gauge", "RabbitMQ node & cluster identity info").add(
        1, labels(rabbitmq_node=node.name, rabbitmq_cluster=name, rabbitmq_cluster_permanent_id=node.name,
                  rabbitmq_endpoint=endpoint)
    )  # fmt: skip
    version = rabbitmq_version(node)
    page.family("build_info", "gauge", "RabbitMQ & Erlang/OTP version info").add(
        1, labels(rabbitmq_version=version, erlang_version=PYTHON, prometheus_plugin_version=version,
                  prometheus_client_version=harebell.__version__, product_name=PRODUCT, product_version=VERSION)
    )  # fmt: skip
    page.prefix = kept


def _node(page: Page, context: Context, endpoint: str, queues: QueueFigures | None = None) -> Steps[None]:
    """`queues`: all of them, if they are added up already."""
    _identity(page, context, endpoint, page.prefix)
    for add in (_use_of_node, _limits_of_node, _syncs, _churn):
        add(page, context)
    alarms = context.node.alarms
    for name, alarm in (("memory_used_watermark", "memory"), ("free_disk_space_watermark", "disk")):
        page.family(f"alarms_{name}", "gauge", f"1 while the {alarm} alarm is in effect").add(int(alarm in alarms))
    page.family("alarms_file_descriptor_limit", "gauge", "1 while no descriptors are left").add(0)
    attempts = sorted(context.node.logins.attempts.items())
    for protocol, each in attempts:
        _add(page, LOGINS, each, labels(protocol=protocol))
    kept, page.prefix = page.prefix, "harebell_"
    commit = context.node.batch.commit
    page.family("sync_seconds", "histogram", "Duration of the syncs of the disk").add_histogram(commit.durations)
    page.family("sync_files", "histogram", "Files of each sync").add_histogram(commit.widths)
    page.family("loop_lag_seconds", "histogram", "How late the loop is").add_histogram(context.lag.seconds)
    page.family("works_waiting", "gauge", "Long works that wait for their turn").add(context.node.batch.slices.waiting)
    page.family("sessions", "gauge", "Sessions of AMQP 0-10").add(len(context.node.sessions))
    known = None if queues is None else (queues.in_memory_bytes, queues.memory - queues.in_memory_bytes)
    memory = yield from context.memory(known)
    for part, size in memory.items():
        page.family("memory_bytes", "gauge", "Memory by part").add(size, labels(part=part))
    page.prefix = kept


def _use_of_node(page: Page, context: Context) -> None:
    gauges = context.gauges
    _add_values(
        page,
        ("process_open_fds", "Open file descriptors", gauges.descriptors_used),
        ("process_open_tcp_sockets", "Open TCP sockets", gauges.sockets_used),
        ("process_resident_memory_bytes", "Memory used in bytes", gauges.memory_used),
        ("disk_space_available_bytes", "Disk space available in bytes", gauges.disk_free),
        ("erlang_processes_used", "Threads", gauges.threads),
    )


def _limits_of_node(page: Page, context: Context) -> None:
    gauges, limits = context.gauges, context.node.limits
    _add_values(
        page,
        ("process_max_fds", "Open file descriptors limit", gauges.descriptors_total),
        ("process_max_tcp_sockets", "Open TCP sockets limit", gauges.descriptors_total),
        ("resident_memory_limit_bytes", "Memory high watermark in bytes", gauges.memory_limit),
        ("disk_space_available_limit_bytes", "Free disk space low watermark in bytes", limits.disk_free_limit),
        ("erlang_processes_limit", "Threads limit", gauges.threads_total),
        ("erlang_uptime_seconds", "Node uptime", time.time() - context.started),
    )


def _syncs(page: Page, context: Context) -> None:
    syncs = context.node.batch.commit.durations
    _add_values(
        page,
        ("io_sync_total", "Total number of I/O sync operations", syncs.count),
        ("io_sync_time_seconds_total", "Total I/O sync time", syncs.total),
    )


def _add_values(page: Page, *values: tuple[str, str, float]) -> None:
    for name, about, value in values:
        page.family(name, kind_of(name), about).add(value)


def _churn(page: Page, context: Context) -> None:
    churn, sums = context.node.churn, context.counts.totals.values()
    for name, value in (
        ("connections_opened_total", churn.connection_created),
        ("connections_closed_total", churn.connection_closed),
        ("channels_opened_total", churn.channel_created),
        ("channels_closed_total", churn.channel_closed),
        ("queues_declared_total", churn.queue_declared),
        ("queues_created_total", churn.queue_created),
        ("queues_deleted_total", churn.queue_deleted),
    ):
        what, how, _ = name.split("_")
        page.family(name, "counter", f"Total number of {what} {how}").add(value)
    for name in ("connections", "channels", "consumers", "queues"):
        page.family(name, "gauge", f"{name.capitalize()} currently open").add(sum(getattr(each, name) for each in sums))


def _add_globals(page: Page, context: Context, sums: Sums) -> None:
    for protocol in PROTOCOLS:
        mine = labels(protocol=protocol)
        _add(page, GLOBAL_PUBLISHED, sums.channels[protocol], mine)
        about = "Total number of messages received from publishers using publisher confirms"
        page.family("global_messages_received_confirm_total", "counter", about).add(sums.confirmable[protocol], mine)
        page.family("global_publishers", "gauge", "Publishers currently connected").add(sums.publishers[protocol], mine)
        page.family("global_consumers", "gauge", "Consumers currently connected").add(sums.consumers[protocol], mine)
        for kind in TYPES:
            if (protocol, kind) in sums.queues:
                queue_type = f"rabbit_{kind}_queue"
                _add(page, GLOBAL_LEFT, sums.queues[protocol, kind], labels(protocol=protocol, queue_type=queue_type))
    routed = sum(each.publish for each in sums.queues.values())
    about = "Total number of messages routed to queues or streams, by any protocol"
    page.family("global_messages_routed_total", "counter", about).add(routed, labels(protocol=PROTOCOLS[0]))
    for (kind, strategy), reasons in sorted(context.node.lasting.dead.items()):
        names = [*DEATHS, *(["confirmed"] if strategy == "at_least_once" else [])]
        for reason in names:
            about = f"Total number of messages dead-lettered: {reason}"
            page.family(f"global_messages_dead_lettered_{reason}_total", "counter", about).add(
                reasons[reason], labels(queue_type=f"rabbit_{kind}_queue", dead_letter_strategy=strategy)
            )
    for error in STREAM_ERRORS:
        about = f"Total number of errors of the stream protocol, which is not here: {error}"
        page.family(f"global_stream_error_{error}_total", "counter", about).add(0, labels(protocol="stream"))


# -- a table of each kind of objects, with RabbitMQ's name of it


def _queue_table(rows: tuple[Row, ...], *, sized: bool = False) -> Table:
    def table(page: Page, context: Context, objects: Objects) -> Steps[None]:
        families, unacked, matches = _writers(page, rows), context.counts.unacked, objects.matches
        for number, (vhost, queue) in enumerate(objects.queues()):
            if matches is None or matches(queue.name):
                figures, mine = QueueFigures(), labels(vhost=vhost.name, queue=queue.name)
                figures.add(queue, unacked[queue], sized=sized)
                for name, append, take in families:
                    append(f"{name}{mine} {take(figures)}\n")
            if not number % STEP:
                yield

    return table


def _connection_table(rows: tuple[Row, ...]) -> Table:
    def table(page: Page, context: Context, objects: Objects) -> Steps[None]:
        families, vhosts = _writers(page, rows), set(objects.vhosts)
        for number, each in enumerate(_alive(tuple(context.node.connections))):
            if each.vhost in vhosts:
                mine = labels(connection=each.name)
                for name, append, take in families:
                    append(f"{name}{mine} {take(each)}\n")
            if not number % STEP:
                yield

    return table


def _channel_table(rows: tuple[Row, ...], *, counts: bool = False) -> Table:
    def table(page: Page, context: Context, objects: Objects) -> Steps[None]:
        families, vhosts = _writers(page, rows), set(objects.vhosts)
        for number, each in enumerate(_channels(context)):
            if each.connection.vhost in vhosts:
                mine = labels(channel=f"{each.connection.name} ({each.number})")
                figures: Channel | ChannelCounts = each.counts if counts else each
                for name, append, take in families:
                    append(f"{name}{mine} {take(figures)}\n")
            if not number % STEP:
                yield

    return table


def _single(add: Callable[[Page, Context], None]) -> Table:
    def table(page: Page, context: Context, objects: Objects) -> Steps[None]:
        add(page, context)
        yield

    return table


OF_CHANNELS: Final[dict[str, Table]] = {
    "channel_metrics": _channel_table(CHANNEL),
    "channel_exchange_metrics": _channel_table(CHANNEL_PUBLISHED, counts=True),
    "channel_queue_metrics": _channel_table(CHANNEL_LEFT, counts=True),
}
OF_OBJECTS: Final[dict[str, Table]] = {
    "queue_coarse_metrics": _queue_table(QUEUE_COARSE),
    "queue_consumer_count": _queue_table(QUEUE_CONSUMERS),
    "queue_metrics": _queue_table(QUEUE, sized=True),
    "connection_coarse_metrics": _connection_table(CONNECTION_COARSE),
    "connection_metrics": _connection_table(CONNECTION),
    **OF_CHANNELS,
}
PER_OBJECT: Final[tuple[Table, ...]] = (
    _queue_table(QUEUES, sized=True),
    _connection_table((*CONNECTION_COARSE, *CONNECTION)),
    *OF_CHANNELS.values(),
)
"""The same, with all figures of a queue and of a connection at a time."""
TABLES: Final[dict[str, Table]] = {
    **OF_OBJECTS,
    "connection_churn_metrics": _single(_churn),
    "node_coarse_metrics": _single(_use_of_node),
    "node_metrics": _single(_limits_of_node),
    "node_persister_metrics": _single(_syncs),
}

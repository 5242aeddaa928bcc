"""A connection, and a channel or a session, in RabbitMQ's form."""

from __future__ import annotations

from typing import Any

from harebell.admin.context import Context
from harebell.admin.history.ranges import NONE, Ranges
from harebell.admin.shapes.consumers import consumer
from harebell.admin.shapes.names import channel_name, split_address
from harebell.admin.shapes.queues import connection_details, idle_since
from harebell.admin.shapes.stats import channel_stats, with_details
from harebell.broker.clients import Channel, Connection
from harebell.broker.operations.definitions import json_table

__all__ = ["channel", "channel_alone", "connection", "connection_alone"]

PROTOCOLS = {"{0,9,1}": "AMQP 0-9-1", "{0,10}": "AMQP 0-10"}


def connection(context: Context, it: Connection, ranges: Ranges = NONE) -> dict[str, Any]:
    peer_host, peer_port = split_address(it.peer)
    host, port = split_address(it.local)
    protocol, cipher = it.tls or (None, None)
    octets = {"recv_oct": it.recv_oct, "send_oct": it.send_oct}
    return {
        "auth_mechanism": it.mechanism,
        "channel_max": it.channel_max,
        "channels": len(it.channels),
        "client_properties": json_table(it.client_properties) if it.client_properties else {},
        "connected_at": it.connected_at,
        "frame_max": it.frame_max,
        "host": host,
        "name": it.name,
        "node": context.node.name,
        "peer_cert_issuer": None,
        "peer_cert_subject": None,
        "peer_cert_validity": None,
        "peer_host": peer_host,
        "peer_port": peer_port,
        "port": port,
        "protocol": PROTOCOLS[it.protocol],
        "recv_cnt": it.recv_cnt,
        "send_cnt": it.send_cnt,
        "send_pend": it.unsent,
        "ssl": it.tls is not None,
        "ssl_cipher": cipher,
        "ssl_hash": None,
        "ssl_key_exchange": None,
        "ssl_protocol": protocol.lower() if protocol else None,
        "state": it.state,
        "timeout": it.heartbeat,
        "type": "network",
        "user": it.user,
        "user_who_performed_action": it.user,
        "vhost": it.vhost.name,
        **with_details(context, context.sampler.connections, it, octets, ranges.data_rates),
    }


def connection_alone(context: Context, it: Connection, ranges: Ranges) -> dict[str, Any]:
    """A connection as it is alone: RabbitMQ writes "" there for what it has not of TLS, and null in lists."""
    found = connection(context, it, ranges)
    return {name: "" if value is None else value for name, value in found.items()}


def channel(context: Context, it: Channel, ranges: Ranges = NONE) -> dict[str, Any]:
    client = it.connection
    found: dict[str, Any] = {
        "acks_uncommitted": it.uncommitted_acks,
        "confirm": it.confirming,
        "connection_details": connection_details(client),
        "consumer_count": len(it.consumers),
        "global_prefetch_count": it.global_prefetch_count,
        "messages_unacknowledged": it.unacked_count,
        "messages_uncommitted": it.uncommitted,
        "messages_unconfirmed": it.unconfirmed,
        "name": channel_name(client.name, it.number),
        "node": context.node.name,
        "number": it.number,
        "prefetch_count": it.prefetch_count,
        "state": "flow" if client.state == "flow" else "running",
        "transactional": it.transactional,
        "user": client.user,
        "user_who_performed_action": client.user,
        "vhost": client.vhost.name,
    }
    stats = channel_stats(context, context.sampler.channels, it, it.counts, ranges)
    if stats:
        found["message_stats"] = stats
    since = idle_since(context, context.sampler.channels, it, client.connected_at)
    if since is not None:
        found["idle_since"] = since
    return found


def channel_alone(context: Context, it: Channel, ranges: Ranges) -> dict[str, Any]:
    """A channel as it is alone: with its consumers."""
    found = channel(context, it, ranges)
    found["consumer_details"] = [consumer(context, each) for each in it.consumers.values()]
    found["deliveries"] = found["publishes"] = []  # of RabbitMQ's rates mode "detailed"
    return found

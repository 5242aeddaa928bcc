"""The commands list_...: their columns, which of them a call may ask for, and where the HTTP API has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from harebell.cli.ctl.call import NO_SUCH_OBJECT, Call, Failed, WrongUsage, need_vhost
from harebell.cli.http_api.failures import Missing
from harebell.cli.listing import value_at

__all__ = ["LISTS", "list_objects"]

Row = dict[str, Any]


class List(NamedTuple):
    """A list: what it says first, the path, the columns by default, and all of them: where they are in an object.

    `fixed`: a call cannot choose columns. `in_vhost`: the path ends with the virtual host.
    """

    banner: str
    path: str
    columns: Sequence[str]
    keys: Mapping[str, str]
    in_vhost: bool = False
    fixed: bool = False
    change: Callable[[Row], Row] = lambda row: row


def _same(*names: str, **others: str) -> dict[str, str]:
    return {**{name: name for name in names}, **others}


QUEUE_KEYS: Final = _same(
    "name", "durable", "auto_delete", "arguments", "policy", "operator_policy", "effective_policy_definition",
    "exclusive", "exclusive_consumer_tag", "single_active_consumer_tag", "messages_ready", "messages_unacknowledged",
    "messages", "messages_ready_ram", "messages_unacknowledged_ram", "messages_ram", "messages_persistent",
    "message_bytes", "message_bytes_ready", "message_bytes_unacknowledged", "message_bytes_ram",
    "message_bytes_persistent", "head_message_timestamp", "consumers", "consumer_utilisation", "consumer_capacity",
    "memory", "state", "type",
)  # fmt: skip
CONNECTION_KEYS: Final = _same(
    "name", "port", "host", "peer_port", "peer_host", "ssl", "ssl_protocol", "ssl_key_exchange", "ssl_cipher",
    "ssl_hash", "peer_cert_subject", "peer_cert_issuer", "peer_cert_validity", "state", "channels", "protocol",
    "auth_mechanism", "user", "vhost", "timeout", "frame_max", "channel_max", "client_properties", "recv_oct",
    "recv_cnt", "send_oct", "send_cnt", "send_pend", "connected_at", "user_provided_name", pid="name",
)  # fmt: skip
CHANNEL_KEYS: Final = _same(
    "name", "number", "user", "vhost", "transactional", "confirm", "consumer_count", "messages_unacknowledged",
    "messages_uncommitted", "acks_uncommitted", "messages_unconfirmed", "prefetch_count", "global_prefetch_count",
    pid="name", connection="connection_details.name",
)  # fmt: skip
PROTOCOLS: Final = {"AMQP 0-9-1": "{0,9,1}", "AMQP 0-10": "{0,10}"}


def _connection(row: Row) -> Row:
    return {**row, "protocol": PROTOCOLS.get(str(row.get("protocol")), row.get("protocol"))}


def _policy(row: Row) -> Row:
    return {**row, "definition": json.dumps(row["definition"], ensure_ascii=False, separators=(",", ":"))}


def _parameter(row: Row) -> Row:
    return {**row, "value": json.dumps(row["value"], ensure_ascii=False, separators=(",", ":"))}


def _user(row: Row) -> Row:
    tags = row["tags"]
    return {**row, "tags": tags.split(",") if isinstance(tags, str) else tags}


def _vhost(row: Row) -> Row:
    return {"description": "", "tags": [], **row}


POLICY_COLUMNS: Final = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
PERMISSION_COLUMNS: Final = ("configure", "write", "read")

LISTS: Final[Mapping[str, List]] = {
    "list_queues": List(
        "Listing queues for vhost {vhost} ...", "queues", ("name", "messages"), QUEUE_KEYS, in_vhost=True
    ),
    "list_exchanges": List(
        "Listing exchanges for vhost {vhost} ...", "exchanges", ("name", "type"),
        _same("name", "type", "durable", "auto_delete", "internal", "arguments", "policy"), in_vhost=True,
    ),
    "list_bindings": List(
        "Listing bindings for vhost {vhost}...", "bindings",
        ("source_name", "source_kind", "destination_name", "destination_kind", "routing_key", "arguments"),
        _same(
            "source_kind", "routing_key", "arguments", "vhost", source_name="source", destination_name="destination",
            destination_kind="destination_type",
        ),
        in_vhost=True, change=lambda row: {**row, "source_kind": "exchange"},
    ),
    "list_connections": List(
        "Listing connections ...", "connections", ("user", "peer_host", "peer_port", "state"), CONNECTION_KEYS,
        change=_connection,
    ),
    "list_channels": List(
        "Listing channels ...", "channels", ("pid", "user", "consumer_count", "messages_unacknowledged"), CHANNEL_KEYS
    ),
    "list_consumers": List(
        "Listing consumers in vhost {vhost} ...", "consumers",
        ("queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count", "active", "arguments"),
        _same(
            "consumer_tag", "ack_required", "prefetch_count", "active", "activity_status", "arguments",
            queue_name="queue.name", channel_pid="channel_details.name",
        ),
        in_vhost=True,
    ),
    "list_users": List(
        "Listing users ...", "users", ("user", "tags"), _same("tags", user="name"), fixed=True, change=_user
    ),
    "list_vhosts": List(
        "Listing vhosts ...", "vhosts", ("name",),
        _same("name", "tracing", "description", "tags", "default_queue_type", "cluster_state"), change=_vhost,
    ),
    "list_policies": List(
        'Listing policies for vhost "{vhost}" ...', "policies", POLICY_COLUMNS, _same(*POLICY_COLUMNS), in_vhost=True,
        fixed=True, change=_policy,
    ),
    "list_operator_policies": List(
        'Listing operator policy overrides for vhost "{vhost}" ...', "operator-policies", POLICY_COLUMNS,
        _same(*POLICY_COLUMNS), in_vhost=True, fixed=True, change=_policy,
    ),
    "list_permissions": List(
        'Listing permissions for vhost "{vhost}" ...', "vhosts/{vhost}/permissions", ("user", *PERMISSION_COLUMNS),
        _same("user", *PERMISSION_COLUMNS), fixed=True,
    ),
    "list_topic_permissions": List(
        'Listing topic permissions for vhost "{vhost}" ...', "vhosts/{vhost}/topic-permissions",
        ("user", "exchange", "write", "read"), _same("user", "exchange", "write", "read"), fixed=True,
    ),
    "list_user_permissions": List(
        'Listing permissions for user "{user}" ...', "users/{user}/permissions", ("vhost", *PERMISSION_COLUMNS),
        _same("vhost", *PERMISSION_COLUMNS), fixed=True,
    ),
    "list_user_topic_permissions": List(
        'Listing topic permissions for user "{user}" ...', "users/{user}/topic-permissions",
        ("vhost", "exchange", "write", "read"), _same("vhost", "exchange", "write", "read"), fixed=True,
    ),
    "list_parameters": List(
        'Listing runtime parameters for vhost "{vhost}" ...', "parameters", ("component", "name", "value"),
        _same("component", "name", "value"), fixed=True, change=_parameter,
    ),
    "list_global_parameters": List(
        "Listing global runtime parameters ...", "global-parameters", ("name", "value"), _same("name", "value"),
        fixed=True, change=_parameter,
    ),
}  # fmt: skip


def list_objects(call: Call) -> int:
    """Print a list."""
    it = LISTS[call.command]
    names = {"vhost": call.vhost}
    chosen = list(call.arguments)
    if "{user}" in it.path:
        if not chosen:
            raise WrongUsage("not enough arguments.")
        names["user"] = chosen.pop(0)
    if it.fixed and chosen:
        raise WrongUsage("too many arguments.")
    columns = [name for each in chosen for name in each.replace(",", " ").split()] or list(it.columns)
    unknown = [name for name in columns if name not in it.keys]
    if unknown:
        raise WrongUsage(f"Info key(s) {','.join(unknown)} are not supported: there are {', '.join(it.keys)}")
    if call.command == "list_queues":
        call.banner(f"Timeout: {call.options['timeout']:.1f} seconds ...")
    call.banner(it.banner.format(**names))
    rows = [] if call.options["offline"] else _fetched(call, it, names)  # one node has none that is not reachable
    return call.show(columns, [{name: value_at(row, it.keys[name]) for name in columns} for row in rows])


def _fetched(call: Call, it: List, names: Mapping[str, str]) -> list[Row]:
    path = [part.format(**names) for part in it.path.split("/")]
    if it.in_vhost:
        path.append(call.vhost)
    try:
        rows = [it.change(row) for row in call.api.get(*path)]
    except Missing as error:
        if "user" in names:
            raise Failed(f'{{:no_such_user, "{names["user"]}"}}') from error
        if it.in_vhost and not it.fixed:
            return []  # rabbitmqctl lists nothing there
        raise Failed(f"Virtual host '{call.vhost}' does not exist", NO_SUCH_OBJECT, title="") from error
    if call.command == "list_parameters":
        need_vhost(call)
        return [row for row in rows if row["vhost"] == call.vhost]
    return rows

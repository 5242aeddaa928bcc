"""Compares two answers of an HTTP API: status, headers that mean something, and JSON key by key.

A difference is a line: where it is, and how it shows. Values that differ from run to run are compared by their type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.admin.kit import Reply

__all__ = ["differences", "plain"]

VOLATILE: Final = re.compile(
    r"(^|\.)(timestamp|connected_at|idle_since|created_at|memory|mem_.*|uptime|os_pid|port|peer_port|local_port|name_|"
    r"recv_(oct|cnt)|send_(oct|cnt)|rate|avg|avg_rate|sample|processors|fd_.*|disk_.*|proc_.*|sockets_.*|io_.*|"
    r"context_switches|gc_.*|run_queue|password_hash|hashing_algorithm|.*version|cluster_name|consumer_capacity|"
    r"consumer_utilisation|message_bytes.*|head_message_timestamp|db_dir|auth_attempts.*|missing|ports|reason|"
    r"connection_(created|closed)|channel_(created|closed)|queue_(created|declared|deleted)|net_ticktime|"
    r"node_process_.*|heartbeat|timeout|frame_max|channel_max|product_.*|mem_calculation_strategy|rates_mode|"
    r"statistics_db_event_queue|log_files|config_files|ip_address|protocol|management_version|memory\..*|description|"
    r"messages_(ram|paged_out|ready_ram))$"
)
"""Keys whose values may differ; their types may not."""
TOOLS: Final = "rabbitmqcli"
"""How a node's name begins that is a command line tool's: others see it for as long as it runs."""
NAMES: Final = (
    "vhost", "source", "destination", "routing_key", "component", "name", "user", "exchange", "protocol", "tag",
)  # fmt: skip


def differences(ours: Reply, theirs: Reply, *, ordered: bool = False) -> Iterator[str]:
    """What is different in our answer, each with its place in the JSON. `ordered`: the order of lists matters."""
    if ours.status != theirs.status:
        yield f"status {theirs.status}, ours {ours.status}"
        return
    if bool(ours.headers.get("location")) != bool(theirs.headers.get("location")):
        yield f"location {theirs.headers.get('location')}, ours {ours.headers.get('location')}"
    elif _location(ours) != _location(theirs):
        yield f"location {_location(theirs)}, ours {_location(ours)}"
    if bool(ours.body) != bool(theirs.body):
        yield f"body {theirs.body[:60]!r}, ours {ours.body[:60]!r}"
        return
    if not ours.body or ours.headers.get("content-type") != "application/json":
        return
    mine, others = ours.json, theirs.json
    if ours.status >= 400 and isinstance(others, Mapping):
        if mine.get("error") != others.get("error"):
            yield f"error {others.get('error')}, ours {mine.get('error')}"
        if mine.keys() != others.keys():
            yield f"keys {sorted(others)}, ours {sorted(mine)}"
        return
    yield from _compared("", mine, others)
    if ordered:
        mine, others = (each["items"] if isinstance(each, Mapping) else each for each in (mine, others))
        if list(_by_name(mine)) != list(_by_name(others)):
            yield f"order {list(_by_name(others))}, ours {list(_by_name(mine))}"


def _location(reply: Reply) -> str:
    """Where the binding is that was made, but for the hash of its arguments.

    RabbitMQ writes a space in the destination in a way that no path has, and leaves its line ends in.
    """
    where = reply.headers.get("location", "").replace("+", "%20").replace("%0A", "")
    return re.sub(r"~[\w-]+$", "~hash", where)


def _compared(path: str, ours: Any, theirs: Any) -> Iterator[str]:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in sorted(ours.keys() | theirs.keys()):
            place = f"{path}.{key}" if path else key
            if key not in ours:
                yield f"-{place}"
            elif key not in theirs:
                yield f"+{place}"
            else:
                yield from _compared(place, ours[key], theirs[key])
    elif isinstance(ours, list) and isinstance(theirs, list):
        mine, others = _by_name(ours), _by_name(theirs)
        for name in sorted(mine.keys() | others.keys()):
            if name.startswith(TOOLS):
                continue
            if name not in mine:
                yield f"-{path}[{name}]"
            elif name not in others:
                yield f"+{path}[{name}]"
            else:
                yield from _compared(f"{path}[]", mine[name], others[name])
    elif _kind(ours) != _kind(theirs):
        yield f"{path} {_kind(theirs)}, ours {_kind(ours)}"
    elif ours != theirs and not VOLATILE.search(path.replace("[]", "")):
        yield f"{path} {theirs!r}, ours {ours!r}"


def _by_name(items: list[Any]) -> dict[str, Any]:
    """The items by what they are called; by their places, if they have no names."""
    found: dict[str, Any] = {}
    for place, item in enumerate(items):
        named = isinstance(item, Mapping) and [str(item[name]) for name in NAMES if name in item]
        name = " ".join(named) if named else item if isinstance(item, str) else str(place)
        found[name if name not in found else f"{name} {place}"] = item
    return found


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "list"
    return "object"


def plain(reply: Reply, names: Mapping[str, str]) -> Reply:
    """The answer with these texts, which differ from broker to broker, replaced by others."""
    body = reply.body
    for name, instead in names.items():
        body = body.replace(json.dumps(name)[1:-1].encode(), instead.encode())
    return Reply(reply.status, reply.headers, re.sub(rb'(properties_key":"[^"~]*~)[\w-]+', rb"\1hash", body))

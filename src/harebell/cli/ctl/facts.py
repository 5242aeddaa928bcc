"""The commands that describe the broker as a whole: status, listeners, memory, versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from harebell import __version__
from harebell.cli.ctl.call import Call, WrongUsage
from harebell.cli.listing import cell
from harebell.cli.terminal.output import say, say_json, say_row

__all__ = ["FACTS"]

BYTES: Final = {"bytes": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3}


def listeners(call: Call) -> int:
    call.banner(f"Asking node {call.node()} to report its protocol listeners ...")
    found = call.listeners()
    if call.options["formatter"] == "json":
        rows = [
            {"interface": each["ip_address"], "node": each["node"], "port": each["port"], "protocol": each["protocol"]}
            for each in found
        ]
        return say_json({"listeners": rows, "node": call.node(), "result": "ok"})
    for each in found:
        interface = f"[{each['ip_address']}]" if ":" in each["ip_address"] else each["ip_address"]
        say(f"Interface: {interface}, port: {each['port']}, protocol: {each['protocol']}")
    return 0


def status(call: Call) -> int:
    """The facts of the broker that the HTTP API has; figures in bytes."""
    overview = call.api.get("overview")
    node = call.api.get("nodes", overview["node"])
    facts: dict[str, Any] = {
        "product_name": overview.get("product_name", "RabbitMQ"),
        "product_version": overview.get("product_version", overview["rabbitmq_version"]),
        "rabbitmq_version": overview["rabbitmq_version"],
        "node": overview["node"],
        "pid": int(node["os_pid"]),
        "uptime": node["uptime"] // 1000,
        "is_under_maintenance": bool(node.get("being_drained", False)),
        "alarms": [name for name in ("mem_alarm", "disk_free_alarm") if node.get(name)],
        "memory_used": node["mem_used"],
        "vm_memory_high_watermark_limit": node["mem_limit"],
        "disk_free": node["disk_free"],
        "disk_free_limit": node["disk_free_limit"],
        "file_descriptors": {"total_limit": node["fd_total"], "total_used": node["fd_used"]},
        "listeners": [
            {"interface": each["ip_address"], "node": each["node"], "port": each["port"], "protocol": each["protocol"]}
            for each in overview["listeners"]
        ],
        "totals": {name: overview["object_totals"][f"{name}s"] for name in ("connection", "queue")}
        if "object_totals" in overview
        else {},
    }
    if call.machine:
        return say_json(facts)
    call.banner(f"Status of node {overview['node']} ...")
    for name, value in facts.items():
        shown = [cell(each) for each in value] if isinstance(value, list) else [cell(value)]
        say(f"{name.replace('_', ' ')}: {'; '.join(shown) or '(none)'}")
    return 0


def memory_breakdown(call: Call) -> int:
    unit, node = (call.options["unit"] or "gb").lower(), call.node()
    if unit not in BYTES:
        raise WrongUsage(f"--unit takes one of {', '.join(BYTES)}")
    call.banner(f"Reporting memory breakdown on node {node}...")
    parts = call.api.get("nodes", node, "memory")["memory"]
    numbers = {name: value for name, value in parts.items() if isinstance(value, int)}
    whole = sum(numbers.values()) or 1
    largest = sorted(numbers.items(), key=lambda each: -each[1])
    shares = {name: round(value / whole * 100, 2) for name, value in largest}
    if call.options["formatter"] == "json":
        return say_json({name: {"bytes": value, "percentage": shares[name]} for name, value in largest})
    for name, value in largest:
        shown = value if unit == "bytes" else round(value / BYTES[unit], 4)
        say_row([f"{name}: {shown} {unit} ({shares[name]}%)"], "")
    return 0


def server_version(call: Call) -> int:
    node = call.node()
    call.banner(f"Asking node {node} for its RabbitMQ version...")
    return say(str(call.api.get("overview")["rabbitmq_version"]))


def version(call: Call) -> int:
    return say(__version__)


FACTS: Final[Mapping[str, tuple[Callable[..., int], int, int | None]]] = {
    "listeners": (listeners, 0, 0),
    "status": (status, 0, 0),
    "memory_breakdown": (memory_breakdown, 0, 0),
    "server_version": (server_version, 0, 0),
    "version": (version, 0, 0),
}
"""The commands: the function, and the least and largest number of its arguments."""

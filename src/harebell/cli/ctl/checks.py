"""The commands that look at the broker as a whole: its status, and the checks of rabbitmq-diagnostics."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from harebell import __version__
from harebell.cli.ctl.call import Call, Failed
from harebell.cli.http_api.failures import RequestFailed
from harebell.cli.listing import cell
from harebell.cli.terminal.output import say, say_json, say_row

__all__ = ["CHECKS"]


def check_running(call: Call) -> int:
    node = call.node()
    call.banner(f"Checking if RabbitMQ is running on node {node} ...")
    call.banner(f"RabbitMQ on node {node} is fully booted and running")
    return 0


def ping(call: Call) -> int:
    call.banner(f"Will ping {call.api.address.peer}. Timeout: {int(call.options['timeout'] * 1000)} ms.")
    call.node()
    call.banner("Ping succeeded")
    return 0


def await_startup(call: Call) -> int:
    call.node()
    return 0


def check_alarms(call: Call) -> int:
    node, local = call.node(), call.command == "check_local_alarms"
    call.banner(f"Asking node {node} to report any local resource alarms ...")
    _check(call, "local-alarms" if local else "alarms")
    call.banner(f"Node {node} reported no {'local alarms' if local else 'alarms, local or clusterwide'}")
    return 0


def check_virtual_hosts(call: Call) -> int:
    node = call.node()
    call.banner(f"Checking if all vhosts are running on node {node} ...")
    _check(call, "virtual-hosts")
    call.banner(f"Node {node} reported all vhosts as running")
    return 0


def _check(call: Call, name: str) -> None:
    """Raise Failed when a health check of the broker fails."""
    try:
        call.api.get("health", "checks", name)
    except RequestFailed as error:
        if error.exit_status != 1:
            raise
        raise Failed(str(error)) from error


def check_port_connectivity(call: Call) -> int:
    """Dial each port of the broker, at the host of the HTTP API unless it listens at another address."""
    node, open_ports = call.node(), set[int]()
    call.banner(f"Testing TCP connections to all active listeners on node {node} ...")
    for each in _listeners(call):
        if each["protocol"] == "clustering":
            continue  # of Erlang's nodes: no client dials it
        host = call.api.address.host if each["ip_address"] in ("::", "0.0.0.0") else each["ip_address"]
        try:
            socket.create_connection((host, each["port"]), timeout=call.options["timeout"]).close()
        except OSError as error:
            raise Failed(f"port {each['port']} ({each['protocol']}) at {host} does not answer: {error}") from error
        open_ports.add(each["port"])
    call.banner(f"Successfully connected to ports {', '.join(map(str, sorted(open_ports)))} on node {node}.")
    return 0


def listeners(call: Call) -> int:
    call.banner(f"Asking node {call.node()} to report its protocol listeners ...")
    found = _listeners(call)
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


def _listeners(call: Call) -> list[dict[str, Any]]:
    return list(call.api.get("overview")["listeners"])


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
    node = call.node()
    call.banner(f"Reporting memory breakdown on node {node}...")
    parts = call.api.get("nodes", node, "memory")["memory"]
    numbers = {name: value for name, value in parts.items() if isinstance(value, int)}
    if call.machine:
        return say_json(numbers)
    whole = sum(numbers.values()) or 1
    for name, value in sorted(numbers.items(), key=lambda each: -each[1]):
        say_row([f"{name}: {value / 1e9:.4f} gb ({value / whole * 100:.2f}%)"], "")
    return 0


def server_version(call: Call) -> int:
    node = call.node()
    call.banner(f"Asking node {node} for its RabbitMQ version...")
    return say(str(call.api.get("overview")["rabbitmq_version"]))


def version(call: Call) -> int:
    return say(__version__)


CHECKS: Final[Mapping[str, Callable[[Call], int]]] = {
    "check_running": check_running,
    "check_local_alarms": check_alarms,
    "check_alarms": check_alarms,
    "check_port_connectivity": check_port_connectivity,
    "check_virtual_hosts": check_virtual_hosts,
    "ping": ping,
    "await_startup": await_startup,
    "listeners": listeners,
    "status": status,
    "memory_breakdown": memory_breakdown,
    "server_version": server_version,
    "version": version,
}

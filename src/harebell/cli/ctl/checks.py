"""The checks of rabbitmq-diagnostics: the status is 0 when a check holds, and 69 with the reason when it fails."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from harebell.cli.ctl.call import Call, Failed, WrongUsage
from harebell.cli.http_api.failures import RequestFailed
from harebell.cli.terminal.output import say, say_json

__all__ = ["CHECKS"]


RUNNING: Final = "RabbitMQ on node {} is fully booted and running"
UNITS: Final = ("days", "weeks", "months", "years")


def check_running(call: Call) -> int:
    node = call.node()
    call.banner(
        f"Checking if RabbitMQ is running on node {node} ..."
        if call.command == "check_running"
        else f"Asking node {node} for its status ..."
    )
    text = RUNNING.format(node)
    return call.result(text) if call.command == "check_running" else call.result(text, message=text, result=True)


def is_booting(call: Call) -> int:
    """The HTTP API answers once the broker has started, so one that answers is not booting."""
    node = call.node()
    call.banner(f"Asking node {node} for its boot status ...")
    text = f"RabbitMQ on node {node} is fully booted (check with is_running), stopped or has not started booting yet"
    return call.result(text, message=text, result=False)


def ping(call: Call) -> int:
    call.banner(f"Will ping {call.api.address.peer}. Timeout: {int(call.options['timeout'] * 1000)} ms.")
    call.node()
    return call.result("Ping succeeded")


def await_startup(call: Call) -> int:
    call.node()
    return 0


def check_alarms(call: Call) -> int:
    node, local = call.node(), call.command == "check_local_alarms"
    call.banner(f"Asking node {node} to report any local resource alarms ...")
    _check(call, "local-alarms" if local else "alarms")
    return call.result(
        f"Node {node} reported no {'local alarms' if local else 'alarms, local or clusterwide'}", result="ok"
    )


def alarms(call: Call) -> int:
    """List the alarms; other than the checks, this succeeds when there are some."""
    node = call.node()
    call.banner(f"Asking node {node} to report any known resource alarms ...")
    facts = call.api.get("nodes", node)
    active = [name for name, key in (("memory", "mem_alarm"), ("disk", "disk_free_alarm")) if facts.get(key)]
    if call.options["formatter"] == "json":
        rows = [{"node": node, "resource": name} for name in active]
        return say_json({"alarms": rows, "node": node, "result": "ok"})
    if not active:
        return say(f"Node {node} reported no alarms, local or clusterwide")
    for name in active:
        say(f"{name.capitalize()} alarm on node {node}")
    return 0


def check_virtual_hosts(call: Call) -> int:
    node = call.node()
    call.banner(f"Checking if all vhosts are running on node {node} ...")
    _check(call, "virtual-hosts")
    return call.result(f"Node {node} reported all vhosts as running", result="ok")


def check_quorum(call: Call) -> int:
    node = call.node()
    call.banner(f"Checking if node {node} is critical for quorum of any quorum queues ...")
    if _check(call, "node-is-quorum-critical").get("reason") == "single node cluster":
        text = f"Node {node} seems to be the only one in a single node cluster, the check does not apply"
    else:
        text = f"There are no quorum queues that would lose their quorum if node {node} is shut down"
    return call.result(text)


def check_certificates(call: Call) -> int:
    within, unit = call.options["within"], call.options["unit"] or "weeks"
    within = 4 if within is None else within
    if within < 1 or unit not in UNITS:
        raise WrongUsage(f"--within takes a number from 1 on, and --unit one of {', '.join(UNITS)}")
    call.banner(f"Checking certificate expiration on node {call.node()} ...")
    _check(call, "certificate-expiration", str(within), unit)
    return call.result(f"No certificates are expiring within {within} {unit}.", result="ok")


def check_port_listener(call: Call, port: str) -> int:
    node = call.node()
    if not (port.isascii() and port.isdecimal()):
        raise Failed("Bad argument: Argument must be a positive integer", 65, title="Error (argument validation): ")
    call.banner(f"Asking node {node} if there's an active listener on port {port} ...")
    ports = sorted({each["port"] for each in call.listeners()})
    if int(port) not in ports:
        found = ", ".join(map(str, ports))
        text = f"No listener for port {port} is active on node {node}. Found listeners that use the following ports: "
        raise Failed(f"{text}{found}", title="")
    text = f"A listener for port {port} is running on node {node}."
    return call.result(text, node=node, port=port, result="ok")


def check_protocol_listener(call: Call, protocol: str) -> int:
    node = call.node()
    call.banner(f"Asking node {node} if there's an active listener for protocol {protocol} ...")
    protocols = sorted({each["protocol"] for each in call.listeners()})
    if protocol.lower() not in protocols:
        text = f"No listener for protocol {protocol} is active on node {node}. Found listeners for the following "
        raise Failed(f"{text}protocols: {', '.join(protocols)}")
    text = f"A listener for protocol {protocol} is running on node {node}."
    return call.result(text, node=node, protocol=protocol, result="ok")


def _check(call: Call, *name: str) -> dict[str, Any]:
    """What a health check of the broker says. Raises Failed when it fails."""
    try:
        found: dict[str, Any] = call.api.get("health", "checks", *name)
    except RequestFailed as error:
        if error.exit_status != 1:
            raise
        raise Failed(str(error)) from error
    return found


def check_port_connectivity(call: Call) -> int:
    """Dial each port of the broker, at the host of the HTTP API unless it listens at another address."""
    node, open_ports = call.node(), set[int]()
    call.banner(f"Testing TCP connections to all active listeners on node {node} ...")
    for each in call.listeners():
        if each["protocol"] == "clustering":
            continue  # of Erlang's nodes: no client dials it
        host = call.api.address.host if each["ip_address"] in ("::", "0.0.0.0") else each["ip_address"]
        try:
            socket.create_connection((host, each["port"]), timeout=call.options["timeout"]).close()
        except OSError as error:
            raise Failed(f"port {each['port']} ({each['protocol']}) at {host} does not answer: {error}") from error
        open_ports.add(each["port"])
    return call.result(f"Successfully connected to ports {', '.join(map(str, sorted(open_ports)))} on node {node}.")


CHECKS: Final[Mapping[str, tuple[Callable[..., int], int, int | None]]] = {
    "check_running": (check_running, 0, 0),
    "is_running": (check_running, 0, 0),
    "is_booting": (is_booting, 0, 0),
    "check_local_alarms": (check_alarms, 0, 0),
    "check_alarms": (check_alarms, 0, 0),
    "alarms": (alarms, 0, 0),
    "check_port_connectivity": (check_port_connectivity, 0, 0),
    "check_port_listener": (check_port_listener, 1, 1),
    "check_protocol_listener": (check_protocol_listener, 1, 1),
    "check_virtual_hosts": (check_virtual_hosts, 0, 0),
    "check_certificate_expiration": (check_certificates, 0, 0),
    "check_if_node_is_quorum_critical": (check_quorum, 0, 0),
    "ping": (ping, 0, 0),
    "await_startup": (await_startup, 0, 0),
}
"""The commands: the function, and the least and largest number of its arguments."""

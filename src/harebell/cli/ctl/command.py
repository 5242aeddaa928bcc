"""The command line of harebellctl: one command with its arguments, and the options of all of them.

Rules: an option that the command does not take is refused, as rabbitmqctl refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final

from cyclopts import Parameter

from harebell.cli.ctl.call import UNAVAILABLE, Call, Failed, WrongUsage
from harebell.cli.ctl.changes import CHANGES
from harebell.cli.ctl.checks import CHECKS
from harebell.cli.ctl.facts import FACTS
from harebell.cli.ctl.formats import FORMATTERS
from harebell.cli.ctl.limits import LIMITS
from harebell.cli.ctl.lists import LISTS, list_objects
from harebell.cli.ctl.parameters import PARAMETERS
from harebell.cli.http_api.target import CaFile, HttpTarget, connect_to
from harebell.cli.validators import Seconds, maybe_empty

__all__ = ["KNOWN", "harebellctl"]

COMMANDS: Final[Mapping[str, tuple[Callable[..., int], int, int | None]]] = {
    **CHANGES, **PARAMETERS, **LIMITS, **CHECKS, **FACTS,
}  # fmt: skip
KNOWN: Final = (*LISTS, *COMMANDS)
"""All commands."""

INSTEAD: Final[Mapping[str, str]] = {
    "environment": "`harebell config` prints a broker's options on its machine",
    "report": "`harebell doctor`, `harebellctl status` and `harebellctl memory_breakdown` have its parts",
    "set_disk_free_limit": "give `harebell serve` --disk-free-limit",
    "set_vm_memory_high_watermark": "give `harebell serve` --memory-high-watermark",
    "eval": "/api/index.html of the broker lists the requests of its HTTP API",
    "observer": "`harebell top` shows a broker live",
    "stop": "send the process of `harebell serve` SIGTERM",
    "stop_app": "send the process of `harebell serve` SIGTERM",
    "shutdown": "send the process of `harebell serve` SIGTERM",
    "start_app": "`harebell serve` starts a broker",
    "reset": "stop the broker, and start it with an empty folder (--data)",
    "force_reset": "stop the broker, and start it with an empty folder (--data)",
    "wait": "`harebellctl await_startup` asks whether the broker is up",
    "await_online_nodes": "`harebellctl await_startup` asks whether the broker is up",
    "node_health_check": "`harebellctl check_running` and `harebellctl check_alarms` have its parts",
    "cluster_status": "a broker is one node, and `harebellctl status`, `alarms` and `listeners` have its parts",
    "hash_password": "GET /api/auth/hash_password/PASSWORD gives the hash",
    "list_feature_flags": "GET /api/feature-flags lists them",
    "enable_feature_flag": "all of them are enabled",
    "list_deprecated_features": "no feature is deprecated",
    "list_node_auth_attempt_stats": "GET /api/auth/attempts/NODE has the counts",
    "reset_node_auth_attempt_metrics": "DELETE /api/auth/attempts/NODE resets the counts",
    "reset_stats_db": "DELETE /api/reset forgets the history",
    "set_log_level": "change log_level in the file of `harebell serve`, and send it SIGHUP",
    "rotate_logs": "`harebell serve` logs to standard error, and the service manager stores it",
    "log_location": "`harebell serve` logs to standard error, and the service manager stores it",
    "log_tail": "`harebell serve` logs to standard error: `journalctl -u harebell`",
    "log_tail_stream": "`harebell serve` logs to standard error: `journalctl -fu harebell`",
    "consume_event_stream": "GET /api/events streams what happens",
    "restart_vhost": "every virtual host runs while its broker does",
    "shovel_status": "GET /api/shovels lists the shovels",
    "delete_shovel": "`harebellctl clear_parameter shovel NAME` ends a shovel",
    "restart_shovel": "DELETE /api/shovels/vhost/VHOST/NAME/restart does it",
}
"""Commands of RabbitMQ's that are none here, and what does it."""

OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset(["list_user_limits"]),
    **dict.fromkeys(("online", "offline", "local"), frozenset(["list_queues"])),
    "if_empty": frozenset(["delete_queue"]),
    "if_unused": frozenset(["delete_queue"]),
    "priority": frozenset(["set_policy", "set_operator_policy"]),
    "apply_to": frozenset(["set_policy", "set_operator_policy"]),
    "global": frozenset(["close_all_connections", "list_user_limits", "list_vhost_limits"]),
    "within": frozenset(["check_certificate_expiration"]),
    "unit": frozenset(["check_certificate_expiration", "memory_breakdown"]),
    "description": frozenset(["add_vhost"]),
    "tags": frozenset(["add_vhost"]),
    "default_queue_type": frozenset(["add_vhost"]),
}  # fmt: skip
"""The options that some commands alone take."""


def harebellctl(
    command: Annotated[str, Parameter(help=f"One of {', '.join(sorted(KNOWN))}.")],
    *arguments: Annotated[str, Parameter(validator=maybe_empty, help="What the command takes; columns, for lists.")],
    vhost: Annotated[str | None, Parameter(name=["--vhost", "-p"], help="The virtual host. [default: /]")] = None,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=(), help="Only results.")] = False,
    silent: Annotated[
        bool, Parameter(name=["--silent", "-s"], negative=(), help="Only results, without headers of tables.")
    ] = False,
    no_table_headers: Annotated[bool, Parameter(negative=(), help="Tables without headers.")] = False,
    formatter: Annotated[str, Parameter(help=f"{', '.join(FORMATTERS)}.")] = "table",
    timeout: Annotated[
        float, Parameter(name=["--timeout", "-t"], help="Seconds for an answer.", validator=Seconds())
    ] = 60.0,
    node: Annotated[
        str | None, Parameter(name=["--node", "-n"], help="Fail unless the broker's node has this name.")
    ] = None,
    url: Annotated[str | None, Parameter(help="The HTTP API. [env: HAREBELL_HTTP_URL or HAREBELL_URL]")] = None,
    ca_file: CaFile = None,
    longnames: Annotated[
        bool, Parameter(name=["--longnames", "-l"], negative=(), help="Taken, and means nothing here.")
    ] = False,
    online: Annotated[bool, Parameter(negative=(), help="Of list_queues: all queues of the one node are.")] = False,
    offline: Annotated[bool, Parameter(negative=(), help="Of list_queues: no queue of the one node is.")] = False,
    local: Annotated[bool, Parameter(negative=(), help="Of list_queues: all queues of the one node are.")] = False,
    user: Annotated[str | None, Parameter(help="Of list_user_limits.")] = None,
    if_empty: Annotated[bool, Parameter(name=["--if-empty", "-e"], negative=(), help="Of delete_queue.")] = False,
    if_unused: Annotated[bool, Parameter(name=["--if-unused", "-u"], negative=(), help="Of delete_queue.")] = False,
    priority: Annotated[int | None, Parameter(help="Of set_policy. [default: 0]")] = None,
    apply_to: Annotated[str | None, Parameter(help="Of set_policy. [default: all]")] = None,
    everywhere: Annotated[
        bool,
        Parameter(name="--global", negative=(), help="Of close_all_connections and lists of limits: all of them."),
    ] = False,
    description: Annotated[str | None, Parameter(validator=maybe_empty, help="Of add_vhost.")] = None,
    tags: Annotated[str | None, Parameter(validator=maybe_empty, help="Of add_vhost, with commas.")] = None,
    default_queue_type: Annotated[str | None, Parameter(help="Of add_vhost.")] = None,
    within: Annotated[int | None, Parameter(help="Of check_certificate_expiration. [default: 4]")] = None,
    unit: Annotated[
        str | None,
        Parameter(help="Of check_certificate_expiration [default: weeks], and memory_breakdown [default: gb]."),
    ] = None,
) -> int:
    """Run one command."""
    if command in INSTEAD:
        raise WrongUsage(f"harebellctl has no '{command}': {INSTEAD[command]}")
    if command not in KNOWN:
        near = get_close_matches(command, KNOWN, 1)
        raise WrongUsage(f"Command '{command}' not found." + (f" Did you mean '{near[0]}'?" if near else ""))
    own: dict[str, Any] = {
        "user": user, "online": online, "offline": offline, "local": local,
        "if_empty": if_empty, "if_unused": if_unused, "priority": priority,
        "apply_to": apply_to, "global": everywhere, "description": description, "tags": tags,
        "default_queue_type": default_queue_type, "within": within, "unit": unit,
    }  # fmt: skip
    for name, value in own.items():
        if value not in (None, False) and command not in OPTIONS[name]:
            raise WrongUsage(f"Invalid options for this command: --{name.replace('_', '-')}")
    if formatter not in FORMATTERS:
        raise WrongUsage(f"--formatter {formatter}: one of {', '.join(FORMATTERS)}")
    options = {
        **own, "vhost": vhost if vhost is not None else "/", "priority": priority or 0,
        "apply_to": apply_to or "all", "quiet": quiet, "silent": silent, "no_table_headers": no_table_headers,
        "formatter": formatter, "timeout": timeout,
    }  # fmt: skip
    with connect_to(HttpTarget(url, timeout, ca_file)) as api:
        call = Call(api, command, arguments, options)
        if node is not None and command != "version" and call.node() != node:
            raise Failed(f"the node at {api.address.peer} is {call.node()}, and not {node}", UNAVAILABLE)
        if command in LISTS:
            return list_objects(call)
        work, least, most = COMMANDS[command]
        if len(arguments) < least:
            raise WrongUsage("not enough arguments.")
        if most is not None and len(arguments) > most:
            raise WrongUsage("too many arguments.")
        return work(call, *arguments)

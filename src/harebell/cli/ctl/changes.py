"""The commands of rabbitmqctl that change something: users, virtual hosts, permissions, policies, limits, queues."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from harebell.cli.ctl.call import NO_SUCH_USER, SOFTWARE, USAGE, Call, Failed, WrongUsage
from harebell.cli.http_api.address import parse_address
from harebell.cli.http_api.client import HttpApi
from harebell.cli.http_api.failures import Denied, Missing
from harebell.cli.terminal.output import say_json

__all__ = ["CHANGES"]


def _exists(call: Call, *path: str) -> bool:
    try:
        call.api.get(*path)
    except Missing:
        return False
    return True


def _need_user(call: Call, name: str, text: str) -> None:
    if not _exists(call, "users", name):
        raise Failed(text.format(name), NO_SUCH_USER)


def _need_vhost(call: Call) -> None:
    if not _exists(call, "vhosts", call.vhost):
        raise Failed(f"Virtual host '{call.vhost}' does not exist", 65)


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Failed("JSON decoding error. Reason: badarg") from None


def _password(call: Call, arguments: tuple[str, ...]) -> str:
    """The second argument, else a line of standard input: there other users of the machine do not see it."""
    if len(arguments) > 1:
        return arguments[1]
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise Failed("the password is empty: give it as an argument or on standard input", 65)
    return line


def add_user(call: Call, *arguments: str) -> int:
    name = arguments[0]
    call.banner(f'Adding user "{name}" ...')
    if _exists(call, "users", name):
        raise Failed(f'User "{name}" already exists', SOFTWARE)
    call.api.put("users", name, body={"password": _password(call, arguments), "tags": ""})
    call.banner(
        "Done. Don't forget to grant the user permissions to some virtual hosts! "
        "See 'harebell permissions set --help' to learn more."
    )
    return 0


def delete_user(call: Call, name: str) -> int:
    call.banner(f'Deleting user "{name}" ...')
    _need_user(call, name, 'User "{}" does not exist')
    call.api.delete("users", name)
    return 0


def change_password(call: Call, *arguments: str) -> int:
    name = arguments[0]
    call.banner(f'Changing password for user "{name}" ...')
    _need_user(call, name, 'User "{}" does not exist')
    tags = call.api.get("users", name)["tags"]
    call.api.put("users", name, body={"password": _password(call, arguments), "tags": tags})
    return 0


def authenticate_user(call: Call, *arguments: str) -> int:
    name = arguments[0]
    call.banner(f'Authenticating user "{name}" ...')
    address, password = call.api.address, _password(call, arguments)
    scheme = "https" if address.tls else "http"
    host = f"[{address.host}]" if ":" in address.host else address.host
    login = f"{quote(name, safe='')}:{quote(password, safe='')}"
    other = parse_address(f"{scheme}://{login}@{host}:{address.port}{address.prefix}")
    with HttpApi(other, timeout=call.options["timeout"]) as api:
        try:
            api.get("whoami")
        except Denied as error:
            if "Login failed" in str(error) or "the login failed" in str(error):
                text = f"Error: failed to authenticate user \"{name}\"\nuser '{name}' - invalid credentials"
                raise Failed(text, 65) from error  # a user without tags has another reason: the password is right
    call.banner("Success")
    return 0


def set_user_tags(call: Call, name: str, *tags: str) -> int:
    call.banner(f'Setting tags for user "{name}" to [{", ".join(tags)}] ...')
    _need_user(call, name, 'User "{}" does not exist')
    user = call.api.get("users", name)
    body = {"password_hash": user.get("password_hash") or "", "tags": ",".join(tags)}
    if body["password_hash"]:
        body["hashing_algorithm"] = user["hashing_algorithm"]
    call.api.put("users", name, body=body)
    return 0


def add_vhost(call: Call, name: str) -> int:
    call.banner(f'Adding vhost "{name}" ...')
    given = (("description", "description"), ("tags", "tags"), ("default_queue_type", "default_queue_type"))
    body = {field: call.options[option] for field, option in given if call.options[option] is not None}
    call.api.put("vhosts", name, body=body)
    return 0


def delete_vhost(call: Call, name: str) -> int:
    call.banner(f'Deleting vhost "{name}" ...')
    if not _exists(call, "vhosts", name):
        raise Failed(f"Virtual host '{name}' does not exist", 65, title="")
    call.api.delete("vhosts", name)
    return 0


def set_permissions(call: Call, user: str, configure: str, write: str, read: str) -> int:
    call.banner(f'Setting permissions for user "{user}" in vhost "{call.vhost}" ...')
    _need_user(call, user, "User {} does not exist")
    _need_vhost(call)
    call.api.put("permissions", call.vhost, user, body={"configure": configure, "write": write, "read": read})
    return 0


def clear_permissions(call: Call, user: str) -> int:
    call.banner(f'Clearing permissions for user "{user}" in vhost "{call.vhost}" ...')
    _need_user(call, user, "User {} does not exist")
    _need_vhost(call)
    if _exists(call, "permissions", call.vhost, user):
        call.api.delete("permissions", call.vhost, user)
    return 0


def set_topic_permissions(call: Call, user: str, exchange: str, write: str, read: str) -> int:
    call.banner(f'Setting topic permissions on "{exchange}" for user "{user}" in vhost "{call.vhost}" ...')
    _need_user(call, user, "User {} does not exist")
    _need_vhost(call)
    call.api.put("topic-permissions", call.vhost, user, body={"exchange": exchange, "write": write, "read": read})
    return 0


def clear_topic_permissions(call: Call, user: str, *exchange: str) -> int:
    call.banner(f'Clearing topic permissions for user "{user}" in vhost "{call.vhost}" ...')
    _need_user(call, user, "User {} does not exist")
    _need_vhost(call)
    try:
        call.api.delete("topic-permissions", call.vhost, user, *exchange)
    except Missing:
        pass
    return 0


def set_policy(call: Call, name: str, pattern: str, definition: str) -> int:
    operator = call.command == "set_operator_policy"
    priority, what = call.options["priority"], "operator policy override" if operator else "policy"
    call.banner(
        f'Setting {what} "{name}" for pattern "{pattern}" to "{definition}" with priority "{priority}" '
        f'for vhost "{call.vhost}" ...'
    )
    body = {
        "pattern": pattern, "definition": _json_of(definition), "priority": priority,
        "apply-to": call.options["apply_to"],
    }  # fmt: skip
    call.api.put("operator-policies" if operator else "policies", call.vhost, name, body=body)
    return 0


def clear_policy(call: Call, name: str) -> int:
    operator = call.command == "clear_operator_policy"
    call.banner(f'Clearing {"operator " * operator}policy "{name}" on vhost "{call.vhost}" ...')
    try:
        call.api.delete("operator-policies" if operator else "policies", call.vhost, name)
    except Missing:
        raise Failed("Parameter does not exist") from None
    return 0


def set_limits(call: Call, *arguments: str) -> int:
    of_user = call.command == "set_user_limits"
    if len(arguments) != 1 + of_user:
        raise WrongUsage("too many arguments." if len(arguments) > 1 else "not enough arguments.")
    name, definition = (arguments if of_user else (call.vhost, *arguments))[:2]
    kind = "user" if of_user else "vhost"
    where = f'user "{name}"' if of_user else f'vhost "{name}"'
    call.banner(f'Setting {kind} limits to "{definition}" for {where} ...')
    limits = _json_of(definition)
    if not isinstance(limits, dict):
        raise Failed('limits are a JSON object, such as {"max-connections": 10}')
    if of_user:
        _need_user(call, name, 'User "{}" does not exist')
    else:
        _need_vhost(call)
    for limit, value in limits.items():
        call.api.put(f"{kind}-limits", name, limit, body={"value": value})
    return 0


def set_parameter(call: Call, component: str, name: str, value: str) -> int:
    call.banner(
        f'Setting runtime parameter "{name}" for component "{component}" to "{value}" in vhost "{call.vhost}" ...'
    )
    call.api.put("parameters", component, call.vhost, name, body={"value": _json_of(value)})
    return 0


def clear_parameter(call: Call, component: str, name: str) -> int:
    call.banner(f'Clearing runtime parameter "{name}" for component "{component}" on vhost "{call.vhost}" ...')
    try:
        call.api.delete("parameters", component, call.vhost, name)
    except Missing:
        raise Failed("Parameter does not exist") from None
    return 0


def purge_queue(call: Call, name: str) -> int:
    call.banner(f"Purging queue '{name}' in vhost '{call.vhost}' ...")
    try:
        call.api.delete("queues", call.vhost, name, "contents")
    except Missing:
        raise Failed("not_found") from None
    return 0


def delete_queue(call: Call, name: str) -> int:
    empty, unused = call.options["if_empty"], call.options["if_unused"]
    conditions = " and ".join((*(("if queue is empty ",) * empty), *(("if queue is unused ",) * unused)))
    call.banner(f"Deleting queue '{name}' on vhost '{call.vhost}' {conditions}...")
    try:
        ready = call.api.get("queues", call.vhost, name).get("messages_ready") or 0
        flags = (("if-empty", empty), ("if-unused", unused))
        call.api.delete("queues", call.vhost, name, query={flag: "true" for flag, given in flags if given})
    except Missing:
        raise Failed("Queue not found", USAGE) from None
    call.banner(f"Queue was successfully deleted with {ready} ready messages")
    return 0


def close_connection(call: Call, name: str, reason: str) -> int:
    """rabbitmqctl names a connection by its process; here it is the name, as the column pid has it."""
    call.banner(f"Closing connection {name}, reason: {reason}...")
    try:
        call.api.delete("connections", name, headers=_reason(reason))
    except Missing:
        raise Failed(f"no connection '{name}'") from None
    return 0


def close_all_connections(call: Call, reason: str) -> int:
    everywhere = call.options["global"]
    where = "on all vhosts" if everywhere else f"in vhost {call.vhost}"
    call.banner(f"Closing all connections {where}, reason: {reason}...")
    closed = 0
    for each in call.api.get("connections"):
        if everywhere or each.get("vhost") == call.vhost:
            try:
                call.api.delete("connections", each["name"], headers=_reason(reason))
                closed += 1
            except Missing:
                pass  # it has closed itself
    call.banner(f"Closed {closed} connections")
    return 0


def _reason(text: str) -> dict[str, str]:
    return {"X-Reason": " ".join(text.encode("ascii", "replace").decode().split())}


def trace(call: Call) -> int:
    on = call.command == "trace_on"
    call.banner(f'{"Starting" if on else "Stopping"} tracing for vhost "{call.vhost}" ...')
    if not _exists(call, "vhosts", call.vhost):
        raise Failed(f"Virtual host '{call.vhost}' does not exist", 65)
    call.api.put("vhosts", call.vhost, body={"tracing": on})
    call.banner(f"Trace {'enabled' if on else 'disabled'} for vhost {call.vhost}")
    return 0


def export_definitions(call: Call, *file: str) -> int:
    document = call.api.get("definitions")
    if not file or file[0] == "-":
        return say_json(document)
    call.banner(f'Exporting definitions in JSON to a file at "{file[0]}" ...')
    try:
        with open(file[0], "w", encoding="utf-8", opener=_private) as out:
            out.write(json.dumps(document, ensure_ascii=False))
    except OSError as error:
        raise Failed(f"{file[0]} cannot be written: {error.strerror}", 73) from error
    return 0


def _private(path: str, flags: int) -> int:
    """Open for the owner alone, an existing file too: it has hashes of passwords."""
    descriptor = os.open(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def import_definitions(call: Call, *file: str) -> int:
    name = file[0] if file else "-"
    where = "standard input" if name == "-" else f'a file at "{name}"'
    call.banner(f"Importing definitions in JSON from {where} ...")
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{name} cannot be read: {error}", 66) from error
    call.api.post("definitions", body=_json_of(text))
    return 0


CHANGES: Final[Mapping[str, tuple[Callable[..., int], int, int | None]]] = {
    "add_user": (add_user, 1, 2),
    "delete_user": (delete_user, 1, 1),
    "change_password": (change_password, 1, 2),
    "authenticate_user": (authenticate_user, 1, 2),
    "set_user_tags": (set_user_tags, 1, None),
    "add_vhost": (add_vhost, 1, 1),
    "delete_vhost": (delete_vhost, 1, 1),
    "set_permissions": (set_permissions, 4, 4),
    "clear_permissions": (clear_permissions, 1, 1),
    "set_topic_permissions": (set_topic_permissions, 4, 4),
    "clear_topic_permissions": (clear_topic_permissions, 1, 2),
    "set_policy": (set_policy, 3, 3),
    "clear_policy": (clear_policy, 1, 1),
    "set_operator_policy": (set_policy, 3, 3),
    "clear_operator_policy": (clear_policy, 1, 1),
    "set_vhost_limits": (set_limits, 1, 1),
    "set_user_limits": (set_limits, 2, 2),
    "set_parameter": (set_parameter, 3, 3),
    "clear_parameter": (clear_parameter, 2, 2),
    "purge_queue": (purge_queue, 1, 1),
    "delete_queue": (delete_queue, 1, 1),
    "close_connection": (close_connection, 2, 2),
    "close_all_connections": (close_all_connections, 1, 1),
    "trace_on": (trace, 0, 0),
    "trace_off": (trace, 0, 0),
    "export_definitions": (export_definitions, 0, 1),
    "import_definitions": (import_definitions, 0, 1),
}
"""The commands: the function, and the least and largest number of its arguments (None: any)."""

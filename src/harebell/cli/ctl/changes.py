"""The commands of rabbitmqctl that change users, virtual hosts, permissions, queues and connections."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from harebell.cli.ctl.call import (
    NO_SUCH_OBJECT,
    NO_SUCH_USER,
    SOFTWARE,
    USAGE,
    Call,
    Failed,
    exists,
    json_of,
    need_vhost,
)
from harebell.cli.files import why_unread, write_file
from harebell.cli.http_api.client import HttpApi
from harebell.cli.http_api.failures import Denied, Missing
from harebell.cli.terminal.output import say_json

__all__ = ["CHANGES"]


def _need_user(call: Call, name: str, text: str) -> None:
    if not exists(call, "users", name):
        raise Failed(text.format(name), NO_SUCH_USER)


def _need_vhost_of(call: Call) -> None:
    """As `need_vhost`, with the text and the status that permissions have."""
    if not exists(call, "vhosts", call.vhost):
        raise Failed(f"Virtual host {call.vhost} does not exist")


def _value(call: Call, text: str) -> int:
    return call.result(text, node=call.node(), result="ok", value=text)


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
    if exists(call, "users", name):
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


def clear_password(call: Call, name: str) -> int:
    """The user cannot log in by a password until it gets another one."""
    call.banner(f'Clearing password for user "{name}" ...')
    try:
        tags = call.api.get("users", name)["tags"]
    except Missing:
        raise Failed(f'{{:no_such_user, "{name}"}}') from None
    call.api.put("users", name, body={"password_hash": "", "tags": tags})
    return 0


def authenticate_user(call: Call, *arguments: str) -> int:
    name = arguments[0]
    call.banner(f'Authenticating user "{name}" ...')
    other = replace(call.api.address, user=name, password=_password(call, arguments))
    with HttpApi(other, timeout=call.options["timeout"], ca_file=call.api.ca_file) as api:
        try:
            api.get("whoami")
        except Denied as error:
            if "Login failed" in str(error) or "the login failed" in str(error):
                text = f'Error: failed to authenticate user "{name}"'
                raise Failed(
                    text, 65, f"user '{name}' - invalid credentials"
                ) from error  # a user without tags has another reason: the password is right
    return call.result("Success")


def set_user_tags(call: Call, name: str, *tags: str) -> int:
    call.banner(f'Setting tags for user "{name}" to [{", ".join(tags)}] ...')
    _need_user(call, name, 'User "{}" does not exist')
    user = call.api.get("users", name)
    body = {"password_hash": user.get("password_hash") or "", "tags": list(tags)}
    if body["password_hash"]:
        body["hashing_algorithm"] = user["hashing_algorithm"]
    call.api.put("users", name, body=body)
    return 0


def add_vhost(call: Call, name: str) -> int:
    call.banner(f'Adding vhost "{name}" ...')
    given = (("description", "description"), ("tags", "tags"), ("default_queue_type", "default_queue_type"))
    body = {field: call.options[option] for field, option in given if call.options[option] is not None}
    if not exists(call, "vhosts", name):  # one that exists stays as it is
        call.api.put("vhosts", name, body=body)
    return 0


def _change_vhost(call: Call, name: str, **changes: object) -> None:
    """Change some fields. The HTTP API empties a description and tags that a request does not have."""
    it = call.api.get("vhosts", name)
    tags = it.get("tags") or []
    kept = {"description": it.get("description") or "", "tags": tags if isinstance(tags, str) else ",".join(tags)}
    if it.get("default_queue_type") not in (None, "undefined"):
        kept["default_queue_type"] = it["default_queue_type"]
    call.api.put("vhosts", name, body={**kept, **changes})


def set_vhost_tags(call: Call, name: str, *tags: str) -> int:
    call.banner(f'Setting tags for virtual host "{name}" to [{", ".join(tags)}] ...')
    if not exists(call, "vhosts", name):
        raise Failed(f'Virtual host "{name}" does not exist', NO_SUCH_OBJECT)
    _change_vhost(call, name, tags=",".join(tags))
    return 0


def delete_vhost(call: Call, name: str) -> int:
    call.banner(f'Deleting vhost "{name}" ...')
    if not exists(call, "vhosts", name):
        raise Failed(f"Virtual host '{name}' does not exist", 65, title="")
    call.api.delete("vhosts", name)
    return 0


def set_permissions(call: Call, user: str, configure: str, write: str, read: str) -> int:
    call.banner(f'Setting permissions for user "{user}" in vhost "{call.vhost}" ...')
    _need_user(call, user, "User {} does not exist")
    _need_vhost_of(call)
    call.api.put("permissions", call.vhost, user, body={"configure": configure, "write": write, "read": read})
    return 0


def clear_permissions(call: Call, user: str) -> int:
    call.banner(f'Clearing permissions for user "{user}" in vhost "{call.vhost}" ...')
    _need_user(call, user, "User {} does not exist")
    _need_vhost_of(call)
    if exists(call, "permissions", call.vhost, user):
        call.api.delete("permissions", call.vhost, user)
    return 0


def set_topic_permissions(call: Call, user: str, exchange: str, write: str, read: str) -> int:
    call.banner(f'Setting topic permissions on "{exchange}" for user "{user}" in vhost "{call.vhost}" ...')
    _need_user(call, user, "User {} does not exist")
    _need_vhost_of(call)
    call.api.put("topic-permissions", call.vhost, user, body={"exchange": exchange, "write": write, "read": read})
    return 0


def clear_topic_permissions(call: Call, user: str, *exchange: str) -> int:
    call.banner(f'Clearing topic permissions for user "{user}" in vhost "{call.vhost}" ...')
    _need_user(call, user, "User {} does not exist")
    _need_vhost_of(call)
    try:
        call.api.delete("topic-permissions", call.vhost, user, *exchange)
    except Missing:
        pass
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
    return _value(call, f"Queue was successfully deleted with {ready} ready messages")


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
    return _value(call, f"Closed {closed} connections")


def close_all_user_connections(call: Call, user: str, reason: str) -> int:
    call.banner(f"Closing connections of user {user}, reason: {reason}...")
    for each in call.api.get("connections"):
        if each.get("user") == user:
            try:
                call.api.delete("connections", each["name"], headers=_reason(reason))
            except Missing:
                pass  # it has closed itself
    return 0


def _reason(text: str) -> dict[str, str]:
    return {"X-Reason": " ".join(text.encode("ascii", "replace").decode().split())}


def trace(call: Call) -> int:
    on = call.command == "trace_on"
    call.banner(f'{"Starting" if on else "Stopping"} tracing for vhost "{call.vhost}" ...')
    need_vhost(call)
    _change_vhost(call, call.vhost, tracing=on)
    return _value(call, f"Trace {'enabled' if on else 'disabled'} for vhost {call.vhost}")


def export_definitions(call: Call, *file: str) -> int:
    document = call.api.get("definitions")
    if not file or file[0] == "-":
        return say_json(document)
    call.banner(f'Exporting definitions in JSON to a file at "{file[0]}" ...')
    try:
        write_file(file[0], json.dumps(document, ensure_ascii=False), private=True)  # it has hashes of passwords
    except OSError as error:
        raise Failed(f"{file[0]} cannot be written: {error.strerror}", 73) from error
    return 0


def import_definitions(call: Call, *file: str) -> int:
    name = file[0] if file else "-"
    where = "standard input" if name == "-" else f'a file at "{name}"'
    call.banner(f"Importing definitions in JSON from {where} ...")
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{name} cannot be read: {why_unread(error)}", 66) from error
    call.api.post("definitions", body=json_of(text))
    return 0


CHANGES: Final[Mapping[str, tuple[Callable[..., int], int, int | None]]] = {
    "add_user": (add_user, 1, 2),
    "delete_user": (delete_user, 1, 1),
    "change_password": (change_password, 1, 2),
    "authenticate_user": (authenticate_user, 1, 2),
    "set_user_tags": (set_user_tags, 1, None),
    "clear_password": (clear_password, 1, 1),
    "add_vhost": (add_vhost, 1, 1),
    "set_vhost_tags": (set_vhost_tags, 1, None),
    "delete_vhost": (delete_vhost, 1, 1),
    "set_permissions": (set_permissions, 4, 4),
    "clear_permissions": (clear_permissions, 1, 1),
    "set_topic_permissions": (set_topic_permissions, 4, 4),
    "clear_topic_permissions": (clear_topic_permissions, 1, 2),
    "purge_queue": (purge_queue, 1, 1),
    "delete_queue": (delete_queue, 1, 1),
    "close_connection": (close_connection, 2, 2),
    "close_all_connections": (close_all_connections, 1, 1),
    "close_all_user_connections": (close_all_user_connections, 2, 2),
    "trace_on": (trace, 0, 0),
    "trace_off": (trace, 0, 0),
    "export_definitions": (export_definitions, 0, 1),
    "import_definitions": (import_definitions, 0, 1),
}
"""The commands: the function, and the least and largest number of its arguments (None: any)."""

"""The commands on limits of virtual hosts and of users: set, clear, list."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from harebell.cli.ctl.call import Call, Failed, json_of, need_vhost
from harebell.cli.http_api.failures import Missing
from harebell.cli.terminal.output import say

__all__ = ["LIMITS"]

ALL: Final = "all"
"""The word for every limit of a user."""


def set_vhost_limits(call: Call, definition: str) -> int:
    call.banner(f'Setting vhost limits to "{definition}" for vhost "{call.vhost}" ...')
    limits = _limits(definition)
    need_vhost(call)
    return _set(call, "vhost-limits", call.vhost, limits)


def set_user_limits(call: Call, name: str, definition: str) -> int:
    call.banner(f'Setting user limits to "{definition}" for user "{name}" ...')
    limits = _limits(definition)
    _limits_of(call, name)
    return _set(call, "user-limits", name, limits)


def _set(call: Call, path: str, name: str, limits: dict[str, Any]) -> int:
    for limit, value in limits.items():
        call.api.put(path, name, limit, body={"value": value})
    return 0


def _limits(definition: str) -> dict[str, Any]:
    limits = json_of(definition)
    if not isinstance(limits, dict):
        raise Failed('limits are a JSON object, such as {"max-connections": 10}')
    return limits


def _limits_of(call: Call, user: str) -> dict[str, Any]:
    """The limits of a user. Raises Failed where there is no such user."""
    try:
        call.api.get("users", user)
        found = call.api.get("user-limits", user)
    except Missing as error:
        raise Failed(f'{{:no_such_user, "{user}"}}') from error
    return dict(found[0]["value"]) if found else {}


def clear_vhost_limits(call: Call) -> int:
    call.banner(f'Clearing vhost "{call.vhost}" limits ...')
    try:
        found = call.api.get("vhost-limits", call.vhost)
    except Missing:
        found = []
    if not found:
        raise Failed("Parameter does not exist")
    for limit in found[0]["value"]:
        call.api.delete("vhost-limits", call.vhost, limit)
    return 0


def clear_user_limits(call: Call, name: str, limit: str) -> int:
    what = "all limits" if limit == ALL else f"{json.dumps(limit, ensure_ascii=False)} limit"
    call.banner(f'Clearing {what} for user "{name}" ...')
    limits = _limits_of(call, name)
    for each in limits if limit == ALL else {limit} & limits.keys():
        call.api.delete("user-limits", name, each)
    return 0


def list_limits(call: Call) -> int:
    """Print the limits of a virtual host, of a user (`--user`), or all of them (`--global`)."""
    of_user = call.command == "list_user_limits"
    kind = "user" if of_user else "vhost"
    if call.options["global"]:
        call.banner(f"Listing limits for all {kind}s ...")
        rows = [{kind: each[kind], "limits": _text(each["value"])} for each in call.api.get(f"{kind}-limits")]
        return call.show((kind, "limits"), [row for row in rows if row["limits"] != "{}"])
    name = str(call.options["user"] or "guest") if of_user else call.vhost
    call.banner(f'Listing limits for {kind} "{name}" ...')
    if of_user:
        return say(_text(_limits_of(call, name)))
    need_vhost(call)
    found = call.api.get("vhost-limits", name)
    return say(_text(found[0]["value"]) if found else "")


def _text(limits: object) -> str:
    return json.dumps(limits, ensure_ascii=False, separators=(",", ":"))


LIMITS: Final[Mapping[str, tuple[Callable[..., int], int, int | None]]] = {
    "list_vhost_limits": (list_limits, 0, 0),
    "list_user_limits": (list_limits, 0, 0),
    "set_vhost_limits": (set_vhost_limits, 1, 1),
    "clear_vhost_limits": (clear_vhost_limits, 0, 0),
    "set_user_limits": (set_user_limits, 2, 2),
    "clear_user_limits": (clear_user_limits, 2, 2),
}
"""The commands: the function, and the least and largest number of its arguments."""

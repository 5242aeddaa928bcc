"""The commands of rabbitmqctl that change policies, parameters and the name of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from harebell.cli.ctl.call import Call, Failed, json_of, need_vhost
from harebell.cli.http_api.failures import Missing

__all__ = ["PARAMETERS"]


def set_policy(call: Call, name: str, pattern: str, definition: str) -> int:
    operator = call.command == "set_operator_policy"
    priority, what = call.options["priority"], "operator policy override" if operator else "policy"
    call.banner(
        f'Setting {what} "{name}" for pattern "{pattern}" to "{definition}" with priority "{priority}" '
        f'for vhost "{call.vhost}" ...'
    )
    value = json_of(definition)
    need_vhost(call)
    body = {
        "pattern": pattern, "definition": value, "priority": priority,
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


def set_global_parameter(call: Call, name: str, value: str) -> int:
    call.banner(f'Setting global runtime parameter "{name}" to "{value}" ...')
    call.api.put("global-parameters", name, body={"value": json_of(value)})
    return 0


def clear_global_parameter(call: Call, name: str) -> int:
    call.banner(f'Clearing global runtime parameter "{name}" ...')
    try:
        call.api.delete("global-parameters", name)
    except Missing:
        raise Failed("Parameter does not exist") from None
    return 0


def set_cluster_name(call: Call, name: str) -> int:
    call.banner(f"Setting cluster name to {name} ...")
    call.api.put("cluster-name", body={"name": name})
    return 0


def set_parameter(call: Call, component: str, name: str, value: str) -> int:
    call.banner(
        f'Setting runtime parameter "{name}" for component "{component}" to "{value}" in vhost "{call.vhost}" ...'
    )
    call.api.put("parameters", component, call.vhost, name, body={"value": json_of(value)})
    return 0


def clear_parameter(call: Call, component: str, name: str) -> int:
    call.banner(f'Clearing runtime parameter "{name}" for component "{component}" on vhost "{call.vhost}" ...')
    try:
        call.api.delete("parameters", component, call.vhost, name)
    except Missing:
        raise Failed("Parameter does not exist") from None
    return 0


PARAMETERS: Final[Mapping[str, tuple[Callable[..., int], int, int | None]]] = {
    "set_policy": (set_policy, 3, 3),
    "clear_policy": (clear_policy, 1, 1),
    "set_operator_policy": (set_policy, 3, 3),
    "clear_operator_policy": (clear_policy, 1, 1),
    "set_global_parameter": (set_global_parameter, 2, 2),
    "clear_global_parameter": (clear_global_parameter, 1, 1),
    "set_cluster_name": (set_cluster_name, 1, 1),
    "set_parameter": (set_parameter, 3, 3),
    "clear_parameter": (clear_parameter, 2, 2),
}
"""The commands: the function, and the least and largest number of its arguments."""

"""Policies, operator policies, parameters and global parameters: lists, one of them, set, clear."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from harebell.admin.answers import Answer, Refused, bad_request, not_found
from harebell.admin.http.endpoint import NOT_AUTHORISED
from harebell.admin.http.requests import Request
from harebell.admin.listing import Listing
from harebell.admin.resources.objects import NO_CONTENT, alone, created
from harebell.broker.patterns import PATTERNS
from harebell.broker.rules.parameters import VHOST_LIMITS
from harebell.broker.vhost import VirtualHost
from harebell.routing.definitions import GlobalParameter, Parameter
from harebell.routing.policies import Policy, parse_policy
from harebell.routing.steps import Steps

__all__ = [
    "clear_global", "clear_operator_policy", "clear_parameter", "clear_policy", "globals_", "operator_policies",
    "operator_policies_of", "parameters", "parameters_of", "parameters_of_vhost", "policies", "policies_of",
    "put_global", "put_operator_policy", "put_parameter", "put_policy", "show_global", "show_operator_policy",
    "show_parameter", "show_policy",
]  # fmt: skip


def policy(it: Policy) -> dict[str, Any]:
    return {
        "vhost": it.vhost,
        "name": it.name,
        "pattern": it.pattern,
        "apply-to": it.apply_to,
        "definition": it.definition,
        "priority": it.priority,
    }


POLICIES: Final[Listing[Policy]] = Listing(shape=policy, order=lambda it: (it.vhost, it.name), name=lambda it: it.name)


def _policies(request: Request, *, operator: bool) -> Steps[Answer]:
    found = [each for vhost in request.user.seen() for each in vhost.policies.book(operator=operator).values()]
    return (yield from POLICIES.answer(request, found))


def _policies_of(request: Request, *, operator: bool) -> Steps[Answer]:
    book = request.vhost().policies.book(operator=operator)
    return (yield from POLICIES.answer(request, list(book.values())))


def _policy(request: Request, *, operator: bool) -> Policy:
    found = request.vhost().policies.book(operator=operator).get(request.names["name"])
    if found is None:
        raise not_found()
    return found


def _put_policy(request: Request, *, operator: bool) -> Steps[Answer]:
    vhost, name = request.vhost(), request.names["name"]
    parsed = parse_policy(vhost.name, name, request.object(), PATTERNS, operator=operator)
    new = name not in vhost.policies.book(operator=operator)
    yield from vhost.policies.setting(parsed, operator=operator)
    return created(new)


def _clear_policy(request: Request, *, operator: bool) -> Steps[Answer]:
    if not (yield from request.vhost().policies.clearing(_policy(request, operator=operator).name, operator=operator)):
        raise not_found()
    return NO_CONTENT


def policies(request: Request) -> Steps[Answer]:
    return (yield from _policies(request, operator=False))


def policies_of(request: Request) -> Steps[Answer]:
    return (yield from _policies_of(request, operator=False))


def show_policy(request: Request) -> Answer:
    return alone(request, policy(_policy(request, operator=False)))


def put_policy(request: Request) -> Steps[Answer]:
    return (yield from _put_policy(request, operator=False))


def clear_policy(request: Request) -> Steps[Answer]:
    return (yield from _clear_policy(request, operator=False))


def operator_policies(request: Request) -> Steps[Answer]:
    return (yield from _policies(request, operator=True))


def operator_policies_of(request: Request) -> Steps[Answer]:
    return (yield from _policies_of(request, operator=True))


def show_operator_policy(request: Request) -> Answer:
    return alone(request, policy(_policy(request, operator=True)))


def put_operator_policy(request: Request) -> Steps[Answer]:
    return (yield from _put_policy(request, operator=True))


def clear_operator_policy(request: Request) -> Steps[Answer]:
    return (yield from _clear_policy(request, operator=True))


# -- parameters


def parameter(it: Parameter) -> dict[str, Any]:
    return {"value": it.value, "vhost": it.vhost, "component": it.component, "name": it.name}


OPERATOR_POLICY: Final = "operator_policy"


def _all(request: Request, vhosts: Iterable[VirtualHost]) -> list[Parameter]:
    """The parameters of these virtual hosts. RabbitMQ lists operator policies with them, but not policies."""
    names = {each.name: each for each in vhosts}
    return [
        *(each for each in request.node.parameters.parameters.values() if each.vhost in names),
        *(_as_parameter(it) for each in names.values() for it in each.policies.book(operator=True).values()),
    ]


def _as_parameter(it: Policy) -> Parameter:
    value = policy(it)
    return Parameter(value.pop("vhost"), OPERATOR_POLICY, value.pop("name"), value)


PARAMETERS: Final[Listing[Parameter]] = Listing(
    shape=parameter, order=lambda it: (it.component, it.vhost, it.name), name=lambda it: it.name
)


def parameters(request: Request) -> Steps[Answer]:
    """The parameters of the virtual hosts that the user has permissions in; an administrator's are all."""
    user = request.user
    vhosts = [each for each in request.node.vhosts.values() if user.administers or user.enters(each.name)]
    component = request.names.get("component")
    found = [each for each in _all(request, vhosts) if component in (None, each.component)]
    return (yield from PARAMETERS.answer(request, found))


def parameters_of(request: Request) -> Steps[Answer]:
    return (yield from parameters(request))


def parameters_of_vhost(request: Request) -> Steps[Answer]:
    component = request.names["component"]
    found = [each for each in _all(request, [request.vhost()]) if each.component == component]
    return (yield from PARAMETERS.answer(request, found))


def _parameter(request: Request) -> Parameter:
    names = request.names
    found = request.node.parameters.parameters.get((names["vhost"], names["component"], names["name"]))
    if found is None:
        raise not_found()
    return found


def show_parameter(request: Request) -> Answer:
    if request.names["component"] == OPERATOR_POLICY:
        return alone(request, parameter(_as_parameter(_policy(request, operator=True))))
    return alone(request, parameter(_parameter(request)))


def put_parameter(request: Request) -> Answer:
    names = request.names
    vhost = request.vhost().name
    value = _value(request)
    new = (vhost, names["component"], names["name"]) not in request.node.parameters.parameters
    if names["component"] == VHOST_LIMITS and not request.user.administers:
        raise Refused(401, NOT_AUTHORISED, "Not administrator user")
    request.node.parameters.set(Parameter(vhost, names["component"], names["name"], value))
    return created(new)


def _value(request: Request) -> object:
    body = request.object()
    if "value" not in body:
        raise bad_request("[{key_missing,value}]")
    return body["value"]


def clear_parameter(request: Request) -> Answer:
    found = _parameter(request)
    if found.component == VHOST_LIMITS and not request.user.administers:
        raise Refused(401, NOT_AUTHORISED, "Not administrator user")
    request.node.parameters.clear(found.vhost, found.component, found.name)
    return NO_CONTENT


# -- global parameters


def global_parameter(it: GlobalParameter) -> dict[str, Any]:
    return {"name": it.name, "value": it.value}


GLOBALS: Final[Listing[GlobalParameter]] = Listing(
    shape=global_parameter, order=lambda it: it.name, name=lambda it: it.name
)


def globals_(request: Request) -> Steps[Answer]:
    return (yield from GLOBALS.answer(request, list(request.node.parameters.global_parameters.values())))


def _global(request: Request) -> GlobalParameter:
    found = request.node.parameters.global_parameters.get(request.names["name"])
    if found is None:
        raise not_found()
    return found


def show_global(request: Request) -> Answer:
    return alone(request, global_parameter(_global(request)))


def put_global(request: Request) -> Answer:
    name = request.names["name"]
    value, new = _value(request), name not in request.node.parameters.global_parameters
    request.node.parameters.set_global(GlobalParameter(name, value))
    return created(new)


def clear_global(request: Request) -> Answer:
    request.node.parameters.clear_global(_global(request).name)
    return NO_CONTENT

"""Shovels: their states, and a restart. They are set and cleared as parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harebell.admin.answers import Answer, Refused, not_found
from harebell.admin.http.endpoint import NOT_AUTHORISED
from harebell.admin.http.requests import Request
from harebell.admin.listing import Listing
from harebell.admin.resources.objects import NO_CONTENT, alone
from harebell.routing.steps import Steps

__all__ = ["delete", "list_all", "list_of_vhost", "restart", "show"]

COMPONENT: Final = "shovel"

LISTING: Final[Listing[Mapping[str, Any]]] = Listing(
    shape=lambda it: it, order=lambda it: (it["vhost"], it["name"]), name=lambda it: it["name"]
)


def _shovels(request: Request) -> list[Mapping[str, Any]]:
    actor = request.node.parameters.components.get(COMPONENT)
    return [] if actor is None else [each for each in actor.status() if request.user.sees(str(each["vhost"]))]


def list_all(request: Request) -> Steps[Answer]:
    return (yield from LISTING.answer(request, _shovels(request)))


def list_of_vhost(request: Request) -> Steps[Answer]:
    name = request.vhost().name
    return (yield from LISTING.answer(request, [each for each in _shovels(request) if each["vhost"] == name]))


def _named(request: Request) -> Mapping[str, Any]:
    for each in _shovels(request):
        if (each["vhost"], each["name"]) == (request.names["vhost"], request.names["name"]):
            return each
    raise not_found()


def show(request: Request) -> Answer:
    return alone(request, _named(request))


def _changeable(request: Request) -> Mapping[str, Any]:
    """The shovel in the path, if the user may change it: its parameters are a policymaker's."""
    if not (request.user.makes_policies and (request.user.administers or request.user.enters(request.names["vhost"]))):
        raise Refused(401, NOT_AUTHORISED, "User not authorised to access object")
    return _named(request)


def delete(request: Request) -> Answer:
    found = _changeable(request)
    request.node.parameters.clear(found["vhost"], COMPONENT, found["name"])
    return NO_CONTENT


def restart(request: Request) -> Answer:
    found = _changeable(request)
    request.node.parameters.components[COMPONENT].changed(found["vhost"], found["name"])
    return NO_CONTENT

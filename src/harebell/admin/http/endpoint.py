"""An endpoint: method, path, who may use it, and the function that answers.

A handler is called with the request. What may take long is a work in steps (`broker.slices`); a handler that has to
wait for a client's next action gives a `Stream`. It raises Refused, or an error of `harebell.errors`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from harebell.admin.answers import Answer, Refused, Stream, no_vhost
from harebell.admin.http.requests import Request
from harebell.routing.steps import Steps

__all__ = ["NOT_AUTHORISED", "Endpoint", "Handler", "Needs", "check"]

Handler: TypeAlias = "Callable[[Request], Answer | Stream | Steps[Answer]]"
BODY: Final = 1 << 20  # bytes
NOT_AUTHORISED: Final = "not_authorised"  # RabbitMQ's spelling, for all but a failed login


class Needs(Enum):
    """Who may use an endpoint, in the words of the reference: the tag, and what else."""

    NOTHING = "no login"
    MANAGEMENT = "management"
    VHOST = "management and permissions in the virtual host, or administrator"
    SEEN = "management and permissions in the virtual host, or monitoring"
    POLICIES = "policymaker and permissions in the virtual host, or administrator"
    POLICYMAKER = "policymaker"
    MONITORING = "monitoring"
    ADMINISTRATOR = "administrator"


class Endpoint(NamedTuple):
    """One line of the table of endpoints.

    method    GET (which answers HEAD too), PUT, POST, PATCH or DELETE
    path      below the root, with names in braces
    needs     who may use it
    run       the handler
    about     what it does, in a line
    rabbitmq  whether RabbitMQ has it, or had it in 3.10
    query     the parameters that it takes beside those of every list
    reads     the fields of its body; "": none is read
    body      bytes that the body may have
    listens   the answer has no end, so that another site's page must not get it
    """

    method: str
    path: str
    needs: Needs
    run: Handler
    about: str
    rabbitmq: bool = True
    query: str = ""
    reads: str = ""
    body: int = BODY
    listens: bool = False


def check(needs: Needs, request: Request) -> None:
    """Raise Refused unless the user may use an endpoint with these needs. The texts are RabbitMQ's."""
    user = request.user
    match needs:
        case Needs.ADMINISTRATOR:
            _require(user.administers, "Not administrator user")
        case Needs.MONITORING:
            _require(user.monitors, "Not monitor user")
        case Needs.POLICYMAKER:
            _require(user.makes_policies, "User not authorised to access object")
        case Needs.VHOST | Needs.SEEN | Needs.POLICIES:
            vhost = request.names["vhost"]
            here = vhost in request.node.vhosts and user.enters(vhost)
            if needs is Needs.POLICIES:
                allowed = user.administers or (user.makes_policies and here)
                _require(allowed, "User not authorised to access object")
            else:
                allowed = here or (user.monitors if needs is Needs.SEEN else user.administers)
                _require(allowed, "User not authorised to access virtual host")
            if vhost not in request.node.vhosts:
                raise no_vhost(request.method)


def _require(allowed: bool, reason: str) -> None:
    if not allowed:
        raise Refused(401, NOT_AUTHORISED, reason)

"""Who asks: whoami, login and logout of a console, and the counts of logins."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from harebell.admin.answers import Answer, bad_request, not_found, to_json
from harebell.admin.http.requests import Request, field
from harebell.admin.login.gate import COOKIE, cookie
from harebell.admin.login.sessions import LONGEST
from harebell.admin.login.users import User
from harebell.admin.resources.objects import NO_CONTENT, alone, listed, wait_for
from harebell.broker.auth.passwords import RABBITMQ_SHA256, hash_password
from harebell.errors import InvalidArgument
from harebell.routing.steps import Steps

__all__ = ["attempts", "auth", "forget_attempts", "hash_of", "login", "logout", "whoami"]

FORM: Final = "application/x-www-form-urlencoded"


def whoami(request: Request) -> Answer:
    return alone(request, _about(request.user))


def _about(user: User) -> dict[str, Any]:
    return {"name": user.name, "tags": list(user.tags), "is_internal_user": True}


def auth(request: Request) -> Answer:
    """How to log in: by name and password."""
    return to_json({"oauth_enabled": False})


def login(request: Request) -> Steps[Answer]:
    """Begin a session: the answer has the cookie. The body is a form or JSON, with `username` and `password`."""
    name, password = _credentials(request)
    context, host = request.context, request.user.host
    verified = asyncio.ensure_future(context.gate.verify(name, password.encode("utf-8", "surrogatepass"), host))
    yield from wait_for(request.node, verified)
    user = context.gate.admit(name, request.headers, host)
    session = context.sessions.begin(name)
    secure = "; Secure" if request.secure else ""
    value = f"{COOKIE}={session.id}; Path=/; Max-Age={round(LONGEST)}; HttpOnly; SameSite=Strict{secure}"
    return to_json(_about(user), headers={"set-cookie": value})


def _credentials(request: Request) -> tuple[str, str]:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media == FORM and not request.body.lstrip().startswith(b"{"):  # curl calls any body a form
        try:
            form = parse_qs(request.body.decode("ascii"), keep_blank_values=True, max_num_fields=16, errors="strict")
        except ValueError:
            raise bad_request("the form cannot be read") from None
        body: Mapping[str, Any] = {name: values[0] for name, values in form.items()}
    else:
        body = request.object()
    return field(body, "username", str), field(body, "password", str)


def logout(request: Request) -> Answer:
    """End the session of the request's cookie."""
    request.context.sessions.end(cookie(request.headers.get("cookie", "")))
    return Answer(204, headers={"set-cookie": f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"})


def attempts(request: Request) -> Answer:
    """How many logins succeeded and failed since the start, by protocol."""
    _check_node(request)
    return listed(
        request,
        [
            {
                "protocol": protocol,
                "auth_attempts": each.succeeded + each.failed,
                "auth_attempts_failed": each.failed,
                "auth_attempts_succeeded": each.succeeded,
            }
            for protocol, each in sorted(request.node.logins.attempts.items())
        ],
    )


def forget_attempts(request: Request) -> Answer:
    _check_node(request)
    request.node.logins.attempts.clear()
    return NO_CONTENT


def _check_node(request: Request) -> None:
    if request.names["node"] != request.node.name:
        raise not_found()


def hash_of(request: Request) -> Answer:
    """The hash of a password, as RabbitMQ's definitions have it."""
    try:
        return to_json({"ok": hash_password(request.names["password"], RABBITMQ_SHA256)})
    except InvalidArgument as error:
        raise bad_request(str(error)) from None

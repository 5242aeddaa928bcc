"""From the credentials of a request to its user: a password with every request, or the session of a console.

Rules:

- Passwords are verified as those of AMQP, with the same turns and pauses after failures (`broker.auth.login`): a guess
  here counts there, and the other way round.
- A user without a tag of TAGS is refused, and so is a user that may only come from this machine, when it comes from
  another one. Such a user must name this machine too, in the header Host: else a web page could lead a browser of this
  machine here by a name of its own (DNS rebinding), and log in as guest.
- A request that a browser makes for another site is refused when it changes something, and where it could listen.
- Nothing here logs a password, or the header that has it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from harebell.admin.answers import Refused
from harebell.admin.login.sessions import Sessions
from harebell.admin.login.users import User
from harebell.broker.audit import Origin
from harebell.broker.auth.users import is_loopback
from harebell.broker.auth.verifier import Verdict
from harebell.broker.node import Node

__all__ = ["COOKIE", "Gate", "check_site"]

log = logging.getLogger("harebell.admin.login")

COOKIE: Final = "harebell_session"
CONSOLE: Final = "x-harebell-console"
"""The header of a console's requests: it asks for the password itself, so the browser must not."""
CHALLENGE: Final = {"www-authenticate": 'Basic realm="RabbitMQ Management"'}
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
LONGEST: Final = 4096  # bytes of the header Authorization; names have 255, passwords are shorter than the rest
HERE: Final = frozenset({"localhost", socket.gethostname().lower(), ""})


def _refused(reason: str) -> Refused:
    return Refused(401, "not_authorized", reason)


class Gate:
    """The logins of one node."""

    def __init__(self, node: Node, sessions: Sessions) -> None:
        self._node, self._sessions = node, sessions

    async def enter(self, headers: Mapping[str, str], host: str) -> User:
        """The user of a request with these headers, from that address. Raises Refused."""
        authorization = headers.get("authorization")
        if authorization is None:
            session = self._sessions.find(cookie(headers.get("cookie", "")))
            if session is None:
                challenge = {} if CONSOLE in headers else CHALLENGE
                raise Refused(401, "not_authorized", "", headers=challenge, bare=True)
            return self.admit(session.user, headers, host, session.id)
        name, password = credentials(authorization)
        await self.verify(name, password, host)
        return self.admit(name, headers, host)

    def watch(self, user: User) -> Callable[[], bool]:
        """A function that says whether the user is still logged in, and may use the API; to ask is no use of it."""
        secret = self._sessions.secret(user.name)

        def holds() -> bool:
            if user.session is not None and not self._sessions.holds(user.session):
                return False
            return user.manages and self._sessions.secret(user.name) == secret

        return holds

    async def verify(self, name: str, password: bytes, host: str) -> None:
        """Wait for the verdict on a password. Raises Refused."""
        answered: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()

        def answer(verdict: Verdict) -> None:
            if not answered.done():  # else the client has left
                answered.set_result(verdict)

        self._node.logins.try_password(host, name, password, answer)
        verdict = await answered
        self._node.logins.count("http", succeeded=verdict is True)
        if not verdict:
            log.warning("%s: login refused: %s", host, self._node.logins.refusal(name, verdict))
        if verdict is None:
            raise Refused(429, "too_many_requests", "Too many logins wait: try again later", headers=RETRY)
        if not verdict:
            self._note(name, host)
            raise _refused("Login failed")

    def _note(self, name: str, host: str) -> None:
        """Record a wrong password."""
        events = self._node.events
        events.origin = Origin("", host, "http")
        events.act("", "login", name, "login", refused="Login failed")
        events.origin = None

    def admit(self, name: str, headers: Mapping[str, str], host: str, session: str | None = None) -> User:
        """The user of that name, who has proved to be it. Raises Refused when it may not use the API from there."""
        users = self._node.users
        if not users.may_come_from(name, host) or not (name not in users.loopback_users or names_here(headers)):
            raise _refused("User can only log in via localhost")
        user = User(self._node, name, host, session)
        if not user.manages:
            raise _refused("Not management user")
        return user


RETRY: Final = {"retry-after": "10"}


def credentials(authorization: str) -> tuple[str, bytes]:
    """User and password of the header. Raises Refused."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic" or len(authorization) > LONGEST:
        raise Refused(401, "not_authorized", "Login failed", headers=CHALLENGE)
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return name.decode() if colon else "", password
    except (binascii.Error, UnicodeDecodeError):
        raise _refused("Login failed") from None


def cookie(header: str) -> str:
    """The id of the session in the header Cookie; "" without one."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def names_here(headers: Mapping[str, str]) -> bool:
    """Whether the header Host has a name or an address of this machine that no other site can have."""
    host = _host_of(headers.get("host", ""))
    if host in HERE or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return is_loopback(host)


def _host_of(authority: str) -> str:
    try:
        return (urlsplit(f"//{authority}").hostname or "").lower()
    except ValueError:
        return "?"


def check_site(method: str, headers: Mapping[str, str], *, listens: bool = False) -> None:
    """Raise Refused for what a browser asks in another site's name, if it changes something or `listens`."""
    if method in SAFE and not listens:
        return  # the browser gives the other site no answer: no header allows it
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if site not in ("none", "same-origin"):
        raise Refused(403, "cross_site", "The request comes from another site")
    if origin is not None and _authority(origin) != headers.get("host", "").lower():
        raise Refused(403, "cross_site", "The request comes from another site")


def _authority(origin: str) -> str:
    return origin.partition("://")[2].lower()

"""The SASL mechanisms, without users, sockets or clocks: each takes the client's responses and returns the next step.

    PLAIN           user and password in clear (RFC 4616)
    AMQPLAIN        the same as a field table, RabbitMQ's own
    SCRAM-SHA-256   a proof of the password (RFC 7677); two more rounds of connection.secure and secure-ok
    EXTERNAL        the name in the TLS client certificate that was verified (RFC 4422, appendix A)
    ANONYMOUS       one user for all clients (RFC 4505); off unless the program enables it

`step` gives a Challenge to send, a Password or a Proof to verify, or Proven: the user is known. It raises Refused, with
the reason for the log; a client never learns more than that it was refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from harebell.broker.auth.scram import Keys, ScramServer
from harebell.protocol.v091.fields import read_table

__all__ = ["MECHANISMS", "Challenge", "Exchange", "Facts", "Password", "Proof", "Proven", "Refused"]

MAX_NAME_BYTES: Final = 255  # of a user name: the limit of a shortstr, which user-id is


class Refused(Exception):
    """The login failed; the text is for the log and has no secret in it."""


@dataclass(frozen=True, slots=True)
class Challenge:
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Password:
    user: str
    password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof of the user's password; `verify` gives the Challenge that answers it, or raises Refused."""

    user: str
    verify: Callable[[], Challenge] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Proven:
    user: str


Step: TypeAlias = Challenge | Password | Proof | Proven


@dataclass(frozen=True, slots=True)
class Facts:
    """The inputs of mechanisms: the certificate's user, the user of ANONYMOUS, and SCRAM's keys by user."""

    certificate_user: str | None
    anonymous_user: str | None
    scram_keys: Callable[[str], Keys]


class Exchange(Protocol):
    """One login by one mechanism."""

    def step(self, response: bytes) -> Step: ...


class Plain:
    def __init__(self, facts: Facts) -> None:
        pass

    def step(self, response: bytes) -> Step:
        parts = response.split(b"\0")
        if len(parts) != 3:
            raise Refused("malformed response")
        if parts[0] and parts[0] != parts[1]:
            raise Refused("authorization as somebody else")
        return Password(_user(parts[1]), parts[2])


class AmqPlain:
    def __init__(self, facts: Facts) -> None:
        pass

    def step(self, response: bytes) -> Step:
        try:
            table = read_table(len(response).to_bytes(4, "big") + response, 0)[0]
        except Exception as error:  # a hostile table may raise anything; the engine answers 502 to it as well
            raise Refused("malformed response") from error
        user, password = table.get("LOGIN"), table.get("PASSWORD")
        if not isinstance(user, str) or not isinstance(password, str):
            raise Refused("malformed response: LOGIN and PASSWORD are strings")
        return Password(_user(user.encode("utf-8", "surrogateescape")), password.encode("utf-8", "surrogateescape"))


class External:
    def __init__(self, facts: Facts) -> None:
        self._user = facts.certificate_user

    def step(self, response: bytes) -> Step:
        if self._user is None:
            raise Refused("no client certificate that was verified")
        if response and response != self._user.encode():
            raise Refused("authorization as somebody else")
        return Proven(self._user)


class Anonymous:
    def __init__(self, facts: Facts) -> None:
        self._user = facts.anonymous_user

    def step(self, response: bytes) -> Step:
        """The response is a trace (RFC 4505) and does not identify the client."""
        if self._user is None:
            raise Refused("no user for anonymous logins")
        return Proven(self._user)


class Scram:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._server = ScramServer()
        self._user: str | None = None
        self._proven = False

    def step(self, response: bytes) -> Step:
        if self._proven and self._user is not None:
            if response:
                raise Refused("malformed response")
            return Proven(self._user)
        if self._user is not None:
            return Proof(self._user, lambda: self._finish(response))
        try:
            self._user = _user(self._server.begin(response).encode())
            return Challenge(self._server.challenge(self._facts.scram_keys(self._user)))
        except ValueError as error:
            who = f"user '{self._user}': " if self._user is not None else ""
            raise Refused(who + _reason(error)) from error

    def _finish(self, response: bytes) -> Challenge:
        try:
            proof = self._server.finish(response)
        except ValueError as error:
            raise Refused(_reason(error)) from error  # the user is the Proof's
        self._proven = True
        return Challenge(proof)


MECHANISMS: Final[dict[str, Callable[[Facts], Exchange]]] = {
    "PLAIN": Plain,
    "AMQPLAIN": AmqPlain,
    "SCRAM-SHA-256": Scram,
    "EXTERNAL": External,
    "ANONYMOUS": Anonymous,
}


def _reason(error: ValueError) -> str:
    """Undecodable text and base64 are ValueErrors too."""
    return "malformed response" if isinstance(error, UnicodeError) else str(error)


def _user(raw: bytes) -> str:
    try:
        user = raw.decode()
    except UnicodeDecodeError:
        raise Refused("malformed user name") from None
    if not user or len(raw) > MAX_NAME_BYTES:
        raise Refused("malformed user name")
    return user

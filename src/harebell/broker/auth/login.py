"""Logins: from connection.start-ok to a user or a refusal, by SASL mechanisms, passwords, certificates and pauses.

A login may take time (a turn after failures, a slow hash, further rounds), so it answers through its `Applicant`,
which is the connection. Refusals are logged with their reason; the client only learns that it was refused.

A password that is known to be right comes in at once, and one that is known to be wrong is refused at once: neither is
a guess. Clients that try the same password from the same address share one verification.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Protocol

from harebell.broker.auth.sasl import MECHANISMS, Challenge, Exchange, Facts, Password, Proof, Proven, Refused
from harebell.broker.auth.scram import Keys, made_up_keys, parse_keys
from harebell.broker.auth.throttle import Throttle, site
from harebell.broker.auth.users import SCRAM_KEYS, Users
from harebell.broker.auth.verifier import Verdict, Verifier
from harebell.broker.timers import Timers
from harebell.config import DEFAULT_MECHANISMS
from harebell.errors import InvalidArgument

__all__ = ["Applicant", "Attempts", "Login", "Logins"]

log = logging.getLogger("harebell.broker.login")


class Applicant(Protocol):
    """The connection of a client that logs in.

    `protocol` is RabbitMQ's word for its dialect, `certificate_user` the name in its verified TLS certificate.
    """

    protocol: str

    @property
    def peer(self) -> str: ...
    @property
    def peer_host(self) -> str: ...
    @property
    def certificate_user(self) -> str | None: ...
    def challenge(self, data: bytes) -> None: ...
    def admit(self, user: str) -> None: ...
    def refuse(self, mechanism: str, user: str) -> None: ...


class Attempts:
    """The logins by one protocol."""

    __slots__ = ("failed", "succeeded")

    def __init__(self) -> None:
        self.failed = self.succeeded = 0


class Logins:
    """The mechanisms, users and pauses that all logins share.

    mechanisms      the offered ones, in this order; EXTERNAL only to a client with a certificate
    anonymous_user  the user that ANONYMOUS logs in
    """

    def __init__(self, users: Users, timers: Timers, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.mechanisms: tuple[str, ...] = DEFAULT_MECHANISMS
        self.anonymous_user = "guest"
        self.throttle = Throttle(timers)
        self.verifier = Verifier(call_soon)
        self.users = users
        self.attempts: dict[str, Attempts] = {}  # by protocol, in RabbitMQ's words
        self._secret = secrets.token_bytes(32)
        self._under_way: dict[tuple[str, bytes], list[Callable[[Verdict], None]]] = {}

    def try_password(self, host: str, name: str, password: bytes, answer: Callable[[Verdict], None]) -> None:
        """Call `answer`, at once or later: whether that is the password of the user of that name."""
        user = self.users.users.get(name)
        ticket = self.verifier.ticket(name, user, password)
        verdict = self.verifier.recall(ticket)
        if verdict is not None:
            answer(verdict)
            return
        key = site(host), ticket
        if (others := self._under_way.get(key)) is not None:
            others.append(answer)
            return
        self._under_way[key] = [answer]

        def verified(verdict: Verdict) -> None:
            self.throttle.ended(host, name, failed=verdict is False)
            changed = self.verifier.ticket(name, self.users.users.get(name), password) != ticket
            for each in self._under_way.pop(key, ()):
                each(False if changed else verdict)

        def at_its_turn() -> None:
            self.verifier.verify(key[0], name, user, password, verified)

        if not self.throttle.admit(host, name, at_its_turn):
            del self._under_way[key]
            answer(None)

    def refusal(self, name: str, verdict: Verdict, wrong: str = "wrong password") -> str:
        """Why the log says that a user of that name was refused; `wrong` where the user exists and has a password."""
        user = self.users.users.get(name)
        if verdict is None:
            wrong = "too many logins wait already"
        elif user is None:
            wrong = "no such user"
        elif not user.password_hash:
            wrong = "the user has no password"
        return f"user '{name}': {wrong}"

    def count(self, protocol: str, *, succeeded: bool) -> None:
        """Count a login by this protocol."""
        attempts = self.attempts.setdefault(protocol, Attempts())
        if succeeded:
            attempts.succeeded += 1
        else:
            attempts.failed += 1

    def enable(self, mechanisms: tuple[str, ...]) -> None:
        """Offer these mechanisms and no others. Raises InvalidArgument for an unknown one."""
        unknown = [name for name in mechanisms if name not in MECHANISMS]
        if unknown or not mechanisms:
            missing = ", ".join(unknown) or "at all"
            raise InvalidArgument(f"no SASL mechanism {missing}: there are {', '.join(MECHANISMS)}")
        self.mechanisms = mechanisms

    def offered(self, certificate_user: str | None) -> tuple[str, ...]:
        """EXTERNAL for a client with a certificate, SCRAM while a user has keys for it (or nothing else is offered)."""
        useless = set() if self.users.scram_iterations or len(self.mechanisms) == 1 else {"SCRAM-SHA-256"}
        if certificate_user is None:
            useless.add("EXTERNAL")
        return tuple(name for name in self.mechanisms if name not in useless)

    def exchange(self, mechanism: str, certificate_user: str | None) -> Exchange:
        """A login by that mechanism. Raises Refused when it is not offered."""
        if mechanism not in self.offered(certificate_user):
            raise Refused("mechanism not offered")
        anonymous_user = self.anonymous_user if "ANONYMOUS" in self.mechanisms else None
        return MECHANISMS[mechanism](Facts(certificate_user, anonymous_user, self._scram_keys))

    def _scram_keys(self, name: str) -> Keys:
        user = self.users.users.get(name)
        keys = user.extra.get(SCRAM_KEYS) if user is not None else None
        if user is not None and user.password_hash and keys is None:
            log.warning(
                "user '%s' has no keys for SCRAM-SHA-256: set its password anew with --scram, or log in with PLAIN",
                name,
            )
        if keys is not None:
            return parse_keys(str(keys))
        return made_up_keys(self._secret, name, self.users.scram_iterations)


class Login:
    """One login of one applicant."""

    def __init__(self, logins: Logins, applicant: Applicant, mechanism: str) -> None:
        self._logins = logins
        self._applicant = applicant
        self._mechanism = mechanism
        self._exchange: Exchange | None = None
        self._user = ""  # the name that the client gave, as soon as it is known

    def start(self, response: bytes) -> None:
        """Begin with the response in start-ok."""
        try:
            self._exchange = self._logins.exchange(self._mechanism, self._applicant.certificate_user)
        except Refused as refused:
            self._refuse(str(refused))
        else:
            self.respond(response)

    def respond(self, response: bytes) -> None:
        """Process the response in start-ok or secure-ok."""
        if self._exchange is None:
            self._refuse("response out of turn")
            return
        try:
            step = self._exchange.step(response)
        except Refused as refused:
            self._refuse(str(refused))
            return
        match step:
            case Challenge(data):
                self._applicant.challenge(data)
            case Password(user, password):
                self._user = user
                self._logins.try_password(self._applicant.peer_host, user, password, self._judge)
            case Proof(user, verify):
                self._user = user
                self._try_proof(verify)
            case Proven(user):
                self._user = user
                self._admit(user)

    def _judge(self, verdict: Verdict) -> None:
        if verdict:
            self._admit(self._user)
        else:
            self._refuse(self._logins.refusal(self._user, verdict))

    def _try_proof(self, verify: Callable[[], Challenge]) -> None:
        throttle, host, user = self._logins.throttle, self._applicant.peer_host, self._user

        def at_its_turn() -> None:
            try:
                challenge = verify()
            except Refused as refused:
                throttle.ended(host, user, failed=True)
                self._refuse(self._logins.refusal(user, False, str(refused)))
            else:
                throttle.ended(host, user, failed=False)
                self._applicant.challenge(challenge.data)

        if not throttle.admit(host, user, at_its_turn):
            self._judge(None)

    def _admit(self, user: str) -> None:
        users = self._logins.users
        if user not in users.users:
            self._refuse(self._logins.refusal(user, False))
        elif not users.may_come_from(user, self._applicant.peer_host):
            self._refuse(f"user '{user}': can only connect via localhost")
        else:
            self._logins.count(self._applicant.protocol, succeeded=True)
            self._applicant.admit(user)

    def _refuse(self, reason: str) -> None:
        self._logins.count(self._applicant.protocol, succeeded=False)
        log.warning("%s: login refused, mechanism %s: %s", self._applicant.peer, self._mechanism, reason)
        self._applicant.refuse(self._mechanism, self._user)

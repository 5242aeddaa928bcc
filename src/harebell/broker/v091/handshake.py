"""The broker's side of a connection's handshake: start, login, tune, open; and connection.update-secret later.

A login may take time, so its answer is a batch of its own (`auth.login`).
"""

from __future__ import annotations

from typing import Final, Protocol

import harebell
from harebell.broker.auth import Login
from harebell.broker.connections.handshake import BaseHandshake, OpeningConnection
from harebell.broker.v091.link import Link
from harebell.errors import AccessRefused, AmqpError, NotAllowed, NotImplemented as NotImplemented540
from harebell.protocol.v091 import ConnectionState, Table, methods as m

__all__ = ["CAPABILITIES", "SILENT_CLOSE_DELAY", "Handshake"]

SILENT_CLOSE_DELAY: Final = 3.0  # seconds; RabbitMQ's pause before it closes a refused login silently

CAPABILITIES: Final[Table] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "direct_reply_to": True,
    "per_consumer_qos": True,
    "authentication_failure_close": True,
}


class OpeningLink(OpeningConnection, Link, Protocol):
    """The connection whose handshake this is."""

    def close(self, error: AmqpError, class_id: int = 0, method_id: int = 0) -> None:
        """Close the connection with a reply code."""

    def end(self, after: float = 0.0) -> None:
        """Close the transport, `after` seconds from now."""


class Handshake(BaseHandshake[OpeningLink]):
    """The handshake of one connection; it is also the `Applicant` of its login."""

    protocol = "amqp091"

    def start(self) -> m.ConnectionStart:
        """The first method that the broker sends."""
        product, _, version = self.node.limits.announce.partition(" ")
        properties: Table = {
            "product": product,
            "version": version or harebell.__version__,
            "harebell": harebell.__version__,
            "platform": "Python",
            "information": "AMQP 0-9-1 with RabbitMQ's extensions",
            "copyright": "Apache-2.0",
            "cluster_name": self.node.name,
            "cluster_id": self.node.id,
            "capabilities": CAPABILITIES,
        }
        mechanisms = " ".join(self.node.logins.offered(self.certificate_user)).encode()
        return m.ConnectionStart(0, 9, properties, mechanisms, b"en_US")

    def handle(self, method: m.Method) -> None:
        """Process the client's method of the handshake. AmqpError when it is refused."""
        match method:
            case m.ConnectionStartOk():
                self._start_ok(method)
            case m.ConnectionSecureOk():
                self._secure_ok(method)
            case m.ConnectionOpen():
                self._open(method.virtual_host)
            case m.ConnectionUpdateSecret():
                self._update_secret()
            case _:
                raise NotImplemented540(method.NAME)

    def _start_ok(self, method: m.ConnectionStartOk) -> None:
        connection = self.connection
        connection.client_properties = method.client_properties
        connection.mechanism = method.mechanism
        self.login = Login(self.node.logins, self, method.mechanism)
        self.login.start(method.response)

    def _secure_ok(self, method: m.ConnectionSecureOk) -> None:
        if self.login is None:
            raise NotImplemented540(method.NAME)
        self.login.respond(method.response)

    def _open(self, name: str) -> None:
        self.enter(name, NotAllowed)
        connection = self.connection
        connection.engine.send_method(0, m.ConnectionOpenOk())
        self.node.events.connection_created(connection)

    def _update_secret(self) -> None:
        """Accept a new secret without looking at it, as RabbitMQ does where secrets do not expire.

        The client's rights stay those of its login: no right comes from a secret that is not checked. Where it has
        closed the connection later in the same batch, it accepts only the close-ok.
        """
        if self.connection.engine.state is ConnectionState.OPEN:
            self.connection.engine.send_method(0, m.ConnectionUpdateSecretOk())
            self.connection.has_output(0)

    # -- the applicant of the login ------------------------------------------------------------------------------

    def challenge(self, data: bytes) -> None:
        self._answer(m.ConnectionSecure(data))

    def admit(self, user: str) -> None:
        connection, limits = self.connection, self.node.limits
        connection.user = user
        self.node.events.authenticated(connection, connection.mechanism, user)
        self._answer(m.ConnectionTune(limits.channel_max, limits.frame_max, limits.heartbeat))

    def refuse(self, mechanism: str, user: str) -> None:
        connection = self.connection
        if not connection.is_opening:
            return
        self.node.events.authenticated(connection, mechanism, user, f"user '{user}' - invalid credentials")
        if connection.capability("authentication_failure_close"):
            refusal = f"Login was refused using authentication mechanism {mechanism}"
            connection.close(AccessRefused(f"{refusal}. For details see the broker logfile."))
        else:
            connection.end(SILENT_CLOSE_DELAY)

    def _answer(self, method: m.Method) -> None:
        connection = self.connection
        if connection.is_opening and connection.engine.state is ConnectionState.AWAIT_TUNE:
            connection.engine.send_method(0, method)
            connection.has_output(0)
            timers = self.node.timers
            timers.at(timers.now(), connection.read_on)

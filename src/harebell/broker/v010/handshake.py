"""The broker's side of a connection's handshake in AMQP 0-10: start, login, tune, open.

The mechanisms, users, limits and pauses are those of AMQP 0-9-1. A refused login is answered by connection.close with
320, as there is no other code for it, and RabbitMQ's text.
"""

from __future__ import annotations

import platform
from typing import Final, Protocol

import harebell
from harebell.broker.auth import Login
from harebell.broker.connections.handshake import BaseHandshake, OpeningConnection
from harebell.broker.v010.link import Link
from harebell.errors import AccessRefused, AmqpError, InvalidPath
from harebell.protocol.conversion.field_values import to_table
from harebell.protocol.v010 import ConnectionState, Control, controls as k
from harebell.protocol.v010.frames import LARGEST_FRAME

__all__ = ["Handshake"]

MOST_HEARTBEAT: Final = 0xFFFF


class OpeningLink(OpeningConnection, Link, Protocol):
    """The connection whose handshake this is."""


class Handshake(BaseHandshake[OpeningLink]):
    """The handshake of one connection; it is also the `Applicant` of its login."""

    protocol = "amqp010"

    def start(self) -> k.ConnectionStart:
        """The first control that the broker sends."""
        product, _, version = self.node.limits.announce.partition(" ")
        properties = {
            "product": product,
            "version": version or harebell.__version__,
            "harebell": harebell.__version__,
            "platform": "Python",
            "information": "AMQP 0-10",
            "copyright": "Apache-2.0",
            "host": platform.node(),
            "cluster_name": self.node.name,
            "cluster_id": self.node.id,
        }
        return k.ConnectionStart(properties, list(self.node.logins.offered(self.certificate_user)), ["en_US"])

    def handle(self, control: Control) -> None:
        """Process the client's control of the handshake. AmqpError when it is refused."""
        match control:
            case k.ConnectionStartOk():
                self._start_ok(control)
            case k.ConnectionSecureOk() if self.login is not None:
                self.login.respond(control.response)
            case k.ConnectionTuneOk():
                self.connection.heartbeat = control.heartbeat or 0
            case k.ConnectionOpen():
                self._open(control.virtual_host or "/")
            case _:
                raise NotImplementedError(control.NAME)

    def _start_ok(self, control: k.ConnectionStartOk) -> None:
        connection = self.connection
        connection.client_properties = to_table(control.client_properties or {})[0]
        connection.mechanism = control.mechanism
        self.login = Login(self.node.logins, self, control.mechanism)
        self.login.start(control.response)

    def _open(self, name: str) -> None:
        self.enter(name, InvalidPath)
        connection = self.connection
        connection.engine.send_control(0, k.ConnectionOpenOk())
        self.node.events.connection_created(connection)

    # -- the applicant of the login ------------------------------------------------------------------------------

    def challenge(self, data: bytes) -> None:
        self._answer(k.ConnectionSecure(data))

    def admit(self, user: str) -> None:
        connection, limits = self.connection, self.node.limits
        connection.user = user
        self.node.events.authenticated(connection, connection.mechanism, user)
        frame = min(limits.frame_max, LARGEST_FRAME)
        most = min(limits.heartbeat * 2, MOST_HEARTBEAT)
        self._answer(k.ConnectionTune(limits.channel_max, frame, 0, most))

    def refuse(self, mechanism: str, user: str) -> None:
        connection = self.connection
        if not connection.is_opening:
            return
        self.node.events.authenticated(connection, mechanism, user, f"user '{user}' - invalid credentials")
        refusal: AmqpError = AccessRefused(
            f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
        )
        connection.close(refusal)

    def _answer(self, control: Control) -> None:
        connection = self.connection
        if connection.is_opening and connection.engine.state is ConnectionState.AWAIT_TUNE:
            connection.engine.send_control(0, control)
            connection.has_output(0)
            timers = self.node.timers
            timers.at(timers.now(), connection.read_on)

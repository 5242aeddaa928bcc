"""How a connection is opened, without I/O: the broker's start, tune and open-ok in, our answers out.

    handshake = Handshake(engine, parameters)
    handshake.start()                        # the protocol header is in engine.data_to_send()
    handshake.receive(event)                 # for each event of channel 0, until handshake.done

Limits are negotiated as RabbitMQ's clients do: the smaller of the two wishes, and where one side has no wish (0) the
other's. A refused login becomes AccessRefused, a missing vhost NotAllowed, each with the broker's text.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Final

from harebell import __version__, errors
from harebell.client.core.login import choose
from harebell.client.servers import HAREBELL
from harebell.client.url import ConnectionParameters
from harebell.protocol.v091 import Engine, Table, methods as m

__all__ = ["CAPABILITIES", "Handshake"]

CAPABILITIES: Final[Table] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


class Handshake:
    """The opening of one connection.

    done               the connection is open
    heartbeat          seconds agreed on; 0 is none
    server_properties  what the broker said about itself
    """

    __slots__ = ("_engine", "_parameters", "done", "heartbeat", "server_properties", "stage")

    def __init__(self, engine: Engine, parameters: ConnectionParameters) -> None:
        self._engine = engine
        self._parameters = parameters
        self.done = False
        self.heartbeat = 0
        self.server_properties: Table = {}
        self.stage = "waiting for connection.start"  # for the text of an error

    def start(self) -> None:
        self._engine.send_header()

    def receive(self, event: m.Method) -> None:
        """Answer one method of channel 0.

        Raises the broker's refusal as the class of its reply code (AccessRefused for a login, NotAllowed for a vhost),
        and AccessRefused when no SASL mechanism is common to both sides.
        """
        if isinstance(event, m.ConnectionStart):
            self._start(event)
        elif isinstance(event, m.ConnectionSecure):
            raise errors.AccessRefused(
                f"the broker asks for a second login step (connection.secure), which {self._mechanism_names()} have not"
            )
        elif isinstance(event, m.ConnectionTune):
            self._tune(event)
        elif isinstance(event, m.ConnectionOpenOk):
            self.stage = "open"
            self.done = True
        elif isinstance(event, m.ConnectionClose):
            self._engine.send_method(0, m.ConnectionCloseOk())
            error = errors.from_reply(event.reply_code, event.reply_text, event.class_id, event.method_id)
            error.add_note(f"{self._parameters.peer} refused the connection while {self.stage}")
            raise error

    def lost_reason(self) -> str:
        """What a connection that is cut at this stage most likely means; "" when there is no telling."""
        if self.stage == "logging in":
            return f": most likely a wrong password for user {self._parameters.username!r}, or no rights there"
        if self.stage == "waiting for connection.start":
            return ": no AMQP broker there, or one that wants TLS" if not self._parameters.tls else ""
        return ""

    def _mechanism_names(self) -> str:
        return ", ".join(self._parameters.mechanisms)

    def _start(self, event: m.ConnectionStart) -> None:
        self.server_properties = event.server_properties
        offered = event.mechanisms.decode("ascii", "replace").split()
        mechanism, response = choose(self._parameters, offered)
        self.stage = "logging in"
        properties: Table = {
            "product": HAREBELL,
            "version": __version__,
            "platform": f"Python {platform.python_version()}",
            "capabilities": CAPABILITIES,
        }
        if self._parameters.name:
            properties["connection_name"] = self._parameters.name
        given = dict(self._parameters.client_properties)
        if isinstance(capabilities := given.get("capabilities"), Mapping):
            given["capabilities"] = {**CAPABILITIES, **capabilities}
        properties.update(given)  # type: ignore[arg-type]  # `url` has checked them
        locale, locales = self._parameters.locale, event.locales.decode("utf-8", "replace").split()
        if locale not in locales and locale != "en_US":  # every broker has this one
            raise errors.LocalProtocolError(
                f"the broker has no locale {locale!r}: it offers {', '.join(locales) or 'none'}"
            )
        self._engine.send_method(0, m.ConnectionStartOk(properties, mechanism, response, locale=locale))

    def _tune(self, event: m.ConnectionTune) -> None:
        self.heartbeat = _agreed(event.heartbeat, self._parameters.heartbeat)
        # The engine has read the broker's limits by now, 0 turned into its own ceiling.
        channel_max = _agreed(self._engine.channel_max, self._parameters.channel_max)
        frame_max = _agreed(self._engine.frame_max, self._parameters.frame_max)
        self._engine.send_method(0, m.ConnectionTuneOk(channel_max, frame_max, self.heartbeat))
        self.stage = f"opening vhost {self._parameters.vhost!r}"
        self._engine.send_method(0, m.ConnectionOpen(self._parameters.vhost))


def _agreed(theirs: int, ours: int) -> int:
    return min(theirs, ours) if theirs and ours else theirs or ours

"""How a connection of AMQP 0-10 is opened, without I/O: the broker's start, tune and open-ok in, our answers out.

    handshake = Handshake(engine, parameters)
    handshake.start()                        # the protocol header is in engine.data_to_send()
    handshake.receive(control)               # for each control of the connection, until handshake.done

A broker refuses a login, a virtual host or a connection with connection.close, mostly with code 320. Harebell's text
begins with the name of the code that AMQP 0-9-1 has for it: then that class is raised.
"""

from __future__ import annotations

import platform
from typing import Final

from harebell import __version__, errors
from harebell.client.core.login import choose
from harebell.client.servers import HAREBELL
from harebell.client.url import ConnectionParameters
from harebell.protocol.v010 import Control, Engine, Map, controls as k
from harebell.protocol.v010.domains import CloseCode
from harebell.protocol.v010.frames import LARGEST_FRAME

__all__ = ["Handshake", "close_error"]

_BY_NAME: Final = {cls.reply_name: cls for cls in errors.REPLY_CODES.values()}


class Handshake:
    """The opening of one connection.

    done               the connection is open
    heartbeat          seconds agreed on; 0 is none
    server_properties  what the broker said about itself
    stage              what is waited for, for the text of an error
    """

    __slots__ = ("_engine", "_parameters", "done", "heartbeat", "server_properties", "stage")

    def __init__(self, engine: Engine, parameters: ConnectionParameters) -> None:
        self._engine = engine
        self._parameters = parameters
        self.done = False
        self.heartbeat = 0
        self.server_properties: Map = {}
        self.stage = "waiting for connection.start"

    def start(self) -> None:
        self._engine.send_header()

    def receive(self, control: Control) -> None:
        """Answer one control. Raises the broker's refusal, and AccessRefused when no SASL mechanism is common."""
        match control:
            case k.ConnectionStart():
                self._start(control)
            case k.ConnectionSecure():
                asked = ", ".join(self._parameters.mechanisms)
                raise errors.AccessRefused(
                    f"the broker asks for a second login step (connection.secure), which {asked} have not"
                )
            case k.ConnectionTune():
                self._tune(control)
            case k.ConnectionOpenOk():
                self.stage = "open"
                self.done = True
            case k.ConnectionRedirect():
                raise errors.ConnectionForced(f"the broker redirects to {control.host}: connect there")
            case k.ConnectionClose():
                self._engine.send_control(0, k.ConnectionCloseOk())
                error = close_error(control, login=self.stage == "logging in")
                error.add_note(f"{self._parameters.peer} refused the connection while {self.stage}")
                raise error

    def lost_reason(self) -> str:
        """What a connection that is cut at this stage most likely means; "" when there is no telling."""
        if self.stage == "waiting for connection.start":
            return ": no AMQP broker there, or one that wants TLS" if not self._parameters.tls else ""
        return ""

    def _start(self, control: k.ConnectionStart) -> None:
        self.server_properties = control.server_properties or {}
        mechanism, response = choose(self._parameters, [str(each) for each in control.mechanisms])
        self.stage = "logging in"
        properties: Map = {
            "product": HAREBELL,
            "version": __version__,
            "platform": f"Python {platform.python_version()}",
            "information": "AMQP 0-10",
            "copyright": "Apache-2.0",
        }
        if self._parameters.name:
            properties["connection_name"] = self._parameters.name
        properties.update(self._parameters.client_properties)  # type: ignore[arg-type]  # `url` has checked them
        locale, locales = self._parameters.locale, [str(each) for each in control.locales]
        if locale not in locales and locale != "en_US":  # every broker has this one
            raise errors.LocalProtocolError(
                f"the broker has no locale {locale!r}: it offers {', '.join(locales) or 'none'}"
            )
        self._engine.send_control(0, k.ConnectionStartOk(properties, mechanism, response, locale))

    def _tune(self, control: k.ConnectionTune) -> None:
        parameters = self._parameters
        self.heartbeat = _within(parameters.heartbeat, control.heartbeat_min or 0, control.heartbeat_max or 0)
        channels = _agreed(control.channel_max or 0, parameters.channel_max)
        size = min(_agreed(control.max_frame_size or 0, parameters.frame_max) or LARGEST_FRAME, LARGEST_FRAME)
        self._engine.send_control(0, k.ConnectionTuneOk(channels or None, size, self.heartbeat or None))
        self.stage = f"opening vhost {parameters.vhost!r}"
        self._engine.send_control(0, k.ConnectionOpen(parameters.vhost))


def close_error(control: k.ConnectionClose, *, login: bool = False) -> errors.AmqpError:
    """The exception for a received connection.close; `login`: it answers one."""
    text = control.reply_text or ""
    name, separator, detail = text.partition(" - ")
    if control.reply_code == CloseCode.CONNECTION_FORCED:
        cls = _BY_NAME.get(name) if separator else None
        if cls is not None:
            return cls(detail)
        if login:
            return errors.AccessRefused(text)
    return errors.from_reply(control.reply_code, text)


def _agreed(theirs: int, ours: int) -> int:
    return min(theirs, ours) if theirs and ours else theirs or ours


def _within(ours: int, least: int, most: int) -> int:
    """The heartbeat in seconds: ours within the broker's limits; where either side has no wish, the other's."""
    return max(_agreed(most, ours), least)

"""A client that only wants to come in, step by step."""

from __future__ import annotations

from harebell.broker.connections.phase import Phase
from harebell.broker.v091.connection import Connection
from harebell.protocol.v091 import Engine, Role, methods as m
from harebell.protocol.v091.fields import Table
from tests.broker.kit import FakeTransport, NodeKit, connect

CAPABILITIES: Table = {"authentication_failure_close": True}


class Knock:
    """`say` sends a method and gives what was answered; so does `listen`, later."""

    def __init__(self, kit: NodeKit, host: str = "127.0.0.1", certificate_user: str | None = None) -> None:
        self.transport = FakeTransport()
        self.transport.peer_host, self.transport.peer = host, f"{host}:1"
        self.transport.certificate_user = certificate_user
        self.connection: Connection = connect(kit.node, self.transport)
        self.engine = Engine(Role.CLIENT)
        self.engine.send_header()
        start = self._pump()[0]
        assert isinstance(start, m.ConnectionStart)
        self.mechanisms = start.mechanisms.decode().split()

    def login(self, mechanism: str, response: bytes) -> list[m.Method]:
        return self.say(m.ConnectionStartOk({"capabilities": CAPABILITIES}, mechanism, response, "en_US"))

    def plain(self, user: str, password: str) -> list[m.Method]:
        return self.login("PLAIN", f"\0{user}\0{password}".encode())

    def say(self, method: m.Method) -> list[m.Method]:
        self.engine.send_method(0, method)
        return self._pump()

    def listen(self) -> list[m.Method]:
        data = bytes(self.transport.written)
        self.transport.written.clear()
        self.engine.receive_data(data)
        return [event for _, event in self.engine.events() if isinstance(event, m.Method)]

    def _pump(self) -> list[m.Method]:
        self.connection.receive_data(self.engine.data_to_send())
        return self.listen()

    @property
    def waits(self) -> bool:
        return self.connection.phase is Phase.OPENING


def admitted(answers: list[m.Method]) -> bool:
    """Whether it came in; it was refused as it should be otherwise."""
    (answer,) = answers
    if isinstance(answer, m.ConnectionTune):
        return True
    assert isinstance(answer, m.ConnectionClose)
    assert answer.reply_code == 403
    assert answer.reply_text.startswith("ACCESS_REFUSED - Login was refused using authentication mechanism ")
    return False

"""The opening between two engines: ours in the client's role, one in the server's."""

from __future__ import annotations

import pytest

from harebell import errors
from harebell.client.core.handshake import Handshake
from harebell.client.url import ConnectionParameters
from harebell.protocol.v091 import Engine, Role, methods as m


class Opening:
    def __init__(self, **wishes: object) -> None:
        self.parameters = ConnectionParameters(**wishes)  # type: ignore[arg-type]
        self.client, self.server = Engine(Role.CLIENT), Engine(Role.SERVER)
        self.handshake = Handshake(self.client, self.parameters)
        self.handshake.start()
        self.server.receive_data(self.client.data_to_send())

    def say(self, method: m.Method) -> list[m.Method]:
        """What the client answers."""
        self.server.send_method(0, method)
        self.client.receive_data(self.server.data_to_send())
        for _, event in self.client.events():
            assert isinstance(event, m.Method)
            self.handshake.receive(event)
        self.server.receive_data(self.client.data_to_send())
        return [event for _, event in self.server.events() if isinstance(event, m.Method)]

    def start(self, mechanisms: bytes = b"AMQPLAIN PLAIN") -> m.ConnectionStartOk:
        (answer,) = self.say(m.ConnectionStart(0, 9, {"product": "P"}, mechanisms, b"en_US"))
        assert isinstance(answer, m.ConnectionStartOk)
        return answer

    def tune(self, channel_max: int, frame_max: int, heartbeat: int) -> m.ConnectionTuneOk:
        self.start()
        answer, opening = self.say(m.ConnectionTune(channel_max, frame_max, heartbeat))
        assert isinstance(answer, m.ConnectionTuneOk)
        assert opening == m.ConnectionOpen(self.parameters.vhost)
        return answer


def test_the_whole_of_it() -> None:
    opening = Opening(vhost="v")
    opening.tune(2047, 131072, 60)
    assert not opening.handshake.done
    assert opening.say(m.ConnectionOpenOk()) == []
    assert opening.handshake.done
    assert opening.handshake.server_properties == {"product": "P"}


def test_its_name() -> None:
    assert Opening(name="my program").start().client_properties["connection_name"] == "my program"
    assert "connection_name" not in Opening().start().client_properties


def test_plain() -> None:
    answer = Opening(username="ü", password="p").start()
    assert (answer.mechanism, answer.response) == ("PLAIN", "\0ü\0p".encode())
    capabilities = answer.client_properties["capabilities"]
    assert isinstance(capabilities, dict)
    assert all(
        capabilities[name] is True
        for name in ("publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked")
    )


def test_amqplain() -> None:
    answer = Opening(mechanisms=("AMQPLAIN",), username="u", password="p").start()
    assert answer.mechanism == "AMQPLAIN"
    assert answer.response == b"\x05LOGINS\0\0\0\x01u\x08PASSWORDS\0\0\0\x01p"


def test_external() -> None:
    answer = Opening(mechanisms=("EXTERNAL", "PLAIN")).start(b"PLAIN EXTERNAL")
    assert (answer.mechanism, answer.response) == ("EXTERNAL", b"")


def test_no_common_mechanism() -> None:
    with pytest.raises(errors.AccessRefused, match=r"offers EXTERNAL, asked for is PLAIN, AMQPLAIN"):
        Opening().start(b"EXTERNAL")


@pytest.mark.parametrize(
    "theirs, ours, agreed",
    [
        ((2047, 131072, 60), (100, 8192, 10), (100, 8192, 10)),
        ((100, 8192, 10), (2047, 131072, 60), (100, 8192, 10)),
        ((0, 0, 0), (100, 8192, 10), (100, 8192, 10)),
        ((100, 8192, 10), (0, 0, 0), (100, 8192, 10)),
        ((0, 0, 0), (0, 0, 0), (65535, 1048576, 0)),
    ],
)
def test_limits(theirs: tuple[int, int, int], ours: tuple[int, int, int], agreed: tuple[int, int, int]) -> None:
    opening = Opening(channel_max=ours[0], frame_max=ours[1], heartbeat=ours[2])
    assert opening.tune(*theirs) == m.ConnectionTuneOk(*agreed)
    assert opening.handshake.heartbeat == agreed[2]
    assert opening.client.frame_max == agreed[1]


def test_a_refused_login_says_so() -> None:
    opening = Opening(username="eve")
    opening.start()
    with pytest.raises(errors.AccessRefused, match="Login was refused") as caught:
        opening.say(m.ConnectionClose(403, "ACCESS_REFUSED - Login was refused"))
    assert "logging in" in caught.value.__notes__[0]


def test_a_missing_vhost_says_so() -> None:
    opening = Opening(vhost="nowhere")
    opening.tune(1, 4096, 0)
    with pytest.raises(errors.NotAllowed, match="vhost nowhere not found") as caught:
        opening.say(m.ConnectionClose(530, "NOT_ALLOWED - vhost nowhere not found"))
    assert "nowhere" in caught.value.__notes__[0]


def test_a_second_login_step_is_refused() -> None:
    opening = Opening()
    opening.start()
    with pytest.raises(errors.AccessRefused, match="second login step"):
        opening.say(m.ConnectionSecure(b"?"))
